package errfacts

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// header returns a header, given as names and values in turn.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// The clock says 2000-01-01 00:00:00 UTC, which is 946684800 since 1970.
func TestOfStatus_WaitInHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what   string
			status int
			header http.Header
			want   time.Duration
		}{
			{"seconds", 503, header("Retry-After", "7"), 7 * time.Second},
			{"milliseconds, which are finer", 503, header("Retry-After-Ms", "1500", "Retry-After", "2"), 1500 * time.Millisecond},
			{"milliseconds that are none", 503, header("Retry-After-Ms", "soon", "Retry-After", "2"), 2 * time.Second},
			{"an empty one before another", 503, header("Retry-After", "", "Retry-After", "2"), 2 * time.Second},
			{"an unreadable one before another", 503, header("Retry-After", "soon", "Retry-After", "-1", "Retry-After", "2", "Retry-After", "3"), 2 * time.Second},
			{"a status that is not asked to wait", 404, header("Retry-After", "7"), 7 * time.Second},
			{"a date", 503, header("Retry-After", "Sat, 01 Jan 2000 00:00:37 GMT"), 37 * time.Second},
			{"a date by a clock that is ahead", 503, header("Date", "Sat, 01 Jan 2000 01:00:00 GMT", "Retry-After", "Sat, 01 Jan 2000 01:00:37 GMT"), 37 * time.Second},
			{"a date by a clock that is behind", 503, header("Date", "Fri, 31 Dec 1999 23:00:00 GMT", "Retry-After", "Fri, 31 Dec 1999 23:00:37 GMT"), 37 * time.Second},
			{"a Date that is none", 503, header("Date", "today", "Retry-After", "Sat, 01 Jan 2000 00:00:37 GMT"), 37 * time.Second},
			{"a date that is past", 503, header("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), 0},
			{"a duration with a sign", 503, header("Retry-After", "+5s"), 0},
			{"no value", 503, http.Header{"Retry-After": {}}, 0},
			{"nothing", 429, nil, 0},

			{"GitHub, X: seconds since 1970", 403, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "946684890"), 90 * time.Second},
			{"with a fraction", 429, header("X-Ratelimit-Reset", " 946684890.5 "), 90500 * time.Millisecond},
			{"half a second ago", 429, header("X-Ratelimit-Reset", "946684799.5"), 0},
			{"a nanosecond", 429, header("X-Ratelimit-Reset", "1ns"), 1},
			{"a nanosecond in milliseconds", 503, header("Retry-After-Ms", "0.000001"), 1},
			{"a year ahead", 429, header("X-Ratelimit-Reset", "978220800"), year},
			{"a second more", 429, header("X-Ratelimit-Reset", "978220801"), 0},
			{"less than nothing", 429, header("X-Ratelimit-Reset", "-1s"), 0},
			{"GitHub, of which something remains, beside another that is used up", 403, header("X-Ratelimit-Remaining", "1", "X-Other-Ratelimit-Remaining", "0", "X-Other-Ratelimit-Reset", "9"), 0},
			{"the same by a clock that is ahead", 403, header("Date", "Sat, 01 Jan 2000 01:00:00 GMT", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "946688490"), 90 * time.Second},
			{"something remains", 403, header("X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", "946684890"), 0},
			{"nothing is said of what remains", 403, header("X-Ratelimit-Reset", "946684890"), 0},
			{"a 429 needs not say it", 429, header("X-Ratelimit-Reset", "946684890"), 90 * time.Second},
			{"but must not deny it", 429, header("X-Ratelimit-Remaining", "5", "X-Ratelimit-Reset", "946684890"), 0},
			{"X's own name", 429, header("X-Rate-Limit-Reset", "946684890"), 90 * time.Second},
			{"no limit", 503, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "946684890"), 0},
			{"a Retry-After comes first", 429, header("Retry-After", "3", "X-Ratelimit-Reset", "946684890"), 3 * time.Second},
			{"OpenAI: the larger of two", 429, header("X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "6m0s", "X-Ratelimit-Reset-Tokens", "17ms"), 6 * time.Minute},
			{"OpenAI: the one that is used up", 429, header("X-Ratelimit-Remaining-Requests", "9", "X-Ratelimit-Reset-Requests", "6m0s", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "17ms"), 17 * time.Millisecond},
			{"Linear: milliseconds since 1970", 400, header("X-Ratelimit-Requests-Remaining", "0", "X-Ratelimit-Requests-Reset", "946684840000"), 40 * time.Second},
			{"Anthropic: RFC 3339", 429, header("Anthropic-Ratelimit-Requests-Remaining", "0", "Anthropic-Ratelimit-Requests-Reset", "2000-01-01T00:00:20Z"), 20 * time.Second},
			{"Discord: with a fraction", 429, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset-After", "1.25"), 1250 * time.Millisecond},
			{"Discord: something remains", 429, header("X-Ratelimit-Remaining", "3", "X-Ratelimit-Reset-After", "1.25"), 0},
			{"Azure", 429, header("X-Ms-Retry-After-Ms", "250"), 250 * time.Millisecond},
			{"IETF: seconds", 429, header("Ratelimit-Remaining", "0", "Ratelimit-Reset", "30"), 30 * time.Second},
			{"IETF: a policy", 429, header("Ratelimit", `"minute";r=0;t=30`), 30 * time.Second},
			{"IETF: a policy of which something remains", 429, header("Ratelimit", `"minute";r=1;t=30`), 0},
			{"IETF: an older policy", 429, header("Ratelimit", "limit=100, remaining=0, reset=20"), 20 * time.Second},
			{"a limit of something else", 429, header("X-Upload-Limit-Reset", "30", "Limit", "30"), 0},
			{"a reset that is past", 429, header("X-Ratelimit-Reset", "946684790"), 0},
			{"a reset in ten years is nonsense", 429, header("X-Ratelimit-Reset", "1262304000"), 0},
			{"a year", 429, header("X-Ratelimit-Reset", "31536000"), year},
			{"above a year", 429, header("X-Ratelimit-Reset", "31536001"), 0},
			{"milliseconds beyond all time", 429, header("X-Ratelimit-Reset", "1e15"), 0},
			{"too many digits", 429, header("X-Ratelimit-Reset", strings.Repeat("9", 400)), 0},
			{"no values", 429, http.Header{"X-Ratelimit-Reset": {}}, 0},
		} {
			assert.Equal(t, c.want, OfStatus(c.status, HeaderOf(c.header)).Wait, c.what)

			flat := map[string]string{}
			for name, values := range c.header {
				if len(values) != 1 {
					flat = nil
					break
				}
				flat[strings.ToLower(name)] = values[0]
			}
			if flat != nil {
				assert.Equal(t, c.want, OfStatus(c.status, Header{one: flat}).Wait, "one value a name: %s", c.what)
			}
		}
	})
}

func TestOf_WaitInField(t *testing.T) {
	t.Parallel()
	type details[T any] struct {
		says
		StatusCode int
		Details    []T
	}
	type delay struct {
		Seconds int64
		Nanos   int32
	}
	type retryInfo struct{ RetryDelay *delay }
	type withMs struct {
		says
		RetryAfterMs int
	}
	type withSeconds struct {
		says
		RetryAfterSeconds *int32
	}
	type withBody struct {
		says
		StatusCode int
		Body       []byte
	}
	for what, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"a map":                    {details[map[string]any]{StatusCode: 429, Details: []map[string]any{{"x": 1}, {"retryDelay": "13.5s"}}}, 13500 * time.Millisecond},
		"a map of texts":           {details[map[string]string]{StatusCode: 429, Details: []map[string]string{{"retryDelay": "2s"}}}, 2 * time.Second},
		"a map by other keys":      {details[map[int]string]{StatusCode: 429, Details: []map[int]string{{1: "2s"}}}, 0},
		"no text":                  {details[map[string]any]{StatusCode: 429, Details: []map[string]any{{"retryDelay": 3}}}, 0},
		"a message":                {details[any]{StatusCode: 429, Details: []any{nil, 7, &retryInfo{&delay{2, 500_000_000}}}}, 2500 * time.Millisecond},
		"a message without a wait": {details[any]{StatusCode: 429, Details: []any{&retryInfo{}, &delay{1, 1}}}, 0},
		"milliseconds":             {withMs{RetryAfterMs: 1500}, 1500 * time.Millisecond},
		"seconds":                  {withSeconds{RetryAfterSeconds: new(int32(9))}, 9 * time.Second},
		"a message of other types": {details[any]{StatusCode: 429, Details: []any{&struct {
			RetryDelay struct{ Seconds, Nanos string }
		}{}, &struct{ RetryDelay struct{ Seconds int64 } }{}, &retryInfo{&delay{2, 0}}}}, 2 * time.Second},
		"a negative one before another": {details[any]{StatusCode: 429, Details: []any{&retryInfo{&delay{-2, 0}}, &retryInfo{&delay{2, 0}}}}, 2 * time.Second},
		"a nanosecond":                  {details[any]{StatusCode: 429, Details: []any{&retryInfo{&delay{0, 1}}}}, 1},
		"no list": {struct {
			says
			Details string
		}{}, 0},
		"no seconds":          {withSeconds{}, 0},
		"the largest number":  {waitField[int64]{RetryAfter: math.MaxInt64}, 0},
		"a body":              {withBody{StatusCode: 429, Body: []byte(`{"error":{"retry_after": 4.5}}`)}, 4500 * time.Millisecond},
		"a body of a failure": {withBody{StatusCode: 503, Body: []byte(`{"retryAfterMs":250}`)}, 250 * time.Millisecond},
		"a body of a status that is not asked to wait": {withBody{StatusCode: 404, Body: []byte(`{"retryAfterMs":250}`)}, 0},
		"no details of gRPC":                           {grpcDetails{code: 8}, 0},
		"details of gRPC":                              {grpcDetails{code: 8, list: []any{&retryInfo{&delay{21, 0}}}}, 21 * time.Second},
		"of another code":                              {grpcDetails{code: 5, list: []any{&retryInfo{&delay{21, 0}}}}, 0},
		"a header and more":                            {errors.Join(asideFields{Header: header("X", "1")}, asideFields{Header: header("Retry-After", "2")}), 2 * time.Second},
	} {
		assert.Equal(t, c.want, factsOf(c.err).Wait, what)
	}
}

type grpcDetails struct {
	says
	code Code
	list []any
}

func (e grpcDetails) GRPCStatus() *detailed { return &detailed{grpcStatus{e.code}, e.list} }

type detailed struct {
	grpcStatus
	list []any
}

func (s *detailed) Details() []any { return s.list }

func TestOfJSON_Wait(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"":                                      0,
		`{"retryAfterSeconds":12}`:              12 * time.Second,
		`{"retryAfterSeconds" : "12" }`:         12 * time.Second,
		`x {"a":{"retry_after":1.5}} y`:         1500 * time.Millisecond,
		`{"retryDelay":"21s"}`:                  21 * time.Second,
		`{"retryDelay":"soon","retryAfter":3}`:  3 * time.Second,
		`{"retryAfter":0,"x":{"retryAfter":3}}`: 3 * time.Second,
		`{"retry_after_ms":250}`:                250 * time.Millisecond,
		`{"retryAfter":-3}`:                     0,
		`{"retryAfter":{"s":3}}`:                0,
		`{"retryAfter":`:                        0,
		`{"retryAfter":3`:                       0, // cut off: it may have been 30
		`{"retryAfter":"3`:                      0,
		`{"retryAfter" 3}`:                      0,
		`{"x":"retryAfter"}`:                    0,
		`{"retryAfter":,"retry_after":2}`:       2 * time.Second,
		`{"retry_after_ms":0.000001}`:           1,
		`{"retryDelay":"1.5"}`:                  1500 * time.Millisecond,
		`{"retryAfterMs":"5s"}`:                 5 * time.Second,
	} {
		assert.Equal(t, want, ofJSON(text), text)
	}
}

func TestOf_CodeInBody(t *testing.T) {
	t.Parallel()
	type withBody struct {
		says
		StatusCode int
		Body       string
	}
	for body, want := range map[string]Fact{
		"":          {Class: HTTP, Code: 403},
		"Forbidden": {Class: HTTP, Code: 403},
		`{"error":{"code":403,"status":"PERMISSION_DENIED","errors":[{"reason":"rateLimitExceeded"}]}}`: limited,
		`{"error":"insufficient_quota"}`:                quota,
		`{"code":"x","inner":{"code":"quotaExceeded"}}`: quota,
	} {
		assert.Equal(t, want, factsOf(withBody{StatusCode: 403, Body: body}).Fact, body)
		assert.Equal(t, Fact{Class: HTTP, Code: 404}, factsOf(withBody{StatusCode: 404, Body: body}).Fact, body)
	}
	assert.Equal(t, limited, factsOf(rawJSON{403, `{"error":{"type":"rate_limit_error"}}`}).Fact)
}

type rawJSON struct {
	StatusCode int
	raw        string
}

func (rawJSON) Error() string     { return "raw" }
func (e rawJSON) RawJSON() string { return e.raw }

func TestRemarks_EachIsFoundBesideItsCode(t *testing.T) {
	t.Parallel()
	type rpc struct {
		says
		Code int64
	}
	for _, r := range remarks {
		var err error = rpc{says{"x " + r.text}, -32000}
		other := error(rpc{says{"x " + r.text}, -32602})
		if r.fact.Class == GRPC {
			err = connectError{says{"x " + r.text}, Code(r.fact.Code)}
			other = connectError{says{"x " + r.text}, 3}
		}
		assert.Equal(t, r.says, factsOf(err).Fact, r.text)
		assert.NotEqual(t, r.says, factsOf(other).Fact, r.text)
		nodes, _ := Tree(nil, err)
		assert.NotEqual(t, r.says, Of(nodes, false).Fact, "texts are off: %s", r.text)
	}
}

// FuzzWaits holds every way to state a wait against what must be true of all.
func FuzzWaits(f *testing.F) {
	for _, s := range []string{"7", "0.5", "-1", "6m0s", "946684890", "946684840000", "2000-01-01T00:00:20Z",
		"Sat, 01 Jan 2000 00:00:37 GMT", "Saturday, 01-Jan-00 00:01:00 GMT", "Sat Jan  1 01:00:00 2000",
		`"a";r=0;t=30`, "limit=1, remaining=0, reset=9", "", ".", "1.2.3", "9999999999999999999999"} {
		f.Add("X-Ratelimit-Reset", s, "0", "", 429)
		f.Add("Retry-After", s, "", "Sat, 01 Jan 2000 00:00:00 GMT", 503)
		f.Add("ratelimit", s, "1", "nonsense", 403)
	}
	f.Fuzz(func(t *testing.T, name, value, left, date string, status int) {
		h := map[string][]string{
			name: {value}, "Retry-After": {value, left}, "Retry-After-Ms": {left}, "X-Ratelimit-Remaining": {left},
			"X-Ratelimit-Reset": {value}, "Ratelimit": {value}, "Date": {date},
		}
		one := map[string]string{}
		for k, v := range h {
			one[strings.ToLower(k)] = v[0]
		}
		for _, header := range []Header{HeaderOf(h), HeaderOf(map[string][]string{name: {value}, "Date": {date}}), {one: one}} {
			facts := OfStatus(status, header)
			if facts.Wait < 0 {
				t.Fatalf("a wait of %v", facts.Wait)
			}
		}
		if d := ofNumber(value, time.Second, time.Now); d < 0 || d > year {
			t.Fatalf("the number %q is a wait of %v", value, d)
		}
		if d := ofJSON(`{"retryAfter":` + value + `,"retryDelay":"` + left + `"}`); d < 0 {
			t.Fatalf("JSON with %q: %v", value, d)
		}
		// What remains decides, whatever else is there.
		used := HeaderOf(map[string][]string{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Reset": {value}})
		if d := OfStatus(429, used).Wait; d != 0 {
			t.Fatalf("one call remains, and a wait of %v", d)
		}
	})
}
