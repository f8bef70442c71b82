package mcphealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// short is the time limit of calls that are to exceed it.
const short = 150 * time.Millisecond

// patience is the limit of an http.Client, which has to do for the making of a session.
func patience() time.Duration { return slow(500 * time.Millisecond) }

// failure is one way in which a tool call over HTTP fails.
type failure struct {
	answer func(*exchange)                                                          // what the server does; nil: it is not reached
	way    func(t testing.TB, sound *http.Transport, host string) http.RoundTripper // nil: the way is sound
	limit  time.Duration                                                            // of the http.Client
	caller func() (context.Context, context.CancelFunc)                             // nil: one that lives on
}

// exchange is one tool call and what a failure does with it.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	id     string // of the JSON-RPC request
	stream bool   // the answer is a stream
}

const (
	page      = "<html><head><title>Sign in</title></head><body>Please sign in</body></html>"
	loginPath = "/login"
	result    = `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"hello"}]}}`
)

func (x *exchange) say(code int, contentType, body string) {
	x.w.Header().Set("Content-Type", contentType)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(code)
	_, _ = io.WriteString(x.w, body)
}

func (x *exchange) begin(contentType, part string) {
	x.w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(x.w, part)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) event(data string) {
	x.begin("text/event-stream", "event: message\ndata: "+data+"\n\n")
}

// open begins a stream.
func (x *exchange) open() {
	x.event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
}

func (x *exchange) half() string {
	good := fmt.Sprintf(result, x.id)
	return good[:len(good)/2]
}

func (x *exchange) rpc(code int, id string, rpcCode int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, id, rpcCode, message, data)
	if x.stream {
		x.open()
		x.event(body)
		return
	}
	x.say(code, "application/json", body)
}

func (x *exchange) hang() { <-x.r.Context().Done() }

func (x *exchange) long(then func()) {
	x.w.Header().Set("Content-Length", "5000")
	x.begin("application/json", x.half())
	then()
}

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), short)
}

func canceling(cause error) func() (context.Context, context.CancelFunc) {
	return func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(context.Background())
		timer := time.AfterFunc(short, func() { cancel(cause) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	}
}

// failures are those of the table, by their names there.
func failures() map[string]failure {
	all := map[string]failure{
		"200 with HTML": answering(func(x *exchange) { x.say(200, "text/html", page) }),
		"302 to HTML": answering(func(x *exchange) {
			x.w.Header().Set("Location", loginPath)
			x.say(302, "text/html", "")
		}),
		"200 with HTML that says it is JSON": answering(func(x *exchange) { x.say(200, "application/json", page) }),
		"401 with HTML":                      answering(func(x *exchange) { x.say(401, "text/html", page) }),
		"429 with HTML":                      answering(func(x *exchange) { x.say(429, "text/html", page) }),
		"502 with HTML":                      answering(func(x *exchange) { x.say(502, "text/html", "<html>502 Bad Gateway</html>") }),
		"503 with JSON of a gateway":         answering(func(x *exchange) { x.say(503, "application/json", `{"message":"Service Unavailable"}`) }),
		"403 with JSON of a gateway":         answering(func(x *exchange) { x.say(403, "application/json", `{"message":"Forbidden"}`) }),
		"429 with JSON of a gateway and Retry-After: 7": answering(func(x *exchange) {
			x.w.Header().Set("Retry-After", "7")
			x.say(429, "application/json", `{"message":"Too Many Requests"}`)
		}),
		"500 with an empty body":           answering(func(x *exchange) { x.say(500, "application/json", "") }),
		"200 with an empty body":           answering(func(x *exchange) { x.say(200, "application/json", "") }),
		"200 with nonsense":                answering(func(x *exchange) { x.say(200, "application/json", "oops") }),
		"200 with JSON of another shape":   answering(func(x *exchange) { x.say(200, "application/json", `["oops"]`) }),
		"200 with half a JSON":             answering(func(x *exchange) { x.say(200, "application/json", x.half()) }),
		"200, body cut":                    answering(func(x *exchange) { x.long(func() { cut(nil, nil) }) }),
		"200, body reset":                  answering(func(x *exchange) { x.long(func() { reset(x.w, x.r) }) }),
		"200, body stalls, Client.Timeout": {limit: patience(), answer: func(x *exchange) { x.long(x.hang) }},

		"connection dropped":                            answering(func(*exchange) { cut(nil, nil) }),
		"connection reset":                              answering(func(x *exchange) { reset(x.w, x.r) }),
		"answer is not HTTP":                            answering(notHTTP),
		"redirects without end":                         answering(func(x *exchange) { x.w.Header().Set("Location", x.r.URL.Path); x.say(307, "text/plain", "") }),
		"hangs, Client.Timeout":                         {limit: patience(), answer: (*exchange).hang},
		"hangs, caller's deadline":                      {caller: deadline, answer: (*exchange).hang},
		"hangs, caller cancels":                         {caller: canceling(context.Canceled), answer: (*exchange).hang},
		"hangs, caller cancels because of its deadline": {caller: canceling(context.DeadlineExceeded), answer: (*exchange).hang},
		"hangs, caller cancels because of a sibling":    {caller: canceling(errors.New("a sibling failed")), answer: (*exchange).hang},
	}
	maps.Copy(all, broken())
	maps.Copy(all, late())
	for _, code := range []int{400, 401, 402, 403, 404, 405, 407, 408, 409, 410, 413, 422, 429, 500, 501, 502, 503, 504, 524, 529} {
		all[strconv.Itoa(code)] = answering(func(x *exchange) { status(code)(x.w, x.r) })
		all[fmt.Sprintf("%d with Retry-After: 7", code)] = answering(func(x *exchange) { status(code, "Retry-After", "7")(x.w, x.r) })
	}
	for name, data := range rpcs {
		code, message, _ := strings.Cut(strings.TrimSuffix(name, ", retryAfterSeconds 12"), " ")
		number, err := strconv.Atoi(code)
		if err != nil {
			panic(err)
		}
		all[name] = answering(func(x *exchange) { x.rpc(200, x.id, number, message, data) })
	}
	for _, name := range []string{"401", "404", "connection refused"} {
		all[name+again] = all[name]
	}
	return all
}

// late are failures of a stream that has begun, and of a session that has.
func late() map[string]failure {
	return map[string]failure{
		"stream cut":                       answering(func(x *exchange) { x.open(); cut(nil, nil) }),
		"stream reset":                     answering(func(x *exchange) { x.open(); reset(x.w, x.r) }),
		"stream stalls, Client.Timeout":    {limit: patience(), answer: func(x *exchange) { x.open(); x.hang() }},
		"stream stalls, caller's deadline": {caller: deadline, answer: func(x *exchange) { x.open(); x.hang() }},
		"stream stalls, caller cancels":    {caller: canceling(context.Canceled), answer: func(x *exchange) { x.open(); x.hang() }},
		"event with nonsense":              answering(func(x *exchange) { x.open(); x.event("oops") }),
		"event with HTML":                  answering(func(x *exchange) { x.open(); x.event(page) }),
		"event with half a JSON":           answering(func(x *exchange) { x.open(); x.event(x.half()) }),

		"session lost: 404 with text":               answering(func(x *exchange) { x.say(404, "text/plain; charset=utf-8", "session not found\n") }),
		"session lost: 404 with -32001 and id null": answering(func(x *exchange) { x.rpc(404, "null", -32001, "Session not found", "") }),
		"session lost: 404 with -32600 and id null": answering(func(x *exchange) {
			x.rpc(404, "null", -32600, "Not Found: Invalid or expired session ID", "")
		}),
		"session lost: 404 with -32600 and id server-error": answering(func(x *exchange) {
			x.rpc(404, `"server-error"`, -32600, "Not Found: Session has been terminated", "")
		}),
		"session lost: 400 with text": answering(func(x *exchange) {
			x.say(400, "text/plain; charset=utf-8", "Bad Request: No valid session ID provided")
		}),
		"session lost: 400 with -32000 and id null": answering(func(x *exchange) {
			x.rpc(400, "null", -32000, "Bad Request: No valid session ID provided", "")
		}),
	}
}

// again ends the names of rows of which a second call counts.
const again = ", then another call"

func answering(answer func(*exchange)) failure { return failure{answer: answer} }

// rpcs are errors of JSON-RPC in a good HTTP answer, with their data.
var rpcs = map[string]string{
	"-32700 Parse error": "", "-32600 Invalid Request": "", "-32601 Method not found": "", "-32602 Invalid params": "",
	"-32603 Internal error": "", "-32000 Connection closed": "", "-32001 Request timed out": "", "-32001 Session not found": "",
	"-32002 Resource not found": "", "-32004 server is closing": "", "-32021 missing capability": "",
	"-32022 unsupported protocol version": `{"supported":["2025-06-18"],"requested":"2026-07-28"}`,
	"-32029 Rate limit exceeded":          "", "-32029 Rate limit exceeded, retryAfterSeconds 12": `{"retryAfterSeconds":12}`,
	"429 Rate limit exceeded": "", "429 Rate limit exceeded, retryAfterSeconds 12": `{"retryAfterSeconds":12}`,
	"-32042 URL elicitation": `{"elicitations":[]}`, "-32800 Request cancelled": "",
	"-32600 Session terminated": "", "32600 Session terminated": "",
}

func notHTTP(x *exchange) {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, "oops\r\n\r\n")
	_ = conn.Close()
}

// broken are failures of the way to the server.
func broken() map[string]failure {
	return map[string]failure{
		"connection refused": by(func(ctx context.Context, network string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, closedPort())
		}),
		"unknown host name": noName(net.DNSError{Err: "no such host", Name: "tool.invalid", IsNotFound: true}),
		"name server fails": noName(net.DNSError{Err: "server misbehaving", Name: "tool.invalid", Server: "127.0.0.1:53", IsTemporary: true}),
		"dial times out": by(func(ctx context.Context, network string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Nanosecond}).DialContext(ctx, network, closedPort())
		}),
		"unknown certificate authority": {way: func(t testing.TB, sound *http.Transport, _ string) http.RoundTripper {
			server := silentServer(t)
			server.StartTLS()
			return secure{sound, server.Listener.Addr().String()}
		}},
		"TLS to a plain server": {way: func(_ testing.TB, sound *http.Transport, host string) http.RoundTripper {
			return secure{sound, host}
		}},
		"hangs, ResponseHeaderTimeout": {answer: (*exchange).hang, way: func(_ testing.TB, sound *http.Transport, _ string) http.RoundTripper {
			sound.ResponseHeaderTimeout = short
			return sound
		}},
	}
}

// by dials in another way.
func by(dial func(ctx context.Context, network string) (net.Conn, error)) failure {
	return failure{way: func(_ testing.TB, sound *http.Transport, _ string) http.RoundTripper {
		sound.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network) }
		return sound
	}}
}

func noName(e net.DNSError) failure {
	return by(func(_ context.Context, network string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &e} // as net.Dialer says it
	})
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

// secure sends requests by TLS to another address.
type secure struct {
	base http.RoundTripper
	host string
}

func (s secure) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Scheme, q.URL.Host = "https", s.host
	return s.base.RoundTrip(q)
}

func silentServer(t testing.TB) *httptest.Server {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	return server
}
