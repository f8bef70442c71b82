package httphealth_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// answers are what servers say, and what it means to both RoundTrippers.
var answers = []struct {
	name    string
	status  int
	header  string // "Name: value" by line
	body    string
	verdict string
}{
	{"200", 200, "", "fine", "success"},
	{"200, empty", 200, "Content-Length: 0", "", "success"},
	{"204", 204, "", "", "success"},
	{"206", 206, "", "some", "success"},
	{"304", 304, "", "", "success"},
	{"302 with a place", 302, "Location: /there", "see there", "success"},
	{"301 with a place", 301, "Location: /there", "", "success"},
	{"303 with a place", 303, "Location: /there", "", "success"},
	{"307 with a place", 307, "Location: /there", "", "success"},
	{"308 with a place", 308, "Location: /there", "", "success"},
	{"302 without one", 302, "", "", "failure contract"},
	{"300", 300, "Location: /there", "", "failure contract"},
	{"400", 400, "", "no", "rejected invalid_request"},
	{"401", 401, "", "<html>no</html>", "rejected unauthorized"},
	{"404", 404, "", "", "rejected not_found"},
	{"410", 410, "", "", "rejected gone"},
	{"500", 500, "", "", "failure server_error retry"},
	{"501", 501, "", "", "rejected invalid_request"},
	{"502, HTML", 502, "Content-Type: text/html", "<html>502 Bad Gateway</html>", "failure server_error retry"},
	{"503", 503, "", "", "failure server_error retry"},
	{"503, wait", 503, "Retry-After: 7", "", "failure server_error retry 7s"},
	{"503, wait in the body", 503, "Content-Type: application/json", `{"error":{"retry_after":12}}`, "failure server_error retry 12s"},
	{"403, wait", 403, "Retry-After: 7", "", "throttled rate_limited retry 7s"},
	{"429", 429, "", "", "failure rate_limited retry"},
	{"429, seconds", 429, "Retry-After: 7", "", "throttled rate_limited retry 7s"},
	{"429, zero", 429, "Retry-After: 0", "", "failure rate_limited retry"},
	{"429, date by the server's clock", 429,
		"Date: Mon, 02 Jan 2006 15:04:05 GMT\nRetry-After: Mon, 02 Jan 2006 15:04:14 GMT", "", "throttled rate_limited retry 9s"},
	{"429, milliseconds", 429, "Retry-After-Ms: 1500", "", "throttled rate_limited retry 1.5s"},
	{"429, reset", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 6m0s", "", "throttled rate_limited retry 6m0s"},
	{"429, policy", 429, `RateLimit: "day";r=0;t=30`, "", "throttled rate_limited retry 30s"},
	{"429, wait in the body", 429, "Content-Type: application/problem+json; charset=utf-8", `{"retryAfterSeconds": 12}`, "throttled rate_limited retry 12s"},
	{"429, wait in what is no JSON", 429, "Content-Type: text/html", `<p>"retry_after": 12,</p>`, "failure rate_limited retry"},
	{"429, wait after 4 KiB", 429, "Content-Type: application/json", `{"x":"` + strings.Repeat("x", 4096) + `","retry_after":12}`, "failure rate_limited retry"},
	{"429, empty quota", 429, "Content-Type: application/json\nRetry-After: 7",
		`{"error":{"code":"insufficient_quota"}}`, "failure quota_exhausted"},
}

// say answers as a row of answers does.
func say(status int, header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func unfollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func TestTransport_JudgesAnswers(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.client.CheckRedirect = unfollowed
			code, body, err := get(t.Context(), w.client, serve(t, say(a.status, a.header, a.body)))
			require.NoError(t, err)
			assert.Equal(t, a.status, code)
			assert.Equal(t, a.body, body, "the client sees what the server said")
			h := w.health()
			assert.Zero(t, h.InFlight)
			assert.EqualValues(t, 1, h.Successes+h.Failures+h.Rejected+h.Throttled)
			if a.verdict == "success" {
				assert.EqualValues(t, 1, h.Successes)
				return
			}
			assert.Zero(t, h.Successes)
			assert.Equal(t, a.verdict, w.said())
		})
	}
}

func TestWitness_NotesAnswers(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			client := &http.Client{Transport: httphealth.Witness(newBase(t)), CheckRedirect: unfollowed}
			ctx := toolhealth.WithNotes(t.Context())
			code, body, err := get(ctx, client, serve(t, say(a.status, a.header, a.body)))
			require.NoError(t, err)
			assert.Equal(t, a.status, code)
			assert.Equal(t, a.body, body, "the client sees what the server said")
			v, ok := toolhealth.NoteOf(ctx)
			require.True(t, ok)
			assert.Equal(t, a.verdict, words(v))
		})
	}
}
