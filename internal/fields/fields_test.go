package fields_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/fields"
)

// part has a field of each kind of single value.
type part struct {
	Wait  time.Duration
	Tries int
	Size  int
	Share float64
	Times float64
	On    bool
}

func (c *part) table() fields.Table {
	return fields.Table{
		fields.Duration("wait", &c.Wait, time.Hour),
		fields.Count("tries", &c.Tries),
		fields.CountUpTo("size", &c.Size, 100),
		fields.Fraction("share", &c.Share),
		fields.Factor("times", &c.Times, 1000).Rule(func() string {
			if c.Times > 1 && c.Tries == 0 {
				return "1 unless tries is more than 0"
			}
			return ""
		}),
		fields.Bool("on", &c.On),
	}
}

// whole has parts by name, which start from another part.
type whole struct {
	Own   map[string]part
	Base  part
	Limit int
}

func (c *whole) table() fields.Table {
	return fields.Table{
		fields.Object("base", c.Base.table()),
		fields.Map("own", &c.Own, func() part { return c.Base }, (*part).table),
		fields.Count("limit", &c.Limit),
	}
}

func TestTable_CheckKnowsTheBoundsOfEachKind(t *testing.T) {
	for _, c := range []struct {
		change func(*part)
		want   fields.Problem // zero if the value is right
	}{
		{func(c *part) { c.Wait = time.Hour }, fields.Problem{}},
		{func(c *part) { c.Wait = time.Hour + 1 }, fields.Problem{Field: "wait", Value: "1h0m0.000000001s", Allowed: "between 0s and 1h0m0s"}},
		{func(c *part) { c.Wait = -1 }, fields.Problem{Field: "wait", Value: "-1ns", Allowed: "between 0s and 1h0m0s"}},
		{func(c *part) { c.Wait = math.MinInt64 }, fields.Problem{Field: "wait", Value: "-2562047h47m16.854775808s", Allowed: "between 0s and 1h0m0s"}},
		{func(c *part) { c.Tries = math.MaxInt }, fields.Problem{}},
		{func(c *part) { c.Tries = -1 }, fields.Problem{Field: "tries", Value: "-1", Allowed: "0 or more"}},
		{func(c *part) { c.Size = 100 }, fields.Problem{}},
		{func(c *part) { c.Size = 101 }, fields.Problem{Field: "size", Value: "101", Allowed: "between 0 and 100"}},
		{func(c *part) { c.Size = -1 }, fields.Problem{Field: "size", Value: "-1", Allowed: "between 0 and 100"}},
		{func(c *part) { c.Share = 1 }, fields.Problem{}},
		{func(c *part) { c.Share = math.Copysign(0, -1) }, fields.Problem{}},
		{func(c *part) { c.Share = math.Nextafter(1, 2) }, fields.Problem{Field: "share", Value: "1.0000000000000002", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Share = -math.SmallestNonzeroFloat64 }, fields.Problem{Field: "share", Value: "-5e-324", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Share = math.NaN() }, fields.Problem{Field: "share", Value: "NaN", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Share = math.Inf(1) }, fields.Problem{Field: "share", Value: "+Inf", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Times, c.Tries = 1000, 1 }, fields.Problem{}},
		{func(c *part) { c.Times = 1 }, fields.Problem{}},
		{func(c *part) { c.Times, c.Tries = 1001, 1 }, fields.Problem{Field: "times", Value: "1001", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = 0.5 }, fields.Problem{Field: "times", Value: "0.5", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = math.NaN() }, fields.Problem{Field: "times", Value: "NaN", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = math.Inf(-1) }, fields.Problem{Field: "times", Value: "-Inf", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = 2 }, fields.Problem{Field: "times", Value: "2", Allowed: "1 unless tries is more than 0"}},
		{func(c *part) { c.On = true }, fields.Problem{}},
	} {
		var config part
		c.change(&config)
		got := config.table().Check()
		if c.want == (fields.Problem{}) {
			assert.Empty(t, got, "%+v", config)
		} else {
			assert.Equal(t, fields.Problems{c.want}, got)
		}
	}
}

func TestTable_CheckReportsEveryProblemInOrder(t *testing.T) {
	bad := part{Wait: -1, Tries: -1, Size: -1, Share: -1, Times: -1}
	c := whole{Base: bad, Own: map[string]part{"b": bad, "": {}, "a": {Times: 5000}}, Limit: -1}
	assert.Equal(t, []string{
		"base.wait", "base.tries", "base.size", "base.share", "base.times",
		"own", `own["a"].times`, `own["a"].times`,
		`own["b"].wait`, `own["b"].tries`, `own["b"].size`, `own["b"].share`, `own["b"].times`,
		"limit",
	}, paths(c.table().Check()))
	assert.Contains(t, c.table().Check(), fields.Problem{Field: "own", Value: `the key ""`, Allowed: "a name that is not empty"})
}

func paths(problems fields.Problems) (paths []string) {
	for _, p := range problems {
		paths = append(paths, p.Field)
	}
	return paths
}

func TestTable_JSONRoundTrip(t *testing.T) {
	c := whole{
		Base:  part{Wait: 90 * time.Second, Tries: 3, Size: 4, Share: 0.25, Times: 2, On: true},
		Own:   map[string]part{"b": {Wait: 1}, "a\n": {}},
		Limit: 7,
	}
	text, err := c.table().JSON()
	require.NoError(t, err)
	const zero = `"tries":0,"size":0,"share":0,"times":0,"on":false}`
	assert.Equal(t, `{"base":{"wait":"1m30s","tries":3,"size":4,"share":0.25,"times":2,"on":true},`+
		`"own":{"a\n":{"wait":"0s",`+zero+`,"b":{"wait":"1ns",`+zero+`},"limit":7}`, string(text))
	var back whole
	assert.Empty(t, back.table().Read(text))
	assert.Equal(t, c, back)

	text, err = (&whole{}).table().JSON()
	require.NoError(t, err)
	assert.Equal(t, `{"base":{"wait":"0s",`+zero+`,"limit":0}`, string(text), "an empty map is left out")
	text, err = fields.Table{}.JSON()
	require.NoError(t, err)
	assert.Equal(t, `{}`, string(text))
}

func TestTable_JSONNamesTheFieldThatItCannotWrite(t *testing.T) {
	_, err := (&whole{Own: map[string]part{"a": {Share: math.NaN()}}}).table().JSON()
	assert.EqualError(t, err, `own["a"].share: json: unsupported value: NaN`)
	_, err = (&whole{Base: part{Times: math.Inf(1)}}).table().JSON()
	assert.EqualError(t, err, "base.times: json: unsupported value: +Inf")
}

func TestTable_ReadKeepsWhatIsAbsent(t *testing.T) {
	full := whole{Base: part{Wait: 1, Tries: 2, Size: 3, Share: 0.5, Times: 4, On: true}, Own: map[string]part{"kept": {Size: 9}}, Limit: 5}
	for _, text := range []string{
		`{}`, ` { } `, `null`, `{"base":null,"own":null,"limit":null}`, `{"base":{}}`,
		`{"base":{"wait":null,"tries":null,"size":null,"share":null,"times":null,"on":null}}`,
	} {
		c := full
		assert.Empty(t, c.table().Read([]byte(text)), text)
		assert.Equal(t, full, c, text)
	}
	c := full
	assert.Empty(t, c.table().Read([]byte(`{"own":{}}`)))
	assert.Equal(t, map[string]part{}, c.Own, "an empty object is a map without entries")
	assert.Equal(t, part{Size: 9}, full.Own["kept"], "the map is replaced, not changed")
}

func TestTable_ReadStartsEntriesFromAnEarlierField(t *testing.T) {
	c := whole{Base: part{Size: 9}}
	assert.Empty(t, c.table().Read([]byte(`{"own":{"a":{"tries":1},"b":null},"base":{"wait":"2s"}}`)))
	base := part{Size: 9, Wait: 2 * time.Second}
	a := base
	a.Tries = 1
	assert.Equal(t, whole{Base: base, Own: map[string]part{"a": a, "b": base}}, c, "wherever it stands in the text")
}

func TestTable_ReadDoesNotCheck(t *testing.T) {
	var c part
	assert.Empty(t, c.table().Read([]byte(`{"wait":"-1h","tries":-3,"share":1e300,"times":-0.5}`)))
	assert.Equal(t, part{Wait: -time.Hour, Tries: -3, Share: 1e300, Times: -0.5}, c)
	assert.Len(t, c.table().Check(), 4)
}

func TestTable_ReadReportsEveryProblemInOrder(t *testing.T) {
	var c whole
	assert.Equal(t, fields.Problems{
		{Field: "limit", Value: "given twice", Allowed: "given once"},
		{Field: "base.on", Value: "given twice", Allowed: "given once"},
		{Field: "base.wait", Value: "3", Allowed: `a duration such as "30s"`},
		{Field: "base.on", Value: "1", Allowed: "true or false"},
		{Field: "base.wiat", Value: "unknown", Allowed: "one of wait, tries, size, share, times, on"},
		{Field: `own["a"]`, Value: "given twice", Allowed: "given once"},
		{Field: `own["a"]`, Value: "[1]", Allowed: "an object"},
		{Field: `own["b"].share`, Value: `"x"`, Allowed: "a number"},
		{Field: "limit", Value: "1.5", Allowed: "a whole number"},
		{Field: "aaa", Value: "unknown", Allowed: "one of base, own, limit"},
		{Field: "zzz", Value: "unknown", Allowed: "one of base, own, limit"},
	}, c.table().Read([]byte(`{"zzz":1,"limit":2,"limit":1.5,"own":{"b":{"share":"x"},"a":{},"a":[1]},
		"base":{"wiat":"1s","on":true,"wait":3,"\u006fn":1},"aaa":2}`)))
	assert.Equal(t, fields.Problems{{Field: "own", Value: "7", Allowed: "an object"}}, c.table().Read([]byte(`{"own":7}`)))
}

// What is no value of the field's type, however much it looks like one.
func TestTable_ReadRejectsHostileValues(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for field, values := range map[string][]string{
		"wait":  {`1`, `"1"`, `""`, `"1e3s"`, `"NaN"`, `"9223372037s"`, `"-2562047h48m"`, `"` + strings.Repeat("9", 1<<16) + `h"`, `{}`, `true`, deep},
		"tries": {`1.0`, `1e0`, `"1"`, `9223372036854775808`, `-9223372036854775809`, strings.Repeat("9", 1<<16), `NaN`, `[]`, deep},
		"share": {`1e309`, `-1e309`, strings.Repeat("9", 400), `"0.5"`, `"NaN"`, `"Infinity"`, `{}`, deep},
		"times": {`1e999999999999`, `false`},
		"on":    {`0`, `1`, `"true"`, `[true]`},
	} {
		for _, value := range values {
			before := part{Wait: 1, Tries: 2, Size: 3, Share: 4, Times: 5, On: true}
			c := before
			got := c.table().Read([]byte(`{"` + field + `":` + value + `}`))
			require.Len(t, got, 1, "%s: %.40s", field, value)
			if value != "NaN" { // which is not JSON at all
				assert.Equal(t, field, got[0].Field)
			}
			assert.LessOrEqual(t, len(got[0].Value), 80)
			assert.Equal(t, before, c, "%s: %.40s", field, value)
		}
	}
	if strconv.IntSize == 32 {
		assert.Len(t, new(part).table().Read([]byte(`{"tries":2147483648}`)), 1)
	}
}

func TestTable_ReadRejectsWhatIsNoObject(t *testing.T) {
	for _, text := range []string{
		``, ` `, `[]`, `"x"`, `7`, `1e999999`, `true`, `{`, `{"base":{}`, `{"base":{}}}`, `{"base":{}} {}`, `{"base":{},}`, `{'base':{}}`,
		`nul`, "\xff", "{\"\n\":1}", `{"limit":01}`, strings.Repeat(`{"base":`, 20000),
	} {
		c := whole{Limit: 3}
		got := c.table().Read([]byte(text))
		require.Len(t, got, 1, "%.40s", text)
		assert.Equal(t, "the configuration", got[0].Field, "%.40s", text)
		assert.Equal(t, "an object", got[0].Allowed)
		assert.Equal(t, whole{Limit: 3}, c)
	}
	for _, value := range []string{`[]`, `"x"`, `7`, `1e999999`, `false`} {
		assert.Equal(t, fields.Problems{{Field: "base", Value: value, Allowed: "an object"}},
			new(whole).table().Read([]byte(`{"base":`+value+`}`)))
		assert.Equal(t, fields.Problems{{Field: `own["a"]`, Value: value, Allowed: "an object"}},
			new(whole).table().Read([]byte(`{"own":{"a":`+value+`}}`)))
	}
}

// A problem is one line of a log, short and without control characters, whatever
// the text has in its keys and values.
func TestProblem_FitsOneLine(t *testing.T) {
	long := strings.Repeat("é", 1<<16)
	for _, text := range []string{
		`{"\n\u001b[31m\u202e":1}`, `{"` + long + `":1}`, `{"\"":1}`, `{"own":{"\n":{"\u0000":1}}}`, `{"own":{"` + long + `":1}}`,
		"{\"base\":[\n\t1,\r\n\t2]}", "{\"base\":\"\u202e\u009b\u2028\"}", "{\"base\":\"\x7f\xff\"}", "\x1b[31m", `{"base":"` + long + `"}`,
		`{"\n":1,"\n":2}`, `{"own":{"\n":{},"\n":{}}}`,
	} {
		got := new(whole).table().Read([]byte(text))
		require.NotEmpty(t, got, "%.40q", text)
		for _, p := range got {
			for _, said := range []string{p.Field, p.Value, p.Allowed} {
				assert.NotEmpty(t, said)
				assert.LessOrEqual(t, len([]rune(said)), 90, "%.40q", text)
				assert.Equal(t, -1, strings.IndexFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", said)
			}
		}
	}
	assert.Equal(t, `\"`, new(whole).table().Read([]byte(`{"\"":1}`))[0].Field, "a quote is escaped")
	assert.Equal(t, `""`, new(whole).table().Read([]byte(`{"":1}`))[0].Field)
	assert.Equal(t, `base.""`, new(whole).table().Read([]byte(`{"base":{"":1}}`))[0].Field)
	assert.Equal(t, "empty", new(whole).table().Read([]byte(" \n"))[0].Value)
	assert.Equal(t, "[ 1, 2]", new(whole).table().Read([]byte("{\"base\":[\n\t1,\r\n\t2]}"))[0].Value)
}

func TestKey_QuotesAndCuts(t *testing.T) {
	assert.Equal(t, `tools["a\"b"]`, fields.Key("tools", `a"b`))
	assert.Equal(t, `tools["`+strings.Repeat("x", 80)+`"]`, fields.Key("tools", strings.Repeat("x", 81)))
}

// FuzzTable_Read: what is read without a problem is written as JSON that is read
// the same way again, and each problem names its field.
func FuzzTable_Read(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"base":{"wait":"1s","tries":1},"own":{"a":{"share":0.5},"":null},"limit":2}`,
		`{"own":{"\ud800":{},"\udfff":{}}}`, `{"limit":1,"limit":1}`, `{"base":{"times":1e308}}`, `{"own":1e999}`, `{"":0}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c whole
		problems := c.table().Read(text)
		for _, p := range problems {
			require.NotEmpty(t, p.Field)
			require.NotEmpty(t, p.Value)
			require.NotEmpty(t, p.Allowed)
		}
		if len(problems) > 0 {
			return
		}
		c.table().Check()
		written, err := c.table().JSON()
		require.NoError(t, err)
		var back whole
		require.Empty(t, back.table().Read(written))
		if len(c.Own) == 0 {
			c.Own = nil
		}
		require.Equal(t, c, back)
	})
}
