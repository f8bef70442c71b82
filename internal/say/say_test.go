package say

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLine_IsOneLineWithoutURL(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"no such city":              "no such city",
		"  no\tsuch\r\n\ncity \x00": "no such city",
		"a\u2028b\u0085c":           "a b c",
		"\x1b[31mred\x1b[0m":        "[31mred [0m",
		"in\u200bvi\u202esible":     "invisible",
		"bad \xff\xfe bytes":        "bad \uFFFD bytes",
		"azAZ09+-.://host":          "[URL]",
		"see https://docs.example.com/a?key=s3cret for more":  "see [URL] for more",
		`Get "https://10.0.0.7:8443/a b": not found`:          `Get "[URL] b": not found`,
		"(at HTTP://user:pass@host/x).":                       "(at [URL]).",
		"two: a://b, c+d.e-f://g/h(i)j":                       "two: [URL], [URL]",
		`{"url":"https:\/\/host\/path?key=1","code":404}`:     `{"url":"[URL]","code":404}`,
		"htt\u200bps://host/path":                             "[URL]",
		"://":                                                 "[URL]",
		"postgres://u:p@db-7.internal/x?sslmode=off: refused": "[URL]: refused",
		"a://b c://d":                                         "[URL] [URL]",
	} {
		assert.Equal(t, want, Line(text, 100), "%q", text)
	}
}

func TestLine_IsCutAtLimit(t *testing.T) {
	assert.Equal(t, "äöü", Line("äöü", 3))
	assert.Equal(t, "äö…", Line("äöüß", 3))
	assert.Equal(t, "ab", Line("ab \n", 2), "spaces at the end do not count")
	for limit := range 3 {
		assert.LessOrEqual(t, utf8.RuneCountInString(Line("abc", limit)), max(limit, 1))
	}
	assert.Equal(t, "x", Line(strings.Repeat(" ", maxRead-1)+"xy", 3), "what comes after 16 KiB is not read")
	huge := strings.Repeat("ä", 1<<20)
	got := Line("x"+huge, 500)
	assert.Equal(t, 500, utf8.RuneCountInString(got))
	assert.True(t, utf8.ValidString(got))
}

func FuzzLine(f *testing.F) {
	f.Add("see https://a.example/b", 5)
	f.Add(`:\/\/://`, 0)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + (limit&0x3ff+0x3ff)&0x3ff
		got := Line(text, limit)
		assert.LessOrEqual(t, utf8.RuneCountInString(got), limit)
		assert.True(t, utf8.ValidString(got))
		assert.NotContains(t, got, "\n")
		assert.Equal(t, got, Line(got, limit), "a line stays as it is")
	})
}
