package classify_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/toolhealth/toolhealth"
)

// What real SDKs make of real failures, by shape and text.

// wireLike is jsonrpc.Error of the MCP go-sdk.
type wireLike struct {
	Code    int64
	Message string
	Data    json.RawMessage
}

func (e *wireLike) Error() string { return e.Message }

// rejectedLike is its label for what a transport refused.
var rejectedLike error = &wireLike{Code: -32005, Message: "rejected by transport"}

type statusNameLike string

type genkitLike struct {
	Message  string
	Status   statusNameLike
	HTTPCode int
	Details  map[string]any
}

func (e *genkitLike) Error() string { return e.Message }

type genaiDetailsLike struct {
	Code    int
	Status  string
	Details []map[string]any
}

func (e genaiDetailsLike) Error() string { return fmt.Sprint("Error ", e.Code) }

type connectMetaLike struct {
	code Code
	meta http.Header
	text string
}

func (e *connectMetaLike) Error() string     { return e.text }
func (e *connectMetaLike) Code() Code        { return e.code }
func (e *connectMetaLike) Meta() http.Header { return e.meta }

type grpcTextLike struct {
	code Code
	text string
}

func (e *grpcTextLike) Error() string               { return e.text }
func (e *grpcTextLike) GRPCStatus() *grpcStatusLike { return &grpcStatusLike{e.code} }

type transportLike struct{ Err error }

func (e *transportLike) Error() string { return "transport error: " + e.Err.Error() }
func (e *transportLike) Unwrap() error { return e.Err }

type anthropicStreamLike struct {
	StatusCode int
	raw        string
}

func (e *anthropicStreamLike) Error() string { return `POST "http://x/v1/messages": 200 OK ` + e.raw }

func decoded(text string) error {
	var v struct{ A float64 }
	return json.Unmarshal([]byte(text), &v)
}

// calling and sending are how the MCP go-sdk wraps.
func calling(err error) error { return fmt.Errorf("calling %q: %w", "tools/call", err) }

func sending(text string) error { return calling(errors.New(`sending "tools/call": ` + text)) }

func TestClassify_ErrorsOfSDKs(t *testing.T) {
	t.Parallel()
	retryInfo := map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "21s"}
	retryAfter := http.Header{"Retry-After": {"7"}}
	for _, c := range []struct {
		id, what string
		err      error
		want     string
	}{
		{"A2", "a page in the place of JSON", decoded("<html>502 Bad Gateway</html>"), "failure contract"},
		{"A1", "mcp-go: JSON that is no JSON-RPC", fmt.Errorf("failed to unmarshal response: %w", decoded("")), "failure contract"},
		{"A5", "genai: JSON that ends half-way", fmt.Errorf("deserializeUnaryResponse: error unmarshalling response: %w", decoded(`{"A":[{"con`)), "failure contract"},
		{"", "openai-go: nonsense", fmt.Errorf("error parsing response json: %w", decoded("oops")), "failure contract"},
		{"A3", "a page in a stream of events", fmt.Errorf("stream: %w", decoded("<html>")), "failure contract"},

		{"B1", "go-sdk: session lost, the code of a bad request", calling(fmt.Errorf("sending %q: %w: %w: Not Found", "tools/call",
			&wireLike{Code: -32600, Message: "Not Found: Session has been terminated"}, rejectedLike)), "failure connection retry"},
		{"B2", "the same in other words", &wireLike{Code: -32600, Message: "Not Found: Invalid or expired session ID"}, "failure connection retry"},
		{"B3", "mcp-go: the same", fmt.Errorf("%w: %s", errors.New("invalid request"), "Session terminated"), "failure connection retry"},
		{"B4", "a gateway: the code of a timeout", &wireLike{Code: -32001, Message: "Session not found"}, "failure connection retry"},

		{"C1", "go-sdk: 400", sending("Bad Request"), "rejected invalid_request"},
		{"C2", "go-sdk: 401", sending("Unauthorized"), "rejected unauthorized"},
		{"C3", "go-sdk: 403", sending("Forbidden"), "rejected unauthorized"},
		{"C4", "go-sdk: 404 without a session", sending("Not Found"), "rejected not_found"},
		{"C5", "go-sdk: 413", sending("Request Entity Too Large"), "rejected invalid_request"},
		{"C6", "mcp-go: 401", &transportLike{errors.New("authorization required")}, "rejected unauthorized"},
		{"C7", "mcp-go: 401 with OAuth", &transportLike{errors.New("no valid token available, authorization required")}, "rejected unauthorized"},
		{"C8", "langchaingo: 401", errors.New("API returned unexpected status code: 401: no"), "rejected unauthorized"},
		{"C9", "langchaingo: 422", errors.New("anthropic: failed to create message: API returned unexpected status code: 422: no"), "rejected invalid_request"},
		{"C10", "genkit: INVALID_ARGUMENT", &genkitLike{Status: "INVALID_ARGUMENT"}, "rejected invalid_request"},
		{"C11", "genkit: UNAUTHENTICATED", &genkitLike{Status: "UNAUTHENTICATED"}, "rejected unauthorized"},
		{"", "genkit: a status as well", &genkitLike{Status: "UNAUTHENTICATED", HTTPCode: 503}, "failure server_error retry"},
		{"", "genkit: an unheard-of status", &genkitLike{Status: "WEATHER"}, "failure unknown"},

		{"D1", "go-sdk: reset, with the cause in the chain", fmt.Errorf("sending %q: %w: %w", "tools/call", rejectedLike, syscall.ECONNRESET), "failure connection retry"},
		{"D2", "go-sdk: dropped, with the cause in the chain", fmt.Errorf("sending %q: %w: %w", "tools/call", rejectedLike, io.EOF), "failure connection retry"},
		{"", "go-sdk: the cause before the label", fmt.Errorf("sending %q: %w: %w", "tools/call", io.EOF, rejectedLike), "failure connection retry"},
		{"", "go-sdk: refused, surely not sent", fmt.Errorf("sending %q: %w: %w", "tools/call", rejectedLike, refusedLike()), "failure connection retry unsent"},
		{"D3", "go-sdk: 408", sending("Request Timeout"), "failure timeout retry"},
		{"D4", "go-sdk: 529, which has no name", sending(""), "failure server_error retry"},
		{"D5", "go-sdk: body cut", sending("failed to read body: unexpected EOF"), "failure connection retry"},
		{"D6", "go-sdk: stream of events cut", calling(errors.New("request terminated without response")), "failure connection retry"},
		{"D7", "go-sdk: HTML with 200", sending(`unsupported content type "text/html"`), "failure contract"},
		{"D8", "go-sdk: nonsense with 200", sending("failed to decode response: unmarshaling jsonrpc message: json: oops"), "failure contract"},
		{"D9", "go-sdk: load shedding", errors.New("multi-round-trip: exceeded maximum load-shedding retries (3)"), "failure rate_limited retry"},
		{"D10", "go-sdk: load shedding, older client", errors.New("the server is busy, retry later"), "failure rate_limited retry"},
		{"D11", "mcp-go: the child is gone", &transportLike{errors.New("transport closed")}, "failure connection retry"},
		{"D12", "mcp-go: any error of a handler", fmt.Errorf("%w: %s", errors.New("internal error"), "upstream said 503"), "failure server_error retry"},
		{"D13", "mcp-go: stream of events cut", &transportLike{errors.New("unexpected nil response")}, "failure connection retry"},
		{"D14", "mcp-go: HTML with 200", &transportLike{errors.New("unexpected content type: text/html")}, "failure contract"},
		{"D15", "mcp-go: timeout of a TypeScript server", errors.New("Request timed out"), "failure timeout retry"},
		{"D16", "mcp-go: closing of a TypeScript server", errors.New("Connection closed"), "failure connection retry"},
		{"D17", "openai-go, anthropic-sdk-go: HTML with 200", errors.New("expected destination type of 'string' or '[]byte' for responses with content-type 'text/html' that is not 'application/json'"), "failure contract"},
		{"D18", "openai-go: failure in a stream", errors.New(`received error while streaming: {"message":"The server had an error","type":"server_error","code":"server_error"}`), "failure server_error"},
		{"", "openai-go: a limit in a stream", errors.New(`received error while streaming: {"message":"slow down","type":"requests","code":"rate_limit_exceeded"}`), "failure rate_limited retry"},
		{"", "go-openai: failure in a stream", fmt.Errorf("error, %w", &goOpenaiStreamLike{Type: "server_error"}), "failure server_error"},
		{"D19", "anthropic-sdk-go: failure in a stream", &anthropicStreamLike{200, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, "failure server_error"},
		{"D20", "genai: 429 with a RetryInfo", genaiDetailsLike{Code: 429, Details: []map[string]any{{"@type": "x"}, retryInfo}}, "throttled rate_limited retry 21s"},
		{"", "googleapi: 429 with a RetryInfo", &googleDetailsLike{Code: 429, Details: []any{retryInfo}}, "throttled rate_limited retry 21s"},
		{"D21", "connect: a bare 429 of a proxy", &connectMetaLike{14, retryAfter, "unavailable: 429 Too Many Requests"}, "throttled rate_limited retry 7s"},
		{"D22", "connect: resource_exhausted", &connectMetaLike{8, retryAfter, "resource_exhausted: no"}, "throttled rate_limited retry 7s"},
		{"D23", "langchaingo: 429", errors.New("API returned unexpected status code: 429: no"), "failure rate_limited retry"},
		{"D24", "langchaingo: 503", errors.New("API returned unexpected status code: 503: no"), "failure server_error retry"},
		{"D25", "langchaingo: timeout", errors.New("request timeout: API call exceeded deadline"), "failure timeout retry"},
		{"D26", "langchaingo: refused, reset, dropped", errors.New("network error: failed to reach API server"), "failure connection retry"},
		{"D27", "genkit: UNAVAILABLE", &genkitLike{Status: "UNAVAILABLE"}, "failure server_error retry"},
		{"D28", "http.Client.Timeout, from below", errors.New("net/http: request canceled"), "failure timeout retry"},

		{"E1", "go-sdk: a session that is closed already", fmt.Errorf("%w: calling %q: client is closing: EOF", errors.New("connection closed"), "tools/call"), "failure connection retry unsent"},
		{"E2", "grpc-go: refused", &grpcTextLike{14, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`}, "failure connection retry unsent"},

		{"", "grpc-go: an answer over the limit", &grpcTextLike{8, "grpc: received message larger than max (5 vs. 4)"}, "rejected invalid_request"},
		{"", "a gateway's limit, and its wait", &wireLike{Code: 429, Message: "Rate limit exceeded", Data: json.RawMessage(`{"retryAfterSeconds":12}`)}, "throttled rate_limited retry 12s"},
		{"", "the same by an older code", &wireLike{Code: -32029, Message: "no", Data: json.RawMessage(`{"retryAfterSeconds": 12}`)}, "throttled rate_limited retry 12s"},
		{"", "the same by a code with another meaning", &wireLike{Code: -32004, Message: "Rate limit exceeded"}, "failure rate_limited retry"},
		{"", "wrong arguments, whatever else is said", &wireLike{Code: -32602, Message: "no session not found", Data: json.RawMessage(`{"retryAfter":12}`)}, "rejected invalid_request"},
		{"", "mcp-go: 429, and the wait in its body", errors.New(`request failed with status 429: {"error":"slow down","retry_after":3}`), "throttled rate_limited retry 3s"},
		{"", "googleapi: 403 for a rate", &googleBodyLike{403, `{"error":{"code":403,"errors":[{"reason":"userRateLimitExceeded"}]}}`}, "failure rate_limited retry"},
		{"", "googleapi: 403 for a quota", &googleBodyLike{403, `{"error":{"code":403,"errors":[{"reason":"dailyLimitExceeded"}]}}`}, "failure quota_exhausted"},
		{"", "googleapi: 403", &googleBodyLike{403, `{"error":{"code":403,"errors":[{"reason":"forbidden"}]}}`}, "rejected unauthorized"},
		{"", "Linear: 400 for a rate", &googleBodyLike{400, `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`}, "failure rate_limited retry"},
		{"", "AWS: 400 for a timeout", &smithyLike{status: 400, Err: &smithyAPILike{"RequestTimeout"}}, "failure timeout retry"},
		{"", "AWS: a response in a response", &awsLike{&smithyResponseLike{Response: &smithyHTTPLike{httpAnswer(429, "Retry-After", "7")}}}, "throttled rate_limited retry 7s"},
		{"", "AWS: no response in a response", &awsLike{}, "failure unknown"},
		{"", "genkit: an interrupt", &toolInterruptError{}, "neutral denied"},
	} {
		for wrapping, err := range map[string]error{"": c.err, "wrapped: ": fmt.Errorf("call: %w", c.err)} {
			assert.Equal(t, c.want, verdictText(toolhealth.Classify(t.Context(), err)), "%s%s %s: %v", wrapping, c.id, c.what, err)
		}
	}
}

// Verdicts that many rows have.
var (
	vInvalid     = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}
	vRetry       = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}
	vUnknown     = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindUnknown}
	vUnreachable = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}
)

func refusedLike() error { return dialError(syscall.ECONNREFUSED) }

type goOpenaiStreamLike struct {
	Code           any
	Message        string
	Type           string
	HTTPStatusCode int
}

func (e *goOpenaiStreamLike) Error() string { return e.Message }

type googleDetailsLike struct {
	Code    int
	Details []any
}

func (*googleDetailsLike) Error() string { return "googleapi" }

type googleBodyLike struct {
	Code int
	Body string
}

func (*googleBodyLike) Error() string { return "googleapi" }

type smithyHTTPLike struct{ *http.Response }

type smithyResponseLike struct {
	Response *smithyHTTPLike
}

type awsLike struct{ *smithyResponseLike }

func (*awsLike) Error() string { return "aws" }

// toolInterruptError has the name of genkit's.
type toolInterruptError struct{}

func (*toolInterruptError) Error() string { return "tool execution interrupted" }

// What no error can tell is told by a note from below.
func TestClassify_NoteTellsWhatTheErrorCannot(t *testing.T) {
	t.Parallel()
	cut := fmt.Errorf("failed to unmarshal response: %w", decoded(""))
	mistyped := decoded(`{"A":{"message":"no"}}`)
	half := fmt.Errorf("error unmarshalling response: %w\n{\"candidates\":[{\"con", decoded(`{"A":[{"con`))
	status := func(code int, header ...string) toolhealth.Verdict {
		return toolhealth.ClassifyHTTP(code, httpAnswer(code, header...).Header)
	}
	broken := toolhealth.Classify(t.Context(), io.ErrUnexpectedEOF)
	for _, c := range []struct {
		id, what string
		err      error
		notes    []toolhealth.Verdict
		want     string
	}{
		{"A1", "mcp-go: 503 with JSON that is no JSON-RPC", cut, []toolhealth.Verdict{status(503)}, "failure server_error retry"},
		{"A1", "mcp-go: 429 with a wait", cut, []toolhealth.Verdict{status(429, "Retry-After", "9")}, "throttled rate_limited retry 9s"},
		{"A1", "mcp-go: 403", cut, []toolhealth.Verdict{status(403)}, "rejected unauthorized"},
		{"A4", "langchaingo: any status with an object under error", mistyped, []toolhealth.Verdict{status(500)}, "failure server_error retry"},
		{"A5", "genai: JSON that ends half-way", half, []toolhealth.Verdict{status(200)}, "failure contract"},
		{"A5", "genai: JSON that ends half-way, because the body broke off", half, []toolhealth.Verdict{status(200), broken}, "failure connection retry"},
		{"A1", "mcp-go, without a note", cut, nil, "failure contract"},
		{"A4", "without a note", mistyped, nil, "neutral contract"},
		{"A5", "without a note", half, nil, "neutral contract"},
		{"A2", "a page with 401", decoded("<html>"), []toolhealth.Verdict{status(401)}, "rejected unauthorized"},
		{"A2", "a page with 200", decoded("<html>"), []toolhealth.Verdict{status(200)}, "failure contract"},
		{"", "an unknown error", errBusyText, []toolhealth.Verdict{status(401)}, "rejected unauthorized"},
		{"", "an unknown error after a good answer", errBusyText, []toolhealth.Verdict{status(200)}, "failure unknown"},
		{"", "a failure without a wait", errors.New("rejected by transport: Service Unavailable"), []toolhealth.Verdict{status(503, "Retry-After", "5")}, "failure server_error retry 5s"},
		{"", "a limit without a wait", sending("Too Many Requests"), []toolhealth.Verdict{status(429, "Retry-After", "5")}, "throttled rate_limited retry 5s"},
		{"", "an error that says enough", &openaiLike{StatusCode: 404}, []toolhealth.Verdict{status(503, "Retry-After", "5")}, "rejected not_found"},
		{"", "a failure that is no better later", &grpcTextLike{13, "internal"}, []toolhealth.Verdict{status(503, "Retry-After", "5")}, "failure server_error"},
		{"", "a note without a wait adds nothing", &openaiLike{StatusCode: 503}, []toolhealth.Verdict{broken}, "failure server_error retry"},
		{"", "a refusal of another library, and something was sent", errors.New("circuit open"), []toolhealth.Verdict{broken}, "neutral refused"},
		{"", "a refusal of another library", errors.New("circuit open"), nil, "neutral refused unsent"},
		{"", "a failure with a wait of its own", &openaiLike{StatusCode: 503, Response: httpAnswer(503, "Retry-After", "2")}, []toolhealth.Verdict{status(503, "Retry-After", "5")}, "failure server_error retry 2s"},
		{"", "the last note speaks", cut, []toolhealth.Verdict{status(200), status(401), status(503)}, "failure server_error retry"},
		{"", "all say that nothing was sent", errBusyText, []toolhealth.Verdict{vUnreachable, vUnreachable}, "failure connection retry unsent"},
		{"", "one may have been sent", errBusyText, []toolhealth.Verdict{broken, vUnreachable}, "failure connection retry"},
		{"", "the error speaks of the last request only", refusedLike(), []toolhealth.Verdict{broken, vUnreachable}, "failure connection retry"},
		{"", "and is right", refusedLike(), []toolhealth.Verdict{vUnreachable}, "failure connection retry unsent"},
	} {
		ctx := toolhealth.WithNotes(t.Context())
		for _, n := range c.notes {
			toolhealth.Note(ctx, n)
		}
		assert.Equal(t, c.want, verdictText(toolhealth.Classify(ctx, c.err)), "%s %s: %v", c.id, c.what, c.err)
	}
}

var errBusyText = errors.New("something went wrong")

func TestClassify_UnknownOfErrorRules(t *testing.T) {
	t.Parallel()
	rules := toolhealth.ErrorRules{Unknown: vInvalid}
	assert.Equal(t, vInvalid, rules.Classify(t.Context(), errBusyText))
	assert.Equal(t, vUnknown, toolhealth.ErrorRules{}.Classify(t.Context(), errBusyText))
	assert.Equal(t, "failure server_error retry", verdictText(rules.Classify(t.Context(), &openaiLike{StatusCode: 503})))
	assert.Equal(t, "failure unknown retry", verdictText(rules.Classify(t.Context(), retryableLike(true))), "something is known")
	assert.Equal(t, "neutral canceled", verdictText(rules.Classify(canceledContext(t, nil), errBusyText)))
	noted := toolhealth.WithNotes(t.Context())
	toolhealth.Note(noted, vRetry)
	assert.Equal(t, vRetry, rules.Classify(noted, errBusyText), "a note comes first")
}

func TestClassify_WaitOfErrorRules(t *testing.T) {
	t.Parallel()
	wait, known := 5*time.Second, true
	rules := toolhealth.ErrorRules{Wait: func(err error) (time.Duration, bool) {
		if strings.Contains(err.Error(), "panic") {
			panic("a Wait with a mistake")
		}
		return wait, known
	}}
	limited := &openaiLike{StatusCode: 429, Response: httpAnswer(429, "Retry-After", "9")}
	assert.Equal(t, "throttled rate_limited retry 5s", verdictText(rules.Classify(t.Context(), limited)), "it comes first")
	assert.Equal(t, "failure server_error retry 5s", verdictText(rules.Classify(t.Context(), &openaiLike{StatusCode: 503})))
	assert.Equal(t, "throttled rate_limited retry 5s", verdictText(rules.Classify(t.Context(), errBusyText)), "all that is known is a wait")
	assert.Equal(t, "throttled rate_limited retry 9s", verdictText(rules.Classify(t.Context(), fmt.Errorf("panic: %w", limited))))
	wait = -1
	assert.Equal(t, "failure rate_limited retry", verdictText(rules.Classify(t.Context(), limited)), "no wait, it says")
	known = false
	assert.Equal(t, "throttled rate_limited retry 9s", verdictText(rules.Classify(t.Context(), limited)))
}

func TestClassify_WaitOfWhatIsNoThrottle(t *testing.T) {
	t.Parallel()
	header := map[string][]string{"Retry-After": {"7"}}
	assert.Equal(t, "rejected not_found 7s", verdictText(toolhealth.ClassifyHTTP(404, header)), "for a caller that reads it")
	assert.Equal(t, "failure quota_exhausted", verdictText(toolhealth.ClassifyHTTP(402, header)))
	assert.Equal(t, "failure contract", verdictText(toolhealth.ClassifyHTTP(302, header)))
	busy := errors.Join(retryableLike(false), &openaiLike{StatusCode: 429})
	assert.Equal(t, "failure rate_limited", verdictText(toolhealth.Classify(t.Context(), busy)))
	empty := errors.Join(retryableLike(true), &openaiLike{StatusCode: 402})
	assert.Equal(t, "failure quota_exhausted", verdictText(toolhealth.Classify(t.Context(), empty)), "whatever it says of a repetition")
}

func TestClassify_EveryLeafMustBeUnsent(t *testing.T) {
	t.Parallel()
	refused, sent := refusedLike(), opError("read", syscall.ECONNRESET)
	marked := toolhealth.WithVerdict(errBusyText, vUnreachable)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"one":                          {refused, true},
		"wrapped":                      {fmt.Errorf("call: %w", refused), true},
		"two":                          {errors.Join(refused, fmt.Errorf("b: %w", refused)), true},
		"a reset before":               {errors.Join(sent, refused), false},
		"a reset behind":               {errors.Join(refused, sent), false},
		"a leaf that says nothing":     {errors.Join(refused, errBusyText), false},
		"deeper":                       {errors.Join(refused, fmt.Errorf("b: %w", errors.Join(refused, sent))), false},
		"a mark":                       {marked, true},
		"a mark around a reset":        {toolhealth.WithVerdict(sent, vUnreachable), true},
		"two marks":                    {errors.Join(marked, toolhealth.WithVerdict(errBusyText, vRetry)), false},
		"a mark and a reset":           {errors.Join(marked, sent), false},
		"a mark and a refusal to dial": {errors.Join(marked, refused), true},
		"a call further in":            {&toolhealth.ToolError{Attempts: 2, Candidates: []toolhealth.Candidate{{Err: sent}, {Err: marked}}}, false},
		"a call further in, unsent":    {&toolhealth.ToolError{Attempts: 2, Candidates: []toolhealth.Candidate{{Err: refused}, {Err: marked}}}, true},
		"a substitute was refused":     {&toolhealth.ToolError{Attempts: 1, Candidates: []toolhealth.Candidate{{Err: refused}, {Err: &toolhealth.Refusal{Reason: toolhealth.StopCircuitOpen}}}}, false},
	} {
		assert.Equal(t, c.want, toolhealth.Classify(t.Context(), c.err).NotSent, name)
	}
}

func TestC152_MessageOverTheLimitIsNoRateLimit(t *testing.T) {
	t.Parallel()
	large := &grpcTextLike{8, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 1)"}
	assert.Equal(t, vInvalid, toolhealth.Classify(t.Context(), large))
	busy := &grpcTextLike{8, "rpc error: code = ResourceExhausted desc = slow down"}
	assert.Equal(t, "failure rate_limited retry", verdictText(toolhealth.Classify(t.Context(), busy)))
}
