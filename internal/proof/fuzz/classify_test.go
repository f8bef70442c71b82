package fuzz_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// FuzzClassify builds an error from the bytes, as hostile as Go allows, and classifies
// it under a context of any kind. Classify must return, its verdict must be valid, and
// the registry that records the verdict must stay readable.
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
	require.NotEqual(t, toolhealth.OutcomeSuccess, v.Outcome, "an error is not a success")
	require.NotEqual(t, toolhealth.KindNone, v.Kind)
	if v.Outcome == toolhealth.OutcomeThrottled {
		require.Positive(t, v.RetryAfter, "a throttle has a wait")
	}
}

// errorBuilder makes an error from a program: each node takes one byte for its kind
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

// number returns a number, often one that Classify looks for.
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
	case 3: // a cycle
		c := &circularError{}
		c.next = child()
		if w, ok := c.next.(*circularError); ok {
			w.next = c
		} else {
			c.next = c
		}
		return c
	case 4: // a cycle through Join
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
		return holderError{any([]int{1}), child()} // a comparable type with a value that is not
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

// Code has the name and the kind by which a gRPC code is recognized.
type Code uint32
