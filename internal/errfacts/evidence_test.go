package errfacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFact_Unsent(t *testing.T) {
	t.Parallel()
	unsent := map[Class]bool{
		NameNotFound: true, Dial: true, NameFailed: true, TLS: true, BadRequestURL: true, RefusedStream: true,
		BadConn: true, NotExecutable: true, OpenBreaker: true,
	}
	for class := None; class <= Nonsense; class++ {
		assert.Equal(t, unsent[class], Fact{Class: class}.unsent(), "class %d", class)
	}
	assert.True(t, Fact{Class: HTTP, Code: 425}.unsent())
	assert.False(t, Fact{Class: HTTP, Code: 426}.unsent())
	assert.False(t, Fact{Class: Exit, Code: 425}.unsent())
	assert.True(t, OfStatus(425, Header{}).NotSent)
	assert.False(t, OfStatus(503, Header{}).NotSent)
}

type coded[C, T any] struct {
	says
	Code       C
	Type       T
	StatusCode int
}

type bare struct {
	says
	Reason, Status string
}

type statusFields struct {
	says
	HTTPStatusCode, HTTPCode int
}

type int32Code struct {
	says
	Code int32
}

type reasons struct {
	says
	Code    int
	Details []map[string]any
}

// panicsInError has a code and no text.
type panicsInError struct{ Code int64 }

func (panicsInError) Error() string { panic("Error") }

type panickyCode struct{ statusCode }

func (panickyCode) ErrorCode() textKind { panic("ErrorCode") }

type textKind string

func TestOf_ProvidersOwnCode(t *testing.T) {
	t.Parallel()
	coding := func(m Meaning) Fact { return Fact{Class: Coded, Code: int(m)} }
	for _, c := range []struct {
		err  error
		want Fact
	}{
		{coded[int8, string]{Type: "insufficient_quota", StatusCode: 429}, coding(QuotaExhausted)},
		{coded[string, string]{Code: "?", Type: "insufficient_quota", StatusCode: 429}, coding(QuotaExhausted)},
		{coded[any, string]{Code: 7, Type: "insufficient_quota", StatusCode: 429}, coding(QuotaExhausted)},
		{coded[any, any]{Code: nil, Type: name("insufficient_quota"), StatusCode: 429}, coding(QuotaExhausted)},
		{coded[string, string]{Code: "billing_hard_limit_reached", StatusCode: 400}, coding(QuotaExhausted)},
		{coded[string, string]{Code: "RequestTimeout", StatusCode: 400}, coding(TimedOut)},
		{coded[string, string]{Code: "rate_limited", StatusCode: 402}, coding(Limited)},
		{coded[string, string]{Code: "rate_limited", StatusCode: 403}, coding(Limited)},
		{coded[string, string]{Code: "rate_limited", StatusCode: 401}, Fact{Class: HTTP, Code: 401}},
		{coded[string, string]{Code: "rate_limited", StatusCode: 200}, coding(Limited)},
		{coded[string, string]{Code: "rate_limited"}, coding(Limited)},
		{coded[string, string]{Code: "?", Type: "overloaded_error"}, coding(Failed)},
		{coded[string, string]{Code: "NOT_FOUND"}, Fact{Class: GRPC, Code: 5}},
		{coded[string, string]{Code: "NOT_FOUND", StatusCode: 503}, Fact{Class: HTTP, Code: 503}},
		{coded[string, string]{Code: "?"}, Fact{}},
		{bare{Reason: "rateLimitExceeded"}, coding(Limited)},
		{bare{Status: "UNAVAILABLE"}, Fact{Class: GRPC, Code: 14}},
		{statusFields{HTTPStatusCode: 503}, Fact{Class: HTTP, Code: 503}},
		{statusFields{HTTPCode: 404}, Fact{Class: HTTP, Code: 404}},
		{field64{says{"ate limit"}, -32099}, limited},
		{field64{says{"ate limit"}, -32000}, limited},
		{field64{says{"ate limit"}, -32100}, Fact{Class: JSONRPC, Code: -32100}},
		{field64{says{"x" + strings.Repeat(" ", maxText) + "ate limit"}, -32000}, Fact{Class: JSONRPC, Code: -32000}},
		{connectError{says{"larger than max"}, 14}, Fact{Class: GRPC, Code: 14}},
		{panicsInError{-32000}, Fact{Class: JSONRPC, Code: -32000}},
		{field64{Code: 429}, Fact{Class: JSONRPC, Code: 429}},
		{field64{Code: 430}, Fact{}},
		{int32Code{Code: 429}, Fact{}},
		{throttle{code: "RequestTimeout"}, coding(TimedOut)},
		{errors.Join(statusCode{status: 400}, throttle{code: "SlowDown"}), coding(Limited)},
		{reasons{Code: 400, Details: []map[string]any{{"reason": 1}, {"reason": "API_KEY_INVALID"}}}, coding(Denied)},
		{reasons{Code: 400, Details: []map[string]any{{"reason": "?"}, {"reason": "API_KEY_INVALID"}}}, Fact{Class: HTTP, Code: 400}},
		{reasons{Code: 400}, Fact{Class: HTTP, Code: 400}},
		{struct {
			says
			StatusCode int
			Details    []any
		}{StatusCode: 429}, Fact{Class: HTTP, Code: 429}},
		{panickyCode{statusCode{status: 429}}, Fact{Class: HTTP, Code: 429}},
	} {
		assert.Equal(t, c.want, factsOf(c.err).Fact, "%T %+v", c.err, c.err)
	}
}

func TestOf_TextsOfSDKs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Facts{
		`received error while streaming: {"type":"invalid_request_error","code":"invalid_api_key"}`:   {Fact: Fact{Class: HTTP, Code: 401}},
		`received error while streaming: {"type":"invalid_request_error","code":null}`:                {Fact: Fact{Class: HTTP, Code: 400}},
		`received error while streaming: {"type":"requests","code":"rate_limit_exceeded"}`:            {Fact: limited},
		`received error while streaming: oops`:                                                        {Fact: failedNow},
		`POST "x": 200 OK {"type":"error","error":{"type":"billing_error"}}`:                          {Fact: quota},
		`POST "x": 200 OK {"type":"error","error":{"type":"overloaded_error"}}`:                       {Fact: failedNow},
		`x: received error event: map[error:map[message:no type:rate_limit_error] type:error]`:        {Fact: limited},
		`x: received error event: map[error:map[message:no type:authentication_error] type:error]`:    {Fact: Fact{Class: HTTP, Code: 401}},
		`x: received error event: map[error:map[message:no type:`:                                     {Fact: failedNow},
		`sending "x": failed to read body: unexpected EOF`:                                            {Fact: broken},
		`sending "x": failed to read body: context deadline exceeded`:                                 {Fact: late},
		`sending "x": failed to read body: read tcp: i/o timeout`:                                     {Fact: late},
		`sending "x": failed to read body: no (Client.Timeout or context cancellation while reading)`: {Fact: late},
		`request failed with status 429: {"retry_after":3}`:                                           {Fact: Fact{Class: HTTP, Code: 429}, Wait: 3 * time.Second},
		`request failed with status 403: {"reason":"rateLimitExceeded","retry_after":3}`:              {Fact: limited, Wait: 3 * time.Second},
		`request failed with status 404: {"reason":"rateLimitExceeded"}`:                              {Fact: Fact{Class: HTTP, Code: 404}},
		`unexpected status code: 429: You exceeded your current quota, please check your plan`:        {Fact: quota},
		`unexpected status code: 404: You exceeded your current quota`:                                {Fact: Fact{Class: HTTP, Code: 404}},
		`request failed with status 400: Bad Request: No valid session ID provided`:                   {Fact: noSession},
		`connection closed: calling "x": client is closing: sending "x": Unauthorized`:                {Fact: closedClient, NotSent: true},
		`sending "x": rejected by transport: Bad Gateway`:                                             {Fact: Fact{Class: HTTP, Code: 502}},
		`request failed with status 300`:                                                              {Fact: Fact{Class: HTTP, Code: 300}},
		`request failed with status 599`:                                                              {Fact: Fact{Class: HTTP, Code: 599}},
		`request failed with status 600`:                                                              {},
		`request failed with status 299`:                                                              {},
		`x: server sent GOAWAY and closed the connection`:                                             {Fact: Fact{Class: Stream}},
		`failed to decode response x: y`:                                                              {},
		`: failed to decode response: y`:                                                              {Fact: unagreedReply},
		`:: failed to decode response: y`:                                                             {Fact: unagreedReply},
		`404`:                                                                                         {},
		`40`:                                                                                          {},
		`: : `:                                                                                        {},
		`T"`:                                                                                          {},
		`sending "x": What Else`:                                                                      {},
		`sending "x" without end`:                                                                     {},
		`sending x: Unauthorized`:                                                                     {},
		`a note: and another: end`:                                                                    {},
		`closed for good: content`:                                                                    {},
		`status 40`:                                                                                   {},
		`{"type":"warning"}`:                                                                          {},
	} {
		assert.Equal(t, want, factsOf(errors.New(text)), text)
		assert.Equal(t, want, factsOf(fmt.Errorf("call: %w", says{text})), text)
		nodes, _ := Tree(nil, says{text})
		assert.Zero(t, Of(nodes, false), "texts are off: %s", text)
	}
}

func TestOf_SentinelIsExplainedAroundIt(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: %s", errors.New("invalid request"), "Session terminated")
	assert.Equal(t, noSession, factsOf(lost).Fact)
	assert.Equal(t, Fact{Class: JSONRPC, Code: -32600}, factsOf(fmt.Errorf("%w: %s", errors.New("invalid request"), "no")).Fact)
	typed := fmt.Errorf("session terminated: %w", field64{says{"no"}, -32600})
	assert.Equal(t, Fact{Class: JSONRPC, Code: -32600}, factsOf(typed).Fact, "a type says it itself")
}

func TestOf_JSONOfAnAnswer(t *testing.T) {
	t.Parallel()
	syntax := json.Unmarshal([]byte("oops"), new(int))
	assert.Equal(t, Fact{Class: JSON}, factsOf(syntax).Fact)
	assert.Equal(t, Fact{Class: JSON}, factsOf(fmt.Errorf("arguments: %w", syntax)).Fact)
	assert.Equal(t, unagreedReply, factsOf(json.Unmarshal([]byte("<html>"), new(int))).Fact)
	for _, text := range answerTexts {
		assert.Equal(t, unagreedReply, factsOf(fmt.Errorf("x: %s%w", text, syntax)).Fact, text)
		nodes, _ := Tree(nil, fmt.Errorf("x: %s%w", text, syntax))
		assert.Equal(t, Fact{Class: JSON}, Of(nodes, false).Fact, "texts are off: %s", text)
	}
	assert.Equal(t, Fact{Class: HTTP, Code: 404}, factsOf(fmt.Errorf("parse response: %w: %w", syntax, statusCode{status: 404})).Fact)
}

func TestOf_HeaderOfAnError(t *testing.T) {
	t.Parallel()
	limit := header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "30")
	type answer struct {
		says
		StatusCode int
		Header     http.Header
		RetryAfter time.Duration
	}
	for what, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"a 429":                           {answer{StatusCode: 429, Header: limit}, 30 * time.Second},
		"a 429 by pointer":                {&answer{StatusCode: 429, Header: limit}, 30 * time.Second},
		"a 503":                           {answer{StatusCode: 503, Header: limit}, 0},
		"a field comes first":             {answer{StatusCode: 429, Header: limit, RetryAfter: 2}, 2},
		"the first of two":                {errors.Join(answer{StatusCode: 429, Header: limit}, answer{Header: header("X-Ratelimit-Reset", "60")}), 30 * time.Second},
		"the second, if there is none":    {errors.Join(answer{StatusCode: 429}, answer{Header: limit}), 30 * time.Second},
		"no header":                       {answer{StatusCode: 429}, 0},
		"nothing is said of what remains": {answer{StatusCode: 429, Header: header("X-Ratelimit-Reset", "30")}, 30 * time.Second},
		"nor beside a 403":                {answer{StatusCode: 403, Header: header("X-Ratelimit-Reset", "30")}, 0},
		"connect's":                       {connectMeta{connectError{code: 8}, limit}, 30 * time.Second},
	} {
		assert.Equal(t, c.want, factsOf(c.err).Wait, what)
	}
}

type connectMeta struct {
	connectError
	meta http.Header
}

func (e connectMeta) Meta() http.Header { return e.meta }

// halfPanics answers some questions and panics at others.
type halfPanics struct {
	says
	Header http.Header
}

func (halfPanics) HTTPStatusCode() int          { panic("HTTPStatusCode") }
func (halfPanics) StatusCode() int              { return 425 }
func (halfPanics) Retryable() bool              { panic("Retryable") }
func (halfPanics) IsRetryable() bool            { return true }
func (halfPanics) GetRetryAfter() time.Duration { panic("GetRetryAfter") }

// safePanics says that it was not sent, and panics at all else.
type safePanics struct{ halfPanics }

func (safePanics) StatusCode() int   { panic("StatusCode") }
func (safePanics) SafeToRetry() bool { return true }

// waitPanics panics at one question and has a second answer to others.
type waitPanics struct {
	halfPanics
	wait time.Duration
}

func (waitPanics) Retryable() bool              { return false }
func (waitPanics) GetRetryAfter() time.Duration { return -1 }
func (e waitPanics) RetryAfter() time.Duration  { return e.wait }

func TestOf_PanicHidesNoOtherAnswer(t *testing.T) {
	t.Parallel()
	assert.Equal(t, Facts{Fact: Fact{Class: HTTP, Code: 425}, NotSent: true, Retry: -1, Wait: 1}, factsOf(waitPanics{wait: 1}))
	assert.Equal(t, Facts{Fact: Fact{Class: HTTP, Code: 425}, NotSent: true, Retry: -1, Wait: 1},
		factsOf(errors.Join(waitPanics{wait: 1}, waitPanics{wait: 2})), "the first wait")
	want := Facts{Fact: Fact{Class: HTTP, Code: 425}, NotSent: true, Retry: 1, Wait: 3 * time.Second}
	assert.Equal(t, want, factsOf(halfPanics{Header: header("Retry-After", "3")}))
	assert.Equal(t, Facts{NotSent: true, Retry: 1}, factsOf(safePanics{}))
}

func TestOf_NotSentOnEveryWay(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	label := field64{says{"rejected by transport"}, -32005}
	closing := errors.New("x: client is closing")
	dialing := connectError{says{"Error while dialing"}, 14}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"one":                                 {dial, true},
		"wrapped":                             {fmt.Errorf("x: %w", dial), true},
		"two":                                 {errors.Join(dial, fmt.Errorf("x: %w", dial)), true},
		"nil beside it":                       {join{nil, dial, nil}, true},
		"beside one that was sent":            {errors.Join(dial, io.EOF), false},
		"behind one that was sent":            {errors.Join(io.EOF, dial), false},
		"beside one that may not be repeated": {errors.Join(aside{}, dial), false},
		"beside a label":                      {fmt.Errorf("x: %w: %w", label, dial), true},
		"a label alone":                       {errors.Join(label), false},
		"above a join":                        {aside2{errors.Join(io.EOF, io.EOF)}, true},
		"a text":                              {errors.Join(closing, dial), true},
		"the text of a join":                  {fmt.Errorf("client is closing: %w: %w", io.EOF, dial), false},
		"an exact text":                       {errors.Join(says{"circuit open"}, dial), true},
		"a remark":                            {errors.Join(dialing, dial), true},
		"nothing below":                       {join{dial, wrapsNil{}}, false},
	} {
		assert.Equal(t, c.want, factsOf(c.err).NotSent, what)
	}
	nodes, _ := Tree(nil, errors.Join(closing, dialing))
	assert.False(t, Of(nodes, false).NotSent, "texts are off")
	nodes, _ = Tree(nil, errors.Join(dialing, dial))
	assert.False(t, Of(nodes, false).NotSent, "texts are off")
	assert.True(t, factsOf(dialing).NotSent)
	assert.True(t, Unsent(dial))
	assert.True(t, Unsent(closing))
	assert.False(t, Unsent(io.EOF))
	assert.True(t, EachLeaf([]error{errors.Join(io.EOF, io.EOF)}, func(node error) bool { return node == io.EOF }))
	assert.False(t, EachLeaf([]error{errors.Join(io.EOF, dial)}, func(node error) bool { return node == io.EOF }))
}

type aside2 struct{ err error }

func (aside2) Error() string     { return "safe" }
func (aside2) SafeToRetry() bool { return true }
func (e aside2) Unwrap() error   { return e.err }

type wrapsNil struct{ says }

func (wrapsNil) Unwrap() error { return nil }

func TestOf_LongBodyIsReadInPart(t *testing.T) {
	t.Parallel()
	type withBody struct {
		says
		StatusCode int
		Body       []byte
	}
	wait := `{"retry_after":3}`
	for _, c := range []struct {
		blanks int
		want   time.Duration
	}{{maxBody - len(wait), 3 * time.Second}, {maxBody - len(wait) + 1, 0}} {
		body := strings.Repeat(" ", c.blanks) + wait
		assert.Equal(t, c.want, factsOf(withBody{StatusCode: 429, Body: []byte(body)}).Wait)
		quoted := "request failed with status 429: "
		assert.Equal(t, c.want, factsOf(says{quoted + body[len(quoted):]}).Wait)
	}
}

func TestOf_LongTextIsReadInPart(t *testing.T) {
	t.Parallel()
	syntax := json.Unmarshal([]byte("oops"), new(int))
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		more  int
		found bool
	}{{0, true}, {1, false}} {
		text := func(s string) says { return says{strings.Repeat(" ", maxText-len(s)+c.more) + s} }
		assert.Equal(t, c.found, factsOf(field64{text("ate limit"), -32000}).Fact == limited)
		assert.Equal(t, c.found, factsOf(fmt.Errorf("%s%w", text("parse response: "), syntax)).Fact == unagreedReply)
		assert.Equal(t, c.found, factsOf(errors.Join(text("client is closing"), dial)).NotSent)
	}
}

type codeOf struct{ says }

func (codeOf) Code(int) Code                      { return 14 }
func (codeOf) GRPCStatus(int) *grpcStatus         { return &grpcStatus{14} }
func (codeOf) Meta(int) http.Header               { return header("Retry-After", "3") }
func (codeOf) ErrorCode(int) string               { return "rate_limited" }
func (codeOf) HTTPStatusCode() (status, more int) { return 503, 0 }

type manyCodes struct{ says }

func (manyCodes) Code() (Code, error)             { return 14, nil }
func (manyCodes) GRPCStatus() (*grpcStatus, bool) { return &grpcStatus{14}, true }
func (manyCodes) Meta() (http.Header, bool)       { return header("Retry-After", "3"), true }
func (manyCodes) ErrorCode() (string, bool)       { return "rate_limited", true }

type oddDetails struct{ grpcError }

func (oddDetails) GRPCStatus() *oddStatus { return &oddStatus{grpcStatus{8}} }

type oddStatus struct{ grpcStatus }

func (oddStatus) Details() []string { return []string{"x"} }

type dataLike struct {
	says
	Code int64
	Data json.RawMessage
}

type codedBody struct {
	says
	StatusCode int
	Code, Body string
}

func TestOf_WhatOnlyLooksLikeAnAnswer(t *testing.T) {
	t.Parallel()
	assert.Zero(t, factsOf(codeOf{}))
	assert.Zero(t, factsOf(manyCodes{}))
	assert.Equal(t, Facts{Fact: Fact{Class: GRPC, Code: 8}}, factsOf(oddDetails{}))
	assert.Equal(t, Facts{Fact: broken}, factsOf(says{`connection closed {"retry_after":3}`}), "no wait beside what is no answer")
	assert.Equal(t, Fact{Class: GRPC, Code: 8}, factsOf(fmt.Errorf("parse response: %w", connectError{code: 8})).Fact)
	assert.Equal(t, 3*time.Second, factsOf(dataLike{Code: 429, Data: json.RawMessage(`{"retryAfter":3}`)}).Wait)
	assert.Equal(t, Facts{Fact: limited, Wait: 3 * time.Second}, factsOf(codedBody{StatusCode: 429, Code: "rate_limited", Body: `{"retry_after":3}`}))
	assert.Equal(t, Fact{Class: JSON}, factsOf(json.Unmarshal([]byte("{}"), new(int))).Fact)
	assert.Zero(t, factsOf(dataLike{Code: -32602, Data: json.RawMessage(`{"retryAfter":3}`)}).Wait)
}

// MissingRequiredClientCapabilityError and UnsupportedProtocolVersionError are known by
// their names, as is an interrupt.
type (
	MissingRequiredClientCapabilityError struct{ says }
	UnsupportedProtocolVersionError      struct{ says }
	ToolInterruptError                   struct{ says }
	toolInterruptError                   struct{ says }
)

func TestOf_TypeNames(t *testing.T) {
	t.Parallel()
	for _, err := range []error{MissingRequiredClientCapabilityError{}, &UnsupportedProtocolVersionError{}} {
		assert.Equal(t, Unagreed, factsOf(err).Meaning(), "%T", err)
	}
	for _, err := range []error{ToolInterruptError{}, &toolInterruptError{}} {
		assert.Equal(t, Pending, factsOf(err).Meaning(), "%T", err)
	}
}
