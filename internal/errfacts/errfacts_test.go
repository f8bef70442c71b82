package errfacts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func factsOf(err error) Facts {
	nodes, _ := Tree(nil, err)
	return Of(nodes, true)
}

// Error types that answer in one way each.

type says struct{ text string }

func (e says) Error() string { return e.text }

type httpStatus struct {
	says
	status int
}

func (e httpStatus) HTTPStatusCode() int { return e.status }

type httpCode struct {
	says
	status int
}

func (e httpCode) HTTPCode() int { return e.status }

type statusCode struct {
	says
	status int
}

func (e statusCode) StatusCode() int { return e.status }

type throttle struct {
	says
	code string
}

func (e throttle) ErrorCode() string { return e.code }

type sqlState struct {
	says
	state string
}

func (e sqlState) SQLState() string { return e.state }

// Code has the name that gRPC and connect give their numbers.
type Code uint32

type connectError struct {
	says
	code Code
}

func (e connectError) Code() Code { return e.code }

type grpcStatus struct{ code Code }

func (s *grpcStatus) Code() Code { return s.code }

type grpcError struct {
	says
	status *grpcStatus
}

func (e grpcError) GRPCStatus() *grpcStatus { return e.status }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

type exitCode struct {
	says
	code int
}

func (e exitCode) ExitCode() int { return e.code }

type streamError struct {
	says
	code uint32
	not  bool
}

func (e streamError) As(target any) bool {
	s, ok := target.(*struct {
		StreamID uint32
		Code     uint32
		Cause    error
	})
	if ok {
		s.Code = e.code
	}
	return ok && !e.not
}

type flags struct {
	says
	timeout, connection, canceled bool
}

func (e flags) Timeout() bool         { return e.timeout }
func (e flags) ConnectionError() bool { return e.connection }
func (e flags) CanceledError() bool   { return e.canceled }

type is struct {
	says
	target error
}

func (e is) Is(target error) bool { return target == e.target }

type fields struct {
	says
	Code     int
	Number   uint16
	Response *http.Response
}

type field64 struct {
	says
	Code int64
}

type fieldStatus struct {
	says
	StatusCode int16
	Code       any
}

type name string

type named struct {
	says
	StatusCode int
	code       name
}

func (e named) ErrorCode() name { return e.code }

// URLElicitationRequiredError is known by its name.
type URLElicitationRequiredError struct{ says }

type flat struct {
	says
	ResponseHeaders map[string]string
}

type unexported struct {
	says
	statusCode int
}

// What looks like one of the known ways to answer and is none.

type lateStatus struct {
	statusCode
	timeout bool
}

func (e lateStatus) Timeout() bool { return e.timeout }

type plainCode struct{ says }

func (plainCode) Code() uint32 { return 14 }

type plainCodeStatus struct{ says }

func (plainCodeStatus) GRPCStatus() *plainCode { return &plainCode{} }

type (
	intKind    int
	uint16Kind uint16
	textual    string
)

func (intKind) Error() string     { return "?" }
func (uint16Kind) Error() string  { return "?" }
func (e textual) Error() string   { return string(e) }
func (e textual) StatusCode() int { return 429 }

type lender struct {
	Response *http.Response
	Second   int // where StatusCode is in a Response
}

type borrower struct {
	lender
	says
}

type fieldNames struct {
	says
	HTTPStatusCode int
	Code           string
}

type kubeStatus struct {
	says
	ErrStatus struct{ Code int32 }
}

func TestOf_NodeTellsItsFact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Fact
	}{
		{nil, Fact{}},
		{says{"?"}, Fact{}},
		{unexported{statusCode: 503}, Fact{}},

		{syscall.ENFILE, Fact{Class: HostExhausted}},
		{syscall.ECONNREFUSED, Fact{Class: Dial}},
		{syscall.ECONNABORTED, Fact{Class: Broken}},
		{syscall.ENETUNREACH, Fact{Class: Broken}},
		{syscall.ENOENT, Fact{Class: NotExist}},
		{syscall.EEXIST, Fact{Class: Exist}},
		{syscall.EPERM, Fact{Class: Permission}},
		{syscall.ETIMEDOUT, Fact{Class: Timeout}},
		{syscall.EDOM, Fact{}},
		{wsaAborted, Fact{Class: Broken}},
		{wsaReset, Fact{Class: Broken}},
		{wsaRefused, Fact{Class: Dial}},
		{wsaTimedOut, Fact{Class: Timeout}},

		{context.DeadlineExceeded, Fact{Class: Timeout}},
		{os.ErrDeadlineExceeded, Fact{Class: Timeout}},
		{context.Canceled, Fact{Class: Canceled}},
		{io.EOF, Fact{Class: Broken}},
		{fs.ErrClosed, Fact{Class: Broken}},
		{fs.ErrNotExist, Fact{Class: NotExist}},
		{fs.ErrExist, Fact{Class: Exist}},
		{fs.ErrPermission, Fact{Class: Permission}},
		{net.ErrClosed, Fact{Class: Broken}},
		{is{target: io.EOF}, Fact{Class: Broken}},
		{is{target: context.DeadlineExceeded}, Fact{Class: Timeout}},
		{is{target: context.Canceled}, Fact{Class: Canceled}},
		{is{target: os.ErrDeadlineExceeded}, Fact{Class: Timeout}},
		{is{target: io.ErrUnexpectedEOF}, Fact{Class: Broken}},
		{is{target: fs.ErrPermission}, Fact{Class: Permission}},
		{is{target: fs.ErrNotExist}, Fact{Class: NotExist}},
		{is{target: fs.ErrExist}, Fact{Class: Exist}},
		{is{}, Fact{}},

		{&fs.PathError{Op: "fork/exec", Err: syscall.EAGAIN}, Fact{Class: HostExhausted}},
		{&fs.PathError{Op: "fork/exec", Err: syscall.ENOENT}, Fact{Class: NotExecutable}},
		{&fs.PathError{Op: "open", Err: syscall.ENOENT}, Fact{Class: NotExist}},
		{&json.SyntaxError{}, Fact{Class: JSON}},
		{&net.OpError{Op: "dial", Err: io.EOF}, Fact{Class: Dial}},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, Fact{Class: Dial, Code: 1}},
		{&net.OpError{Op: "read", Err: says{}}, Fact{}},
		{&net.DNSError{IsNotFound: true}, Fact{Class: NameNotFound}},
		{&net.DNSError{}, Fact{Class: NameFailed}},
		{&net.DNSError{IsTimeout: true}, Fact{Class: NameFailed, Code: 1}},
		{&http.MaxBytesError{}, Fact{Class: Nonsense}},
		{&exec.Error{Name: "x", Err: says{}}, Fact{Class: NotExecutable}},
		{x509.UnknownAuthorityError{}, Fact{Class: TLS}},
		{&tls.CertificateVerificationError{Err: says{}}, Fact{Class: TLS}},
		{tls.AlertError(40), Fact{Class: TLSAlert}},
		{URLElicitationRequiredError{}, Fact{Class: JSONRPC, Code: -32042}},
		{named{code: "rate_limited", StatusCode: 429}, Fact{Class: Coded, Code: int(Limited)}},
		{named{code: "rate_limited", StatusCode: 428}, Fact{Class: HTTP, Code: 428}},

		{httpStatus{status: 503}, Fact{Class: HTTP, Code: 503}},
		{httpStatus{status: 299}, Fact{}},
		{httpCode{status: 300}, Fact{Class: HTTP, Code: 300}},
		{httpCode{status: -1}, Fact{}},
		{statusCode{status: 599}, Fact{Class: HTTP, Code: 599}},
		{statusCode{status: 600}, Fact{}},
		{throttle{code: "SlowDown"}, Fact{Class: Coded, Code: int(Limited)}},
		{throttle{code: "NoSuchBucket"}, Fact{}},
		{sqlState{state: "40001"}, Fact{Class: SQLState, Name: "40001"}},
		{sqlState{state: "4"}, Fact{}},
		{connectError{code: 14}, Fact{Class: GRPC, Code: 14}},
		{connectError{code: 1}, Fact{Class: GRPC, Code: 1}},
		{connectError{code: 16}, Fact{Class: GRPC, Code: 16}},
		{connectError{code: 0}, Fact{}},
		{connectError{code: 17}, Fact{}},
		{grpcError{status: &grpcStatus{5}}, Fact{Class: GRPC, Code: 5}},
		{grpcError{}, Fact{}},
		{plainCode{}, Fact{}},
		{plainCodeStatus{}, Fact{}},
		{redisError("LOADING data"), Fact{Class: Redis, Name: "LOADING"}},
		{redisError("ERR max number of clients reached"), Fact{Class: Redis, Name: "MAXCLIENTS"}},
		{redisError("redis: nil"), Fact{Class: NoRows}},
		{exitCode{code: -1}, Fact{Class: Exit, Code: -1}},
		{streamError{code: 7}, Fact{Class: RefusedStream}},
		{streamError{code: 8}, Fact{Class: Stream}},
		{streamError{code: 7, not: true}, Fact{}},
		{flags{timeout: true, connection: true}, Fact{Class: Timeout}},
		{flags{connection: true, canceled: true}, Fact{Class: Broken}},
		{flags{canceled: true}, Fact{Class: Canceled}},
		{flags{}, Fact{}},

		{fields{Code: 404}, Fact{Class: HTTP, Code: 404}},
		{fields{Code: -32601}, Fact{Class: JSONRPC, Code: -32601}},
		{fields{Code: 3}, Fact{}},
		{fields{Number: 999}, Fact{}},
		{fields{Number: 1000}, Fact{Class: MySQL, Code: 1000}},
		{fields{Number: 1205}, Fact{Class: MySQL, Code: 1205}},
		{&fields{Response: &http.Response{StatusCode: 410}}, Fact{Class: HTTP, Code: 410}},
		{(*fields)(nil), Fact{}},
		{field64{Code: -32800}, Fact{Class: JSONRPC, Code: -32800}},
		{field64{Code: -32801}, Fact{}},
		{field64{Code: -32000}, Fact{Class: JSONRPC, Code: -32000}},
		{field64{Code: -31999}, Fact{}},
		{field64{Code: 32600}, Fact{Class: JSONRPC, Code: 32600}},
		{field64{Code: 404}, Fact{}}, // only an int is taken for a status
		{fieldStatus{StatusCode: 429, Code: "insufficient_quota"}, Fact{Class: Coded, Code: int(QuotaExhausted)}},
		{fieldStatus{StatusCode: 429, Code: 5}, Fact{Class: HTTP, Code: 429}},
		{fieldStatus{StatusCode: 429}, Fact{Class: HTTP, Code: 429}},
		{fieldStatus{StatusCode: 503, Code: "unheard of"}, Fact{Class: HTTP, Code: 503}},
		{fieldStatus{StatusCode: 404, Code: "insufficient_quota"}, Fact{Class: HTTP, Code: 404}},
		{fieldNames{HTTPStatusCode: 429, Code: "x_spend_limit_reached"}, Fact{Class: Coded, Code: int(QuotaExhausted)}},
		{kubeStatus{ErrStatus: struct{ Code int32 }{409}}, Fact{Class: HTTP, Code: 409}},
		{lateStatus{statusCode{status: 504}, true}, Fact{Class: HTTP, Code: 504}}, // the first that knows
		{intKind(503), Fact{}},
		{intKind(-32601), Fact{}},
		{uint16Kind(1205), Fact{}},
		{textual("quota"), Fact{Class: HTTP, Code: 429}},
		{borrower{lender: lender{&http.Response{StatusCode: 410}, 503}}, Fact{Class: HTTP, Code: 410}},
		{borrower{}, Fact{}},

		{errors.New("request failed with status 502: x"), Fact{Class: HTTP, Code: 502}},
		{errors.New("request failed with status 502"), Fact{Class: HTTP, Code: 502}},
		{errors.New("request failed with status 200"), Fact{}},
		{errors.New("request failed with status 200: GOAWAY"), Fact{Class: Stream}},
		{errors.New("request failed with status 200: x: request failed with status 404"), Fact{Class: HTTP, Code: 404}},
		{errors.New("GOAWAY: request failed with status 5"), Fact{Class: Stream}},
		{errors.New(strings.Repeat(" ", 1024-17) + "connection closed"), Fact{Class: Broken}},
		{errors.New(strings.Repeat(" ", 1024-16) + "connection closed"), Fact{}}, // only the beginning is searched
		{errors.New("request failed with status 50"), Fact{}},
		{errors.New("request failed with status +50"), Fact{}},
	} {
		want := Facts{Fact: c.want, NotSent: c.want.unsent()}
		assert.Equal(t, want, factsOf(c.err), "%T %+v", c.err, c.err)
		assert.Equal(t, want, factsOf(c.err), "%T %+v, again", c.err, c.err)
	}
}

func TestOf_FindsEveryListedText(t *testing.T) {
	t.Parallel()
	for text, want := range exactTexts {
		assert.LessOrEqual(t, len(text), maxExact, text)
		assert.Equal(t, want, factsOf(errors.New(text)).Fact, text)
		assert.Equal(t, want, factsOf(says{text}).Fact, "of another type: %s", text)
		assert.Zero(t, factsOf(errors.New(text+strings.Repeat("!", maxExact))), "not the whole text: %s", text)
	}
	for _, list := range [][]told{anywhere[:], withT[:], withColon[:], withQuote[:]} {
		for _, entry := range list {
			assert.Equal(t, entry.fact, factsOf(says{`"x": ` + entry.text + "y"}).Fact, entry.text)
			nodes, _ := Tree(nil, says{entry.text})
			assert.Zero(t, Of(nodes, false), "texts are off: %s", entry.text)
		}
	}
	for _, entry := range anywhere {
		found := slices.ContainsFunc(anchors[:], func(anchor string) bool { return strings.Contains(entry.text, anchor) })
		assert.True(t, found, "no anchor is in it: %s", entry.text)
	}
	for _, entry := range withT {
		assert.Contains(t, entry.text, "T")
	}
	for _, entry := range beforeColon {
		assert.Equal(t, entry.fact, factsOf(says{"x: " + entry.text + ": y"}).Fact, entry.text)
		assert.Zero(t, factsOf(says{"x: " + entry.text + " y"}), entry.text)
	}
	for name, status := range statusNames {
		assert.Equal(t, Fact{Class: HTTP, Code: status}, factsOf(says{`x: sending "y": ` + name}).Fact, name)
	}
}

func TestOf_KnowsWithoutTheirTexts(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]Class{
		net.ErrClosed: Broken, redisError("redis: nil"): NoRows, io.EOF: Broken, context.Canceled: Canceled,
		context.DeadlineExceeded: Timeout, os.ErrDeadlineExceeded: Timeout,
	} {
		assert.Equal(t, Fact{Class: want}, Of([]error{err}, false).Fact, "%v", err)
	}
}

func TestOf_AsksTheFirstNodesOnlyForTexts(t *testing.T) {
	t.Parallel()
	asked := 0
	nodes := make([]error, 100)
	for i := range nodes {
		nodes[i] = counting{&asked}
	}
	Of(nodes, true)
	assert.Equal(t, maxTexts, asked)
}

type counting struct{ asked *int }

func (c counting) Error() string { *c.asked++; return "?" }

func TestOf_TextTellsWhatTheTransportHid(t *testing.T) {
	t.Parallel()
	type rpc struct {
		says
		Code int64
	}
	assert.Equal(t, Fact{Class: HTTP, Code: 429}, factsOf(rpc{says{"rejected: Too Many Requests"}, -32005}).Fact)
	assert.Equal(t, Fact{Class: Broken}, factsOf(rpc{says{"rejected: connection closed"}, -32005}).Fact)
	assert.Equal(t, Fact{Class: JSONRPC, Code: -32005}, factsOf(rpc{says{"rejected: ?"}, -32005}).Fact)
	assert.Equal(t, limited, factsOf(rpc{says{"Too Many Requests"}, -32004}).Fact)
	assert.Equal(t, Fact{Class: JSONRPC, Code: -32602}, factsOf(rpc{says{"Too Many Requests"}, -32602}).Fact)
}

func TestOf_LowestClassCounts(t *testing.T) {
	t.Parallel()
	assert.Equal(t, HTTP, factsOf(errors.Join(io.EOF, statusCode{status: 404}, context.Canceled)).Class)
	assert.Equal(t, NameNotFound, factsOf(&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}).Class)
	assert.Equal(t, 404, factsOf(errors.Join(statusCode{status: 404}, statusCode{status: 503})).Code, "of equals the outer one")
}

type aside struct {
	says
	retry, safe bool
	wait        time.Duration
}

func (e aside) Retryable() bool              { return e.retry }
func (e aside) SafeToRetry() bool            { return e.safe }
func (e aside) GetRetryAfter() time.Duration { return e.wait }

type asideMethods struct{ says }

func (asideMethods) RetryableError() bool      { return true }
func (asideMethods) RetryAfter() time.Duration { return time.Second }

type asideFields struct {
	says
	RetryAfter *time.Duration
	Header     http.Header
}

func (asideFields) IsRetryable() bool { return false }

type waitField[T any] struct {
	says
	RetryAfter T
}

type kube struct {
	says
	ErrStatus struct {
		Details *struct{ RetryAfterSeconds int32 }
	}
}

func TestOf_ReadsWhatIsSaidBesideTheFact(t *testing.T) {
	t.Parallel()
	assert.Equal(t, Facts{Retry: 1}, factsOf(aside{retry: true}))
	assert.Equal(t, Facts{Retry: -1, NotSent: true, Wait: 5}, factsOf(aside{safe: true, wait: 5}))
	assert.Equal(t, Facts{Retry: -1}, factsOf(aside{wait: -5}))
	assert.Equal(t, Facts{Retry: -1, Wait: time.Second},
		factsOf(errors.Join(aside{safe: true, wait: -5}, asideMethods{}, aside{retry: true, wait: 9})), "only one of the leaves is safe")
	assert.Equal(t, Facts{Retry: -1, NotSent: true}, factsOf(errors.Join(aside{safe: true}, fmt.Errorf("%w", aside{safe: true}))))
	assert.Equal(t, Facts{Retry: -1, Wait: 1}, factsOf(errors.Join(aside{wait: 1}, aside{wait: 9})), "the first one")
	assert.Equal(t, Facts{Retry: 1, Wait: time.Second}, factsOf(asideMethods{}))
	assert.Equal(t, Facts{Wait: 7}, factsOf(waitField[time.Duration]{RetryAfter: 7}))
	assert.Equal(t, Facts{Wait: 7 * time.Second}, factsOf(waitField[int64]{RetryAfter: 7}), "as in the header")
	assert.Zero(t, factsOf(waitField[string]{RetryAfter: "7"}))
	assert.Equal(t, Facts{Retry: -1}, factsOf(asideFields{}))
	assert.Equal(t, Facts{Retry: -1, Wait: 7}, factsOf(asideFields{RetryAfter: new(time.Duration(7))}))
	assert.Equal(t, Facts{Retry: -1, Wait: 3 * time.Second}, factsOf(asideFields{Header: http.Header{"Retry-After": {"3"}}}))
	assert.Equal(t, Facts{Wait: 6 * time.Second}, factsOf(flat{ResponseHeaders: map[string]string{"retry-after": "6"}}))
	k := kube{}
	assert.Zero(t, factsOf(k))
	k.ErrStatus.Details = &struct{ RetryAfterSeconds int32 }{4}
	assert.Equal(t, Facts{Wait: 4 * time.Second}, factsOf(k))
}

type join []error

func (join) Error() string     { return "join" }
func (j join) Unwrap() []error { return j }

type panics struct{}

func (panics) Error() string { panic("Error") }
func (panics) Unwrap() error { panic("Unwrap") }

type panicsJoin struct{ says }

func (panicsJoin) Unwrap() []error { panic("Unwrap") }

func TestTree_IsWalkedInOrderAndWithinLimits(t *testing.T) {
	t.Parallel()
	a, b, c := says{"a"}, says{"b"}, says{"c"}
	inner := join{a, nil, join{b}}
	outer := fmt.Errorf("x: %w", join{inner, c})
	nodes, whole := Tree(nil, outer)
	assert.True(t, whole)
	assert.Equal(t, []error{outer, join{inner, c}, inner, a, join{b}, b, c}, nodes)

	nodes, whole = Tree(nil, nil)
	assert.True(t, whole)
	assert.Empty(t, nodes)

	nodes, whole = Tree(nil, join{panics{}, panicsJoin{}, a})
	assert.True(t, whole)
	assert.Len(t, nodes, 4)
	assert.Zero(t, Of(nodes, true))

	chain := error(a)
	for range maxNodes - 1 {
		chain = join{chain}
	}
	nodes, whole = Tree(nil, chain)
	assert.True(t, whole)
	assert.Len(t, nodes, maxNodes)
	for _, longer := range []error{join{chain}, fmt.Errorf("%w", chain), join{chain, a}} {
		nodes, whole = Tree(nil, longer)
		assert.False(t, whole)
		assert.Len(t, nodes, maxNodes)
	}

	wide := make(join, maxNodes)
	nodes, whole = Tree(nil, wide)
	assert.True(t, whole, "nil is no node")
	assert.Len(t, nodes, 1)
}

// A type is looked at once, by the first goroutine that meets it, and its values often.
func TestManyGoroutinesMeetANewTypeAtOnce(t *testing.T) {
	t.Parallel()
	type fresh struct {
		says
		StatusCode int
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for status := 400 + i; status < 600; status += 16 {
				assert.Equal(t, Fact{Class: HTTP, Code: status}, factsOf(fresh{StatusCode: status}).Fact)
			}
		})
	}
	wg.Wait()
}
