package mcpgohealth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// failure is a row of the table: one way in which a call fails, with the verdict that what
// the server did deserves. The rows and the verdicts are those of internal/proof/verdicts.
type failure struct {
	name string
	// want is outcome/kind, then what holds of retry, notsent and wait=<duration>. A
	// vertical bar separates verdicts that are as good.
	want   string
	answer func(*exchange)                         // nil: the request does not get to the server
	way    func(*http.Transport) http.RoundTripper // nil: sound
	limit  time.Duration                           // of the http.Client
	caller func() (context.Context, context.CancelFunc)
	again  bool // the second call counts
}

// short is the time limit of calls that are to exceed it.
const short = 150 * time.Millisecond

// limit is that of an http.Client, for all its requests.
const limit = time.Second

const page = "<html><head><title>Sign in</title></head><body>Please sign in</body></html>"

func statusRows() []failure {
	wants := map[int]string{
		400: "rejected/invalid_request", 401: "rejected/unauthorized", 402: "failure/quota_exhausted", 403: "rejected/unauthorized",
		404: "rejected/not_found", 405: "rejected/invalid_request", 407: "rejected/unauthorized", 408: "failure/timeout/retry",
		409: "rejected/conflict", 410: "rejected/gone", 413: "rejected/invalid_request", 422: "rejected/invalid_request",
		429: "failure/rate_limited/retry", 500: "failure/server_error/retry", 501: "rejected/invalid_request",
		502: "failure/server_error/retry", 503: "failure/server_error/retry", 504: "failure/server_error/retry",
		524: "failure/server_error/retry", 529: "failure/server_error/retry",
	}
	var rows []failure
	for code, want := range wants {
		rows = append(rows, failure{name: strconv.Itoa(code), want: want, answer: func(x *exchange) { x.fail(code) }})
	}
	slices.SortFunc(rows, func(a, b failure) int { return strings.Compare(a.name, b.name) })
	return append(rows,
		failure{name: "429 with Retry-After: 7", want: "throttled/rate_limited/retry/wait=7s", answer: waiting(429)},
		failure{name: "503 with Retry-After: 7", want: "failure/server_error/retry/wait=7s", answer: waiting(503)})
}

func waiting(code int) func(*exchange) {
	return func(x *exchange) { x.header("Retry-After", "7"); x.fail(code) }
}

func bodyRows() []failure {
	with := func(status int, contentType, body string) func(*exchange) {
		return func(x *exchange) { x.say(status, contentType, body) }
	}
	part := func(end func(*exchange)) func(*exchange) {
		return func(x *exchange) {
			x.header("Content-Length", "5000")
			x.begin(jsonType, x.half())
			end(x)
		}
	}
	return []failure{
		{name: "200 with HTML", want: "failure/contract", answer: with(200, "text/html", page)},
		{name: "302 to HTML", want: "failure/contract", answer: func(x *exchange) {
			if x.r.URL.Path == loginPath {
				x.say(200, "text/html", page)
				return
			}
			x.header("Location", loginPath)
			x.say(302, "text/html", "")
		}},
		{name: "200 with HTML that says it is JSON", want: "failure/contract", answer: with(200, jsonType, page)},
		{name: "401 with HTML", want: "rejected/unauthorized", answer: with(401, "text/html", page)},
		{name: "429 with HTML", want: "failure/rate_limited/retry", answer: with(429, "text/html", page)},
		{name: "502 with HTML", want: "failure/server_error/retry", answer: with(502, "text/html", page)},
		{name: "503 with JSON of a gateway", want: "failure/server_error/retry", answer: with(503, jsonType, `{"message":"Service Unavailable"}`)},
		{name: "403 with JSON of a gateway", want: "rejected/unauthorized", answer: with(403, jsonType, `{"message":"Forbidden"}`)},
		{name: "429 with JSON of a gateway and Retry-After: 7", want: "throttled/rate_limited/retry/wait=7s", answer: func(x *exchange) {
			x.header("Retry-After", "7")
			x.say(429, jsonType, `{"message":"Too Many Requests"}`)
		}},
		{name: "500 with an empty body", want: "failure/server_error/retry", answer: with(500, jsonType, "")},
		{name: "200 with an empty body", want: "failure/contract|failure/connection/retry", answer: with(200, jsonType, "")},
		{name: "200 with nonsense", want: "failure/contract", answer: with(200, jsonType, "oops")},
		{name: "200 with JSON of another shape", want: "failure/contract", answer: with(200, jsonType, `["oops"]`)},
		{name: "200 with half a JSON", want: "failure/contract|failure/connection/retry", answer: func(x *exchange) { x.say(200, jsonType, x.half()) }},
		{name: "200, body cut", want: "failure/connection/retry|failure/contract", answer: part((*exchange).cut)},
		{name: "200, body reset", want: "failure/connection/retry", answer: part((*exchange).reset)},
		{name: "200, body stalls, Client.Timeout", want: "failure/timeout/retry", limit: limit, answer: part((*exchange).hang)},
	}
}

func wayRows() []failure {
	dial := func(by func(ctx context.Context, network string) (net.Conn, error)) func(*http.Transport) http.RoundTripper {
		return func(sound *http.Transport) http.RoundTripper {
			broken := sound.Clone()
			broken.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return by(ctx, network) }
			return broken
		}
	}
	name := func(e net.DNSError) func(*http.Transport) http.RoundTripper {
		return dial(func(_ context.Context, network string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &e}
		})
	}
	hang := (*exchange).hang
	return []failure{
		{name: "connection refused", want: "failure/connection/retry/notsent", way: dial(refused)},
		{name: "unknown host name", want: "failure/connection/notsent", way: name(net.DNSError{Err: "no such host", Name: "tool.invalid", IsNotFound: true})},
		{name: "name server fails", want: "failure/connection/retry/notsent", way: name(net.DNSError{Err: "server misbehaving", Name: "tool.invalid", IsTemporary: true})},
		{name: "dial times out", want: "failure/timeout/retry/notsent|failure/connection/retry/notsent", way: dial(func(ctx context.Context, network string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Nanosecond}).DialContext(ctx, network, closedPort())
		})},
		{name: "TLS to a plain server", want: "failure/connection/notsent", way: func(sound *http.Transport) http.RoundTripper { return secure{sound} }},
		{name: "connection dropped", want: "failure/connection/retry", answer: (*exchange).cut},
		{name: "connection reset", want: "failure/connection/retry", answer: (*exchange).reset},
		{name: "answer is not HTTP", want: "failure/contract", answer: func(x *exchange) { x.raw("oops\r\n\r\n") }},
		{name: "redirects without end", want: "failure/contract|failure/connection|failure/connection/notsent", answer: func(x *exchange) {
			x.header("Location", x.r.URL.Path)
			x.say(307, "text/plain", "")
		}},
		{name: "hangs, Client.Timeout", want: "failure/timeout/retry", limit: limit, answer: hang},
		{name: "hangs, ResponseHeaderTimeout", want: "failure/timeout/retry", answer: hang, way: func(sound *http.Transport) http.RoundTripper {
			broken := sound.Clone()
			broken.ResponseHeaderTimeout = short
			return broken
		}},
		{name: "hangs, caller's deadline", want: "failure/timeout", answer: hang, caller: deadline},
		{name: "hangs, caller cancels", want: "neutral/canceled", answer: hang, caller: cancels(context.Canceled)},
		{name: "hangs, caller cancels because of its deadline", want: "failure/timeout", answer: hang, caller: cancels(context.DeadlineExceeded)},
		{name: "hangs, caller cancels because of a sibling", want: "neutral/canceled", answer: hang, caller: cancels(errors.New("a sibling failed"))},
	}
}

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), short)
}

func cancels(cause error) func() (context.Context, context.CancelFunc) {
	return func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(context.Background())
		stop := time.AfterFunc(short, func() { cancel(cause) }).Stop
		return ctx, func() { stop(); cancel(nil) }
	}
}

func refused(ctx context.Context, network string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, closedPort())
}

// closedPort is an address at which no server listens.
func closedPort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:1"
	}
	defer l.Close()
	return l.Addr().String()
}

// secure speaks TLS to a server that does not.
type secure struct{ base http.RoundTripper }

func (s secure) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Scheme = "https"
	return s.base.RoundTrip(q)
}

func rpcRows() []failure {
	row := func(name, want string, code int, message, data string) failure {
		return failure{name: name, want: want, answer: func(x *exchange) { x.rpc(200, x.id, code, message, data) }}
	}
	const lost, limited, throttled = "failure/connection/retry", "failure/rate_limited/retry", "throttled/rate_limited/retry/wait=12s"
	return []failure{
		row("-32700 Parse error", "rejected/invalid_request", -32700, "Parse error", ""),
		row("-32600 Invalid Request", "rejected/invalid_request", -32600, "Invalid Request", ""),
		row("-32601 Method not found", "rejected/gone", -32601, "Method not found", ""),
		row("-32602 Invalid params", "rejected/invalid_request", -32602, "Invalid params", ""),
		row("-32603 Internal error", "failure/server_error/retry", -32603, "Internal error", ""),
		row("-32000 Connection closed", lost, -32000, "Connection closed", ""),
		row("-32001 Request timed out", "failure/timeout/retry", -32001, "Request timed out", ""),
		row("-32001 Session not found", lost, -32001, "Session not found", ""),
		row("-32002 Resource not found", "rejected/not_found", -32002, "Resource not found", ""),
		row("-32004 server is closing", lost, -32004, "server is closing", ""),
		row("-32021 missing capability", "failure/contract", -32021, "Missing required client capability", ""),
		row("-32022 unsupported protocol version", "failure/contract", -32022, "Unsupported protocol version", `{"supported":["2025-06-18"],"requested":"2026-07-28"}`),
		row("-32029 Rate limit exceeded", limited, -32029, "Rate limit exceeded", ""),
		row("-32029 Rate limit exceeded, retryAfterSeconds 12", throttled, -32029, "Rate limit exceeded", `{"retryAfterSeconds":12}`),
		row("429 Rate limit exceeded", limited, 429, "Rate limit exceeded", ""),
		row("429 Rate limit exceeded, retryAfterSeconds 12", throttled, 429, "Rate limit exceeded", `{"retryAfterSeconds":12}`),
		row("-32042 URL elicitation", "neutral/denied", -32042, "URL elicitation required", `{"elicitations":[]}`),
		row("-32800 Request cancelled", "failure/canceled", -32800, "Request cancelled", ""),
		row("-32600 Session terminated", lost, -32600, "Session terminated", ""),
		row("32600 Session terminated", lost, 32600, "Session terminated", ""),
	}
}

func sessionRows() []failure {
	const lost = "failure/connection/retry"
	row := func(name string, answer func(*exchange)) failure {
		return failure{name: "session lost: " + name, want: lost, answer: answer}
	}
	rows := []failure{
		row("404 with text", func(x *exchange) { x.say(404, "text/plain; charset=utf-8", "session not found\n") }),
		row("404 with -32001 and id null", func(x *exchange) { x.rpc(404, "null", -32001, "Session not found", "") }),
		row("404 with -32600 and id null", func(x *exchange) { x.rpc(404, "null", -32600, "Not Found: Invalid or expired session ID", "") }),
		row("404 with -32600 and id server-error", func(x *exchange) {
			x.rpc(404, `"server-error"`, -32600, "Not Found: Session has been terminated", "")
		}),
		row("400 with text", func(x *exchange) {
			x.say(400, "text/plain; charset=utf-8", "Bad Request: No valid session ID provided")
		}),
		row("400 with -32000 and id null", func(x *exchange) { x.rpc(400, "null", -32000, "Bad Request: No valid session ID provided", "") }),
	}
	return append(rows,
		failure{name: "404, then another call", want: lost, again: true, answer: func(x *exchange) { x.fail(404) }},
		failure{name: "connection refused, then another call", want: "failure/connection/retry/notsent", again: true, way: pick(wayRows(), "connection refused")[0].way})
}

func streamRows() []failure {
	opened := func(then func(*exchange)) func(*exchange) { return func(x *exchange) { x.open(); then(x) } }
	event := func(data string) func(*exchange) { return opened(func(x *exchange) { x.event(data) }) }
	rows := []failure{
		{name: "stream cut", want: "failure/connection/retry", answer: opened((*exchange).cut)},
		{name: "stream reset", want: "failure/connection/retry", answer: opened((*exchange).reset)},
		{name: "stream stalls, Client.Timeout", want: "failure/timeout/retry", limit: limit, answer: opened((*exchange).hang)},
		{name: "stream stalls, caller's deadline", want: "failure/timeout", answer: opened((*exchange).hang), caller: deadline},
		{name: "stream stalls, caller cancels", want: "neutral/canceled", answer: opened((*exchange).hang), caller: cancels(context.Canceled)},
		{name: "event with nonsense", want: "failure/contract", answer: event("oops")},
		{name: "event with HTML", want: "failure/contract", answer: event(page)},
		{name: "event with half a JSON", want: "failure/contract|failure/connection/retry", answer: opened(func(x *exchange) { x.event(x.half()) })},
	}
	return slices.Concat(rows,
		pick(slices.Concat(statusRows(), bodyRows(), wayRows()), "401", "429", "429 with Retry-After: 7", "500", "503", "200 with HTML",
			"connection refused", "connection dropped", "connection reset", "hangs, Client.Timeout", "hangs, caller's deadline", "hangs, caller cancels"),
		pick(rpcRows(), "-32601 Method not found", "-32602 Invalid params", "-32603 Internal error", "-32001 Session not found",
			"-32029 Rate limit exceeded, retryAfterSeconds 12"))
}

func pick(rows []failure, names ...string) []failure {
	return slices.DeleteFunc(rows, func(f failure) bool { return !slices.Contains(names, f.name) })
}

// localRows are what handlers of a server in this process do, and child processes.
func localRows() (handlers, children []failure) {
	return []failure{
			{name: "handler returns an error", want: "failure/server_error/retry|failure/unknown"},
			{name: "handler returns -32603", want: "failure/server_error/retry"},
			{name: "handler panics", want: "failure/server_error/retry"},
			{name: "handler hangs, caller's deadline", want: "failure/timeout", caller: deadline},
			{name: "handler hangs, caller cancels", want: "neutral/canceled", caller: cancels(context.Canceled)},
		}, []failure{
			{name: "exit", want: "failure/connection/retry"},
			{name: "kill", want: "failure/connection/retry"},
			{name: "mute", want: "failure/connection/retry"},
			{name: "wait, caller's deadline", want: "failure/timeout", caller: deadline},
			{name: "wait, caller cancels", want: "neutral/canceled", caller: cancels(context.Canceled)},
		}
}

// TestTable_WrongAtMostOneInThirty plays every row through a session, and shows that a
// caller's cancel, and nothing else, ends a run.
func TestTable_WrongAtMostOneInThirty(t *testing.T) {
	var mu sync.Mutex
	rows, wrong := 0, []string{}
	count := func(form string, f failure, got toolhealth.Verdict) {
		mu.Lock()
		defer mu.Unlock()
		rows++
		if !fits(got, f.want) {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %s, want %s", form, f.name, verdictText(got), f.want))
		}
	}
	all := slices.Concat(statusRows(), bodyRows(), wayRows(), rpcRows())
	t.Run("rows", func(t *testing.T) {
		for form, list := range map[string][]failure{
			"legacy": slices.Concat(all, sessionRows()), "modern": all, "legacy, stream": streamRows(), "modern, stream": streamRows(),
		} {
			for _, f := range list {
				if form == "legacy" && (f.name == "404" || strings.HasPrefix(f.name, "404 with Retry")) {
					continue // there it means the session
				}
				t.Run(form+", "+f.name, func(t *testing.T) { t.Parallel(); count(form, f, playHTTP(t, form, f)) })
			}
		}
		handlers, children := localRows()
		for _, f := range handlers {
			t.Run(f.name, func(t *testing.T) { t.Parallel(); count("in process", f, playHandler(t, f)) })
		}
		for _, f := range children {
			t.Run(f.name, func(t *testing.T) { t.Parallel(); count("child", f, playChild(t, f)) })
		}
	})
	t.Logf("%d of %d rows are wrong:\n%s", len(wrong), rows, strings.Join(wrong, "\n"))
	assert.GreaterOrEqual(t, rows, 200)
	assert.LessOrEqual(t, len(wrong)*30, rows, "%d of %d rows are wrong", len(wrong), rows)
}

// playHTTP plays one row over HTTP.
func playHTTP(t *testing.T, form string, f failure) toolhealth.Verdict {
	server := newFake(t)
	server.streams.Store(strings.Contains(form, "stream"))
	way := &way{sound: &http.Transport{}}
	t.Cleanup(way.sound.CloseIdleConnections)
	client := &http.Client{Transport: httphealth.Witness(way), Timeout: f.limit}
	w := newWorld(t, func(s *toolhealth.Settings) { s.DeadlineFloor = toolhealth.Off })
	var options []mcpgohealth.Option
	if strings.HasPrefix(form, "legacy") {
		options = append(options, legacy())
	}
	s := w.dial(func(context.Context) (transport.Interface, error) {
		return transport.NewStreamableHTTP(server.url, transport.WithHTTPBasicClient(client))
	}, options...)

	way.sound.CloseIdleConnections()
	if f.way != nil {
		broken := f.way(way.sound)
		if c, ok := broken.(*http.Transport); ok {
			t.Cleanup(c.CloseIdleConnections)
		}
		way.broken.Store(&broken)
	}
	if f.answer != nil {
		server.answer(f.answer)
	}
	if f.again {
		callRow(t, s, "t", failure{})
	}
	callRow(t, s, "t", f)
	return w.last()
}

// way is the way to a server, which can be broken for calls of tools.
type way struct {
	sound  *http.Transport
	broken atomic.Pointer[http.RoundTripper] // nil: it is sound
}

func (w *way) RoundTrip(q *http.Request) (*http.Response, error) {
	if broken := w.broken.Load(); broken != nil && q.GetBody != nil {
		if body, err := q.GetBody(); err == nil {
			defer body.Close()
			var text [4096]byte
			n, _ := body.Read(text[:])
			if strings.Contains(string(text[:n]), `"tools/call"`) {
				return (*broken).RoundTrip(q)
			}
		}
	}
	return w.sound.RoundTrip(q)
}

// callRow makes the call of a row: only a caller's cancel and a pending person end the run.
func callRow(t *testing.T, s *mcpgohealth.Session, tool string, f failure) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if f.caller != nil {
		ctx, cancel = f.caller()
	}
	defer cancel()
	r, err := s.CallTool(ctx, request(tool, nil))
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) && ctx.Err() == context.Canceled {
		return // a deadline that is told as a cancel may be either
	}
	if strings.HasPrefix(f.want, "neutral/") {
		assert.Error(t, err)
		return
	}
	require.NoError(t, err)
	assert.True(t, r.IsError)
}

func playHandler(t *testing.T, f failure) toolhealth.Verdict {
	w := newWorld(t, func(s *toolhealth.Settings) { s.DeadlineFloor = toolhealth.Off })
	s := w.dial(inProcess(newServer(func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch f.name {
		case "handler returns an error":
			return nil, errors.New("no such city")
		case "handler returns -32603":
			return nil, mcp.ErrInternalError
		case "handler panics":
			panic("a mistake")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}, server.WithRecovery())))
	callRow(t, s, "t", f)
	return w.last()
}

func playChild(t *testing.T, f failure) toolhealth.Verdict {
	w := newWorld(t, func(s *toolhealth.Settings) { s.DeadlineFloor = toolhealth.Off })
	s := w.dial(newProgram(t).connect)
	tool, _, _ := strings.Cut(f.name, ",")
	callRow(t, s, tool, f)
	return w.last()
}

// fits reports whether the verdict is one of those that are wanted.
func fits(v toolhealth.Verdict, want string) bool {
	wait := v.RetryAfter
	v.RetryAfter = 0
	for one := range strings.SplitSeq(want, "|") {
		rest, stated, ok := strings.Cut(one, "/wait=")
		if verdictText(v) != rest || ok != (wait > 0) {
			continue
		}
		if d, _ := time.ParseDuration(stated); (wait - d).Abs() <= 3*time.Second {
			return true
		}
	}
	return false
}

// verdictText is a verdict in the words of a row.
func verdictText(v toolhealth.Verdict) string {
	s := v.Outcome.String()
	if v.Outcome != toolhealth.OutcomeSuccess {
		s += "/" + v.Kind.String()
	}
	if v.Retryable {
		s += "/retry"
	}
	if v.NotSent {
		s += "/notsent"
	}
	if v.RetryAfter > 0 {
		s += fmt.Sprintf("/wait=%v", v.RetryAfter)
	}
	return s
}
