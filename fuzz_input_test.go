package toolhealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/scenario"
)

// FuzzConfigJSON: whatever the text, a Config is either left as it was or one
// that goes through JSON and back unchanged; and what a registry refuses, it
// refuses with the names of the fields.
func FuzzConfigJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"breaker":null}`, `{"breaker":{"recovery_duration":"-1s"}}`, `{"tools":{"":{}}}`,
		`{"breaker":{"failure_threshold":2,"recovery_duration":"1m","max_open_duration":"5s"},"max_tools":-1}`,
		`{"tools":{"a":{"trip_score":1.5},"b":{"recovery_growth":1e300},"\ud800":{}},"registered_only":true}`,
		`{"breaker":{"recovery_duration":"9223372036s","probe_timeout":"2562047h47m16.854775807s"}}`,
		`{"breaker":{"failure_threshold":1e2}}`, `{"max_tools":16777217}`, `{"tools":{"a":null}}`, `{"tools":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := toolhealth.DefaultConfig()
		before.Tools = map[string]toolhealth.BreakerConfig{"kept": toolhealth.DefaultBreakerConfig()}
		c := before
		if err := json.Unmarshal(text, &c); err != nil {
			require.Equal(t, before, c, "changed in spite of %v", err)
			return
		}
		r, err := toolhealth.NewRegistryWithConfig(c)
		require.Equal(t, err == nil, c.Validate() == nil)
		if err != nil {
			require.Nil(t, r)
			for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
				var field *toolhealth.ConfigError
				require.ErrorAs(t, one, &field)
				require.NotEmpty(t, field.Field)
				require.NotEmpty(t, field.Allowed)
			}
		} else {
			for name := range c.Tools {
				require.True(t, r.AllowRequest(name))
			}
		}
		written, err := json.Marshal(c)
		require.NoError(t, err)
		var back toolhealth.Config
		require.NoError(t, json.Unmarshal(written, &back))
		if len(c.Tools) == 0 {
			c.Tools = nil
		}
		require.Equal(t, c, back)
	})
}

// FuzzSummaryJSON: a registry full of whatever names has a summary in JSON that
// comes back; and whatever text is read as a summary, it is refused and changes
// nothing, or can be written again and means the same.
func FuzzSummaryJSON(f *testing.F) {
	r := toolhealth.NewRegistry()
	for range 3 {
		r.RecordFailure("search", time.Second)
	}
	r.RecordSuccess("weather", math.MaxInt64)
	text, err := json.Marshal(r.HealthSummary())
	require.NoError(f, err)
	f.Add("\"</script>\x00\xff\u2028", text)
	f.Add(strings.Repeat("x", 1000), []byte(`{"tools":[{"tool":"a","reason":"isolated","retry_after_seconds":1e300}]}`))
	f.Add("", []byte(`{"tools":null,"at":"9999-12-31T23:59:59Z"}`))
	f.Add("\u202eevil", []byte(`{"tools":[{"reason":"none","failures_by_kind":{"timeout":18446744073709551615}}],"overall":"degraded"}`))
	f.Add("a", []byte(`{"tools":[{"reason":""}]}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		summaryOfHostileNames(t, name)
		summaryOfHostileText(t, text)
	})
}

func summaryOfHostileNames(t *testing.T, name string) {
	r := toolhealth.NewRegistry()
	tools := []string{name, name + "2", "\xff" + name, name + "plain"}
	for i, tool := range tools {
		for range i {
			r.RecordFailure(tool, time.Duration(i)*time.Second)
		}
		require.Equal(t, tool != "" && i < 3, r.AllowRequest(tool), "three failures trip, and the empty name is no name")
	}
	summary := r.HealthSummary()
	require.True(t, slices.IsSortedFunc(summary.Tools, func(a, b toolhealth.ToolHealth) int { return strings.Compare(a.Tool, b.Tool) }))
	text, err := json.Marshal(summary)
	require.NoError(t, err)
	require.True(t, utf8.Valid(text))
	var back toolhealth.Summary
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.Tools, r.Len())
	for i, h := range summary.Tools {
		require.Equal(t, strings.ToValidUTF8(h.Tool, "\ufffd") == h.Tool, back.Tools[i].Tool == h.Tool)
		h.Tool, h.Since = back.Tools[i].Tool, back.Tools[i].Since
		require.Equal(t, h, back.Tools[i])
	}
}

func summaryOfHostileText(t *testing.T, text []byte) {
	before := toolhealth.Summary{Untracked: 7, Tools: []toolhealth.ToolHealth{{Tool: "kept"}}}
	s := before
	if err := json.Unmarshal(text, &s); err != nil {
		require.Equal(t, before, s, "changed in spite of %v", err)
		return
	}
	first, err := json.Marshal(s)
	require.NoError(t, err)
	var again toolhealth.Summary
	require.NoError(t, json.Unmarshal(first, &again))
	second, err := json.Marshal(again)
	require.NoError(t, err)
	require.JSONEq(t, string(first), string(second))
}

// FuzzClassify builds an error out of the bytes, as hostile as Go allows, and
// asks for its meaning under every kind of context: there has to be an answer, a
// valid one, and a registry that is told has to stay readable.
func FuzzClassify(f *testing.F) {
	for kind := range numErrorKinds {
		f.Add([]byte{1, byte(kind), 3, 'x'})
		f.Add([]byte{2, 5, 2, byte(kind), 7, byte(kind), 200})
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		b := &errorBuilder{program: program}
		ctx := b.context()
		err := b.build(0)
		done := make(chan toolhealth.Verdict, 2)
		go func() {
			done <- toolhealth.Classify(ctx, err)
			done <- toolhealth.ErrorRules{NoText: true}.Classify(ctx, err)
		}()
		for range 2 {
			select {
			case v := <-done:
				switch {
				case err == nil:
					require.Zero(t, v)
				case !b.selfDescribed:
					requireValidVerdict(t, v)
				}
			case <-time.After(20 * time.Second):
				buf := make([]byte, 1<<16)
				t.Fatalf("no verdict in 20s\n%s", buf[:runtime.Stack(buf, true)])
			}
		}
		gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
		permit, refused := gate.Allow(context.Background(), "tool")
		require.NoError(t, refused)
		permit.Done(ctx, err)
		_, unreadable := json.Marshal(gate.Registry.HealthSummary())
		require.NoError(t, unreadable)
		h, _ := gate.Registry.Health("tool")
		require.Zero(t, h.InFlight)
		require.EqualValues(t, 1, h.TotalCalls()+h.Rejected+h.Throttled+h.Neutral)
	})
}

func requireValidVerdict(t *testing.T, v toolhealth.Verdict) {
	require.NotContains(t, v.Outcome.String(), "(", "no outcome")
	require.NotContains(t, v.Kind.String(), "(", "no kind")
	require.GreaterOrEqual(t, v.RetryAfter, time.Duration(0))
	require.NotEqual(t, toolhealth.OutcomeSuccess, v.Outcome, "an error is no success")
	require.NotEqual(t, toolhealth.KindNone, v.Kind)
	if v.Outcome == toolhealth.OutcomeThrottled {
		require.Positive(t, v.RetryAfter, "throttled for how long?")
	}
}

// errorBuilder makes an error of a program: each node takes one byte for its kind
// and more for its parameters.
type errorBuilder struct {
	program       []byte
	made          []error
	selfDescribed bool
}

func (b *errorBuilder) next() byte {
	if len(b.program) == 0 {
		return 0
	}
	c := b.program[0]
	b.program = b.program[1:]
	return c
}

// number returns a number that some part of the classification may look for.
func (b *errorBuilder) number() int {
	known := [...]int{0, -1, 1, 16, 17, 100, 126, 127, 200, 301, 400, 404, 408, 409, 425, 429, 499, 500, 501, 503, 599, 600, 1205, 65535, -32700, -32000, -32768, math.MaxInt, math.MinInt}
	c := int(b.next())
	if c < len(known) {
		return known[c]
	}
	return c * 3
}

func (b *errorBuilder) text() string {
	known := [...]string{
		"", "x", "request failed with status 5", "request failed with status 503", "request failed with status \xff\xff\xff", "EOF",
		"40001", "\xff\xfe\xfd\xfc\xfb", "08", "Throttling", "insufficient_quota", "LOADING", "ERR max number of clients",
		"-5", "120", "1e300", "NaN", "inf", "Mon, 02 Jan 2006 15:04:05 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Too Many Requests",
	}
	c := int(b.next())
	if c < len(known) {
		return known[c]
	}
	return strings.Repeat(string(rune(c)), c)
}

func (b *errorBuilder) context() context.Context {
	switch b.next() % 4 {
	case 0:
		return nil
	case 1:
		return context.Background()
	case 2:
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("cause"))
		return ctx
	}
	ctx, cancel := context.WithTimeout(context.Background(), -1)
	cancel()
	return ctx
}

const numErrorKinds = 30

func (b *errorBuilder) build(depth int) error {
	if depth > 40 || len(b.made) > 200 {
		return errors.New("deep enough")
	}
	err := b.node(depth)
	b.made = append(b.made, err)
	return err
}

func (b *errorBuilder) node(depth int) error {
	child := func() error { return b.build(depth + 1) }
	switch b.next() % numErrorKinds {
	case 0:
		return errors.New(b.text())
	case 1:
		return &textError{b.text(), child()} // not fmt.Errorf, which asks the child for its text
	case 2:
		return errors.Join(child(), child())
	case 3: // a circle
		c := &circularError{}
		c.next = child()
		if w, ok := c.next.(*circularError); ok {
			w.next = c
		} else {
			c.next = c
		}
		return c
	case 4: // a circle by way of Join
		c := &circularError{}
		c.next = errors.Join(child(), c)
		return c
	case 5: // very deep
		err := child()
		for range 20 * int(b.next()) {
			err = &wrapError{err}
		}
		return err
	case 6: // very wide
		many := make([]error, 20*int(b.next()))
		one := child()
		for i := range many {
			many[i] = one
		}
		return manyError(many)
	case 7:
		return explodingError{b.next()}
	case 8:
		var nilPointer *codedError
		return nilPointer
	case 9:
		var nilRefusal *toolhealth.Refusal
		return nilRefusal
	case 10:
		var nilPath *os.PathError
		return nilPath
	case 11:
		return sliceError{b.text()}
	case 12:
		return holderError{any([]int{1}), child()} // its type can be compared, its value cannot
	case 13:
		return &codedError{StatusCode: b.number(), Code: b.text(), RetryAfter: time.Duration(b.number())}
	case 14:
		return codedError{StatusCode: b.number(), Code: b.text(), RetryAfter: time.Duration(b.number())}
	case 15:
		return &numberedError{Code: b.number(), Response: nil}
	case 16:
		header := http.Header{}
		header.Set("Retry-After", b.text())
		header.Set("Retry-After-Ms", b.text())
		return &numberedError{Code: b.number(), Response: &http.Response{StatusCode: b.number(), Header: header}}
	case 17:
		return &methodError{status: b.number(), state: b.text(), code: b.text(), exit: b.number()}
	case 18:
		return statedError{b.number(), time.Duration(b.number())}
	case 19:
		return rpcError{rpcCode(b.number())}
	case 20:
		return sqlError(b.text())
	case 21:
		return exitError(b.number())
	case 22:
		return redisError(b.text())
	case 23:
		return awsError(b.text())
	case 24:
		return syscall.Errno(uint16(b.number()))
	case 25:
		return []error{io.EOF, context.Canceled, context.DeadlineExceeded, toolhealth.ErrRefused, toolhealth.ErrIsolated, os.ErrNotExist}[b.next()%6]
	case 26:
		return &toolhealth.Refusal{Tool: b.text(), Reason: toolhealth.StopReason(b.next()), RetryAfter: time.Duration(max(b.number(), 0))}
	case 27:
		b.selfDescribed = true
		return toolhealth.WithVerdict(child(), toolhealth.Verdict{
			Outcome: toolhealth.Outcome(b.next()), Kind: toolhealth.Kind(b.next()), RetryAfter: time.Duration(b.number()),
		})
	case 28:
		b.selfDescribed = true
		return verdictError{panics: b.next()%2 == 0, kind: toolhealth.Kind(b.next())}
	}
	if len(b.made) > 0 { // the same node twice
		return b.made[int(b.next())%len(b.made)]
	}
	return nil
}

type (
	circularError struct{ next error }
	wrapError     struct{ error }
	textError     struct {
		text  string
		cause error
	}
	manyError      []error
	explodingError struct{ when byte }
	sliceError     []string
	holderError    struct {
		held  any
		cause error
	}
	codedError struct {
		StatusCode int
		Code       string
		RetryAfter time.Duration
	}
	numberedError struct {
		Code     int
		Response *http.Response
	}
	methodError struct {
		status, exit int
		state, code  string
	}
	statedError struct {
		status int
		wait   time.Duration
	}
	rpcCode    uint32
	rpcError   struct{ code rpcCode }
	sqlError   string
	exitError  int
	redisError string
	awsError   string

	verdictError struct {
		panics bool
		kind   toolhealth.Kind
	}
)

func (e *circularError) Error() string { return e.next.Error() } // never ends
func (e *circularError) Unwrap() error { return e.next }
func (e *wrapError) Unwrap() error     { return e.error }
func (e *textError) Error() string     { return e.text }
func (e *textError) Unwrap() error     { return e.cause }
func (e manyError) Error() string      { return "many" }
func (e manyError) Unwrap() []error    { return e }
func (e sliceError) Error() string     { return "slice" }
func (e holderError) Error() string    { return "holder" }
func (e holderError) Unwrap() error    { return e.cause }
func (e codedError) Error() string     { return e.Code }
func (e *numberedError) Error() string { return "numbered" }

// explodingError panics in one of its methods.
func (e explodingError) explode(method byte) bool {
	if e.when%8 == method {
		panic("boom")
	}
	return e.when%2 == 0
}
func (e explodingError) Error() string          { e.explode(0); return "exploding" }
func (e explodingError) Unwrap() error          { e.explode(1); return nil }
func (e explodingError) Timeout() bool          { return e.explode(2) }
func (e explodingError) StatusCode() int        { e.explode(3); return 503 }
func (e explodingError) Is(error) bool          { return e.explode(4) }
func (e explodingError) As(any) bool            { return e.explode(5) }
func (e explodingError) RetryableError() bool   { return e.explode(6) }
func (e explodingError) GRPCStatus() rpcError   { e.explode(7); return rpcError{14} }
func (e *methodError) Error() string            { return e.state }
func (e *methodError) HTTPStatusCode() int      { return e.status }
func (e *methodError) SQLState() string         { return e.state }
func (e *methodError) ErrorCode() string        { return e.code }
func (e *methodError) ExitCode() int            { return e.exit }
func (e *methodError) SafeToRetry() bool        { return e.exit%2 == 0 }
func (e statedError) Error() string             { return "status" }
func (e statedError) StatusCode() int           { return e.status }
func (e statedError) RetryAfter() time.Duration { return e.wait }
func (e rpcError) Error() string                { return "rpc" }
func (e rpcError) Code() Code                   { return Code(e.code) }
func (e sqlError) Error() string                { return "sql" }
func (e sqlError) SQLState() string             { return string(e) }
func (e exitError) Error() string               { return "exit" }
func (e exitError) ExitCode() int               { return int(e) }
func (e redisError) Error() string              { return string(e) }
func (e redisError) RedisError()                {}
func (e awsError) Error() string                { return "aws" }
func (e awsError) ErrorCode() string            { return string(e) }
func (e verdictError) Error() string            { return "verdict" }
func (e verdictError) ToolVerdict() toolhealth.Verdict {
	if e.panics {
		panic("boom")
	}
	return toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: e.kind}
}

// Code has the name and the kind that a gRPC code is told by.
type Code uint32

// FuzzScenarioParse: a text is a scenario or an error that names a line, and what
// was understood says the same when it is written line by line again.
func FuzzScenarioParse(f *testing.F) {
	files, err := filepath.Glob("testdata/scenarios/*.scenario")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Parse("fuzz", text)
		if err != nil {
			require.Nil(t, s)
			require.Regexp(t, `^fuzz:[0-9]+: `, err.Error())
			return
		}
		var lines []string
		last := 0
		for _, step := range s.Steps {
			require.Greater(t, step.Line, last)
			last = step.Line
			lines = append(lines, step.Text)
		}
		require.LessOrEqual(t, last, strings.Count(string(text), "\n")+1)
		again, err := scenario.Parse("again", []byte(strings.Join(lines, "\n")))
		require.NoError(t, err)
		require.Len(t, again.Steps, len(s.Steps))
		for i, step := range again.Steps {
			step.Line = s.Steps[i].Line
			require.Equal(t, fmt.Sprintf("%#v", s.Steps[i]), fmt.Sprintf("%#v", step)) // as text: NaN is a number here
		}
	})
}
