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
		fields.Duration("wait", &c.Wait, time.Minute, time.Hour),
		fields.Count("tries", &c.Tries, 0),
		fields.CountUpTo("size", &c.Size, 50, 100),
		fields.Fraction("share", &c.Share, 0.5),
		fields.Factor("times", &c.Times, 1, 1000).Rule(func() string {
			if c.Times > 1 && c.Tries == 0 {
				return "1 unless tries is more than 0"
			}
			return ""
		}),
		fields.Bool("on", &c.On),
	}
}

// own is what a whole has under a name. Its part starts from the whole's.
type own struct {
	Part  *part
	Names []string
	Texts map[string]string
}

// whole has parts by name, which start from another part.
type whole struct {
	Own   map[string]own
	Base  part
	Limit int
}

func (c *whole) table() fields.Table {
	return fields.Table{
		fields.Object("base", c.Base.table(), new(part).table()),
		fields.Map("own", &c.Own, func(o *own) fields.Table {
			return fields.Table{
				fields.Optional("part", &o.Part, func() part { return c.Base }, (*part).table),
				fields.Names("names", &o.Names),
				fields.Texts("texts", &o.Texts),
			}
		}),
		fields.Count("limit", &c.Limit, 7),
	}
}

// json returns what c has beside the zero whole, as JSON.
func (c *whole) json() (string, error) {
	text, err := c.table().JSON(new(whole).table())
	return string(text), err
}

func TestTable_CheckKnowsTheBoundsOfEachKind(t *testing.T) {
	for _, c := range []struct {
		change func(*part)
		want   fields.Problem // zero if the value is right
	}{
		{func(c *part) { c.Wait = time.Hour }, fields.Problem{}},
		{func(c *part) { c.Wait = time.Hour + 1 }, fields.Problem{Field: "wait", Value: "1h0m0.000000001s", Allowed: "between 0s and 1h0m0s"}},
		{func(c *part) { c.Wait = fields.Off }, fields.Problem{}},
		{func(c *part) { c.Wait = -2 }, fields.Problem{Field: "wait", Value: "-2ns", Allowed: "between 0s and 1h0m0s, or Off"}},
		{func(c *part) { c.Wait = math.MinInt64 }, fields.Problem{Field: "wait", Value: "-2562047h47m16.854775808s", Allowed: "between 0s and 1h0m0s, or Off"}},
		{func(c *part) { c.Tries = math.MaxInt }, fields.Problem{}},
		{func(c *part) { c.Tries = fields.Off }, fields.Problem{}},
		{func(c *part) { c.Tries = -2 }, fields.Problem{Field: "tries", Value: "-2", Allowed: "0 or more, or Off"}},
		{func(c *part) { c.Size = 100 }, fields.Problem{}},
		{func(c *part) { c.Size = 101 }, fields.Problem{Field: "size", Value: "101", Allowed: "between 0 and 100"}},
		{func(c *part) { c.Size = fields.Off }, fields.Problem{}},
		{func(c *part) { c.Size = -2 }, fields.Problem{Field: "size", Value: "-2", Allowed: "between 0 and 100, or Off"}},
		{func(c *part) { c.Share = 1 }, fields.Problem{}},
		{func(c *part) { c.Share = math.Copysign(0, -1) }, fields.Problem{}},
		{func(c *part) { c.Share = math.Nextafter(1, 2) }, fields.Problem{Field: "share", Value: "1.0000000000000002", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Share = fields.Off }, fields.Problem{}},
		{func(c *part) { c.Share = math.Nextafter(-1, 0) }, fields.Problem{Field: "share", Value: "-0.9999999999999999", Allowed: "between 0 and 1, or Off"}},
		{func(c *part) { c.Share = -math.SmallestNonzeroFloat64 }, fields.Problem{Field: "share", Value: "-5e-324", Allowed: "between 0 and 1, or Off"}},
		{func(c *part) { c.Share = math.NaN() }, fields.Problem{Field: "share", Value: "NaN", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Share = math.Inf(1) }, fields.Problem{Field: "share", Value: "+Inf", Allowed: "between 0 and 1"}},
		{func(c *part) { c.Times, c.Tries = 1000, 1 }, fields.Problem{}},
		{func(c *part) { c.Times = 1 }, fields.Problem{}},
		{func(c *part) { c.Times = fields.Off }, fields.Problem{}},
		{func(c *part) { c.Times, c.Tries = 1001, 1 }, fields.Problem{Field: "times", Value: "1001", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = 0.5 }, fields.Problem{Field: "times", Value: "0.5", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = math.NaN() }, fields.Problem{Field: "times", Value: "NaN", Allowed: "0, or between 1 and 1000"}},
		{func(c *part) { c.Times = math.Inf(-1) }, fields.Problem{Field: "times", Value: "-Inf", Allowed: "0, or between 1 and 1000, or Off"}},
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
	bad := part{Wait: -2, Tries: -2, Size: -2, Share: -2, Times: -2}
	worse := part{Wait: -3, Tries: -3, Size: -3, Share: -3, Times: -3}
	c := whole{Base: bad, Own: map[string]own{"b": {Part: &worse}, "": {}, "a": {Part: &part{Times: 5000}}}, Limit: -2}
	assert.Equal(t, []string{
		"base.wait", "base.tries", "base.size", "base.share", "base.times",
		"own", `own["a"].part.times`, `own["a"].part.times`,
		`own["b"].part.wait`, `own["b"].part.tries`, `own["b"].part.size`, `own["b"].part.share`, `own["b"].part.times`,
		"limit",
	}, paths(c.table().Check()))
	inherits := whole{Base: bad, Own: map[string]own{"a": {Part: &part{Wait: -2, Tries: -3, Size: -2, Share: -2, Times: -2}}}}
	assert.Equal(t, []string{
		"base.wait", "base.tries", "base.size", "base.share", "base.times", `own["a"].part.tries`,
	}, paths(inherits.table().Check()), "what is inherited is reported once")
	assert.Contains(t, c.table().Check(), fields.Problem{Field: "own", Value: `the key ""`, Allowed: "a name that is not empty"})
}

func paths(problems fields.Problems) (paths []string) {
	for _, p := range problems {
		paths = append(paths, p.Field)
	}
	return paths
}

func TestTable_ResolveFillsInDefaults(t *testing.T) {
	var c part
	c.table().Resolve()
	assert.Equal(t, part{Wait: time.Minute, Size: 50, Share: 0.5, Times: 1}, c)
	c = part{Wait: fields.Off, Tries: fields.Off, Size: fields.Off, Share: fields.Off, Times: fields.Off, On: true}
	c.table().Resolve()
	assert.Equal(t, part{On: true}, c)
	set := part{Wait: 1, Tries: 2, Size: 3, Share: 0.25, Times: 4}
	c = set
	c.table().Resolve()
	assert.Equal(t, set, c)

	w := whole{Base: part{Size: 7}, Own: map[string]own{"a": {Part: &part{}}}, Limit: fields.Off}
	w.table().Resolve()
	assert.Equal(t, part{Wait: time.Minute, Size: 7, Share: 0.5, Times: 1}, w.Base)
	assert.Equal(t, 0, w.Limit)
	assert.Equal(t, map[string]own{"a": {Part: &part{}}}, w.Own, "the entries of a map stay as they are")
}

func TestTable_JSONRoundTrip(t *testing.T) {
	c := whole{
		Base: part{Wait: 90 * time.Second, Tries: 3, Size: 4, Share: 0.25, Times: 2, On: true},
		Own: map[string]own{
			"b":   {Part: &part{Wait: 1, Tries: fields.Off, Size: 4, Share: 0.25, Times: 2}, Names: []string{"x", "y"}},
			"a\n": {Texts: map[string]string{"team": "\"q\""}},
			"c":   {Part: &part{Wait: 90 * time.Second, Tries: 3, Size: 4, Share: 0.25, Times: 2, On: true}},
		},
		Limit: 9,
	}
	text, err := c.json()
	require.NoError(t, err)
	assert.Equal(t, `{"base":{"wait":"1m30s","tries":3,"size":4,"share":0.25,"times":2,"on":true},`+
		`"own":{"a\n":{"texts":{"team":"\"q\""}},"b":{"part":{"wait":"1ns","tries":0,"on":false},"names":["x","y"]},"c":{"part":{}}},"limit":9}`, text)
	var back whole
	assert.Empty(t, back.table().Read([]byte(text)))
	assert.Equal(t, c, back)

	text, err = new(whole).json()
	require.NoError(t, err)
	assert.Equal(t, `{}`, text, "what is not set is left out")
	empty, err := fields.Table{}.JSON(fields.Table{})
	require.NoError(t, err)
	assert.Equal(t, `{}`, string(empty))
}

func TestTable_JSONWritesOffAsZero(t *testing.T) {
	off := part{Wait: fields.Off, Tries: fields.Off, Size: fields.Off, Share: fields.Off, Times: fields.Off}
	text, err := off.table().JSON(new(part).table())
	require.NoError(t, err)
	assert.Equal(t, `{"wait":"0s","tries":0,"size":0,"share":0,"times":0}`, string(text))
	var back part
	assert.Empty(t, back.table().Read(text))
	assert.Equal(t, off, back)
}

// A default beside a base that is set has to be written out.
func TestTable_JSONWritesDefaultThatDiffersFromBase(t *testing.T) {
	base := part{Wait: 1, Tries: 1, Size: 1, Share: 1, Times: 9}
	text, err := new(part).table().JSON(base.table())
	require.NoError(t, err)
	assert.Equal(t, `{"wait":"1m0s","tries":0,"size":50,"share":0.5,"times":1}`, string(text))
}

func TestTable_JSONNamesTheFieldThatItCannotWrite(t *testing.T) {
	_, err := (&whole{Own: map[string]own{"a": {Part: &part{Share: math.NaN()}}}}).json()
	assert.EqualError(t, err, `own["a"].part.share: json: unsupported value: NaN`)
	_, err = (&whole{Base: part{Times: math.Inf(1)}}).json()
	assert.EqualError(t, err, "base.times: json: unsupported value: +Inf")
}

func TestTable_ReadKeepsWhatIsAbsent(t *testing.T) {
	full := whole{
		Base:  part{Wait: 1, Tries: 2, Size: 3, Share: 0.5, Times: 4, On: true},
		Own:   map[string]own{"kept": {Part: &part{Size: 9}, Names: []string{"x"}, Texts: map[string]string{"y": "z"}}},
		Limit: 5,
	}
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
	assert.Equal(t, map[string]own{}, c.Own, "an empty object is a map without entries")
	assert.Equal(t, part{Size: 9}, *full.Own["kept"].Part, "the map is replaced, not changed")
	assert.Empty(t, c.table().Read([]byte(`{"own":{"a":{"part":null,"names":null,"texts":null}}}`)))
	assert.Equal(t, map[string]own{"a": {}}, c.Own)
}

func TestTable_ReadTakesZeroForOff(t *testing.T) {
	off := part{Wait: fields.Off, Tries: fields.Off, Size: fields.Off, Share: fields.Off, Times: fields.Off}
	for _, zeros := range []string{
		`{"wait":"0s","tries":0,"size":0,"share":0,"times":0}`,
		`{"wait":"0","tries":-0,"size":0,"share":-0.0,"times":0e5}`,
	} {
		c := part{Wait: 9, Share: 1}
		assert.Empty(t, c.table().Read([]byte(zeros)))
		assert.Equal(t, off, c, zeros)
	}
}

// In JSON the only way to say off is 0.
func TestTable_ReadRejectsNegativeNumbers(t *testing.T) {
	before := part{Wait: 1, Tries: 2, Size: 3, Share: 0.5, Times: 4}
	c := before
	assert.Equal(t, fields.Problems{
		{Field: "wait", Value: `"-1ns"`, Allowed: "between 0s and 1h0m0s"},
		{Field: "tries", Value: "-1", Allowed: "0 or more"},
		{Field: "size", Value: "-1", Allowed: "between 0 and 100"},
		{Field: "share", Value: "-0.5", Allowed: "between 0 and 1"},
		{Field: "times", Value: "-1", Allowed: "0, or between 1 and 1000"},
	}, c.table().Read([]byte(`{"wait":"-1ns","tries":-1,"size":-1,"share":-0.5,"times":-1}`)))
	assert.Equal(t, before, c)
}

func TestTable_ReadStartsEntriesFromAnEarlierField(t *testing.T) {
	c := whole{Base: part{Size: 9}}
	assert.Empty(t, c.table().Read([]byte(`{"own":{"a":{"part":{"tries":1}},"b":{"part":{}},"c":null},"base":{"wait":"2s"}}`)))
	base := part{Size: 9, Wait: 2 * time.Second}
	a := base
	a.Tries = 1
	assert.Equal(t, whole{Base: base, Own: map[string]own{"a": {Part: &a}, "b": {Part: &base}, "c": {}}}, c, "wherever it stands in the text")
}

func TestTable_ReadDoesNotCheck(t *testing.T) {
	var c part
	assert.Empty(t, c.table().Read([]byte(`{"wait":"2h","size":101,"share":1e300,"times":0.5}`)))
	assert.Equal(t, part{Wait: 2 * time.Hour, Size: 101, Share: 1e300, Times: 0.5}, c)
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
		{Field: `own["b"].part.share`, Value: `"x"`, Allowed: "a number"},
		{Field: `own["b"].names`, Value: `"c"`, Allowed: `a list of names such as ["a", "b"]`},
		{Field: `own["b"].texts["t"]`, Value: "given twice", Allowed: "given once"},
		{Field: `own["c"].part`, Value: `7`, Allowed: "an object"},
		{Field: `own["c"].texts`, Value: `[]`, Allowed: "an object"},
		{Field: `own["d"].texts`, Value: `{"t":1}`, Allowed: `an object of texts such as {"team": "search"}`},
		{Field: "limit", Value: "1.5", Allowed: "a whole number"},
		{Field: "aaa", Value: "unknown", Allowed: "one of base, own, limit"},
		{Field: "zzz", Value: "unknown", Allowed: "one of base, own, limit"},
	}, c.table().Read([]byte(`{"zzz":1,"limit":2,"limit":1.5,
		"own":{"b":{"part":{"share":"x"},"names":"c","texts":{"t":1,"t":"2"}},"a":{},"a":[1],"c":{"part":7,"texts":[]},"d":{"texts":{"t":1}}},
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
		`{"\n\u001b[31m\u202e":1}`, `{"` + long + `":1}`, `{"\"":1}`, `{"own":{"\n":{"\u0000":1}}}`, `{"own":{"a":{"texts":{"\n":1,"\n":2}}}}`, `{"own":{"a":{"names":["\n",1]}}}`, `{"own":{"` + long + `":1}}`,
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
		`{}`, `null`, `[]`, `{"base":{"wait":"1s","tries":1},"own":{"a":{"part":{"share":0.5}},"":null},"limit":2}`,
		`{"own":{"\ud800":{},"\udfff":{}}}`, `{"own":{"a":{"names":[],"texts":{}},"b":{"names":["x",""],"texts":{"y":"z"}}}}`,
		`{"base":{"tries":0,"wait":"0s"},"own":{"a":{"part":{"tries":2,"wait":"1m"}}}}`, `{"limit":1,"limit":1}`, `{"base":{"times":1e308}}`, `{"own":1e999}`, `{"":0}`,
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
		written, err := c.json()
		require.NoError(t, err)
		var back whole
		require.Empty(t, back.table().Read([]byte(written)))
		again, err := back.json()
		require.NoError(t, err)
		require.Equal(t, written, again)
		require.Equal(t, c.resolved(), back.resolved())
	})
}

// resolved returns c with all defaults filled in, and without what is empty.
func (c whole) resolved() whole {
	c.table().Resolve()
	all := c.Own
	c.Own = nil
	for name, o := range all {
		if o.Part != nil {
			part := *o.Part
			part.table().Resolve()
			o.Part = &part
		}
		if len(o.Names) == 0 {
			o.Names = nil
		}
		if len(o.Texts) == 0 {
			o.Texts = nil
		}
		if c.Own == nil {
			c.Own = make(map[string]own)
		}
		c.Own[name] = o
	}
	return c
}

func TestField_RuleNamesTheValueAsItIsMeant(t *testing.T) {
	c, never := new(part), func() string { return "another" }
	for _, want := range []struct {
		field fields.Field
		text  string
	}{
		{fields.Duration("x", new(time.Duration(fields.Off)), time.Minute, time.Hour), "off"},
		{fields.Duration("x", new(time.Duration(0)), time.Minute, time.Hour), "the default 1m0s"},
		{fields.Count("x", new(0), 1), "the default 1"},
		{fields.Count("x", new(1), 2), "1"},
		{fields.Count("x", new(0), 0), "0"},
		{fields.Bool("x", &c.On), "false"},
	} {
		assert.Equal(t, fields.Problems{{Field: "x", Value: want.text, Allowed: "another"}}, fields.Table{want.field.Rule(never)}.Check())
	}
}

func TestField_ResolveFillsInItsDefault(t *testing.T) {
	n := 0
	fields.Count("n", &n, 7).Resolve()
	assert.Equal(t, 7, n)
}

func TestTable_ReadTakesNullForAbsent(t *testing.T) {
	names := []string{"a"}
	assert.Empty(t, fields.Table{fields.Names("names", &names)}.Read([]byte(`{"names":null}`)))
	assert.Equal(t, []string{"a"}, names)
}
