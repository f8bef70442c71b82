package verdicts

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
)

// target is a server on loopback and the way to it. Until it is armed both are
// sound; then they fail.
type target struct {
	dialect dialect
	failure *Failure
	server  *httptest.Server
	sound   http.Handler // answers MCP requests that are no tool calls; nil: the good answer of the dialect
	client  *http.Client
	base    *http.Transport
	way     http.RoundTripper // once armed
	armed   atomic.Bool
	hits    atomic.Int32 // requests that the failure has met
	extra   []*httptest.Server
	closing chan struct{}
}

// newTarget starts a server. above wraps the way to it.
func newTarget(d dialect, f *Failure, above func(http.RoundTripper) http.RoundTripper) *target {
	t := &target{dialect: d, failure: f, base: &http.Transport{}, closing: make(chan struct{})}
	t.server = httptest.NewUnstartedServer(http.HandlerFunc(t.serve))
	t.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.server.Start()
	t.client = &http.Client{Transport: above(switching{t})}
	return t
}

// arm makes the failure happen from now on.
func (t *target) arm() {
	t.base.CloseIdleConnections() // the next request has a connection of its own
	t.way = t.base
	if t.failure.Way != nil {
		t.way = t.failure.Way(t, t.base)
	}
	t.client.Timeout = t.failure.Limit
	t.armed.Store(true)
}

// close ends the server and all that hangs in it.
func (t *target) close() {
	close(t.closing)
	t.base.CloseIdleConnections()
	for _, s := range append(t.extra, t.server) {
		s.CloseClientConnections()
		s.Close()
	}
}

// switching is the sound way until the target is armed.
type switching struct{ *target }

func (s switching) RoundTrip(q *http.Request) (*http.Response, error) {
	if s.armed.Load() && s.fails(q) {
		return s.way.RoundTrip(q)
	}
	return s.base.RoundTrip(q)
}

// fails tells the requests that are to fail from those of a session's own.
func (t *target) fails(q *http.Request) bool {
	if t.sound == nil {
		return true
	}
	if q.Method != http.MethodPost || q.GetBody == nil {
		return q.URL.Path == "/login" || q.Method == http.MethodPost
	}
	body, err := q.GetBody()
	if err != nil {
		return true
	}
	defer body.Close()
	return rpcOf(body).Method == toolCall
}

const toolCall = "tools/call"

type rpcRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func rpcOf(r io.Reader) (q rpcRequest) {
	_ = json.NewDecoder(r).Decode(&q) // nothing is a request that is not looked for
	return q
}

func (t *target) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	rpc := rpcOf(bytes.NewReader(body))
	x := &exchange{w: w, r: r, id: string(rpc.ID), dialect: t.dialect, closing: t.closing}
	ours := t.sound == nil || rpc.Method == toolCall || r.URL.Path == "/login"
	switch {
	case t.armed.Load() && ours:
		t.hits.Add(1)
		if t.failure.Answer != nil {
			t.failure.Answer(x)
			return
		}
		fallthrough
	case t.sound == nil:
		x.succeed()
	default:
		t.sound.ServeHTTP(w, r)
	}
}

// secure is the address of a TLS server that no client trusts.
func (t *target) secure() string {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.extra = append(t.extra, s)
	return s.Listener.Addr().String()
}

// plain is the address of the server itself, that speaks no TLS.
func (t *target) plain() string { return t.server.Listener.Addr().String() }

// redirected sends requests by TLS to another address.
type redirected struct {
	base http.RoundTripper
	host string
}

func (d redirected) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Scheme, q.URL.Host = "https", d.host
	return d.base.RoundTrip(q)
}

func dialing(sound *http.Transport, dial func(ctx context.Context, network string) (net.Conn, error)) http.RoundTripper {
	sound.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network) }
	return sound
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

// exchange is one request and what a failure does with it.
type exchange struct {
	dialect
	w       http.ResponseWriter
	r       *http.Request
	id      string // of the JSON-RPC request
	closing <-chan struct{}
}

func (x *exchange) header(name, value string) { x.w.Header().Set(name, value) }

// say gives a whole answer.
func (x *exchange) say(status int, contentType, body string) {
	x.header("Content-Type", contentType)
	x.header("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, body)
}

// begin gives the headers and the beginning of a body.
func (x *exchange) begin(status int, contentType, part string) {
	x.header("Content-Type", contentType)
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, part)
	_ = http.NewResponseController(x.w).Flush()
}

// fail gives the provider's error for a status. An empty code is the usual one.
func (x *exchange) fail(status int, code string) {
	x.say(status, x.dialect.errorType, x.dialect.error(status, code))
}

// half is a good answer without its second half.
func (x *exchange) half() string {
	good := x.dialect.good(x.id)
	return good[:len(good)/2]
}

// succeed gives the good answer, as a stream if that was asked for.
func (x *exchange) succeed() {
	if !x.dialect.streams {
		x.say(200, "application/json", x.dialect.good(x.id))
		return
	}
	x.open()
	_, _ = io.WriteString(x.w, x.dialect.last(x.id))
}

// open begins a stream: headers and the first event.
func (x *exchange) open() {
	x.begin(200, x.dialect.streamType, x.dialect.first)
}

// event sends data as an event of a stream.
func (x *exchange) event(data string) {
	_, _ = io.WriteString(x.w, x.dialect.frame(data))
}

// fault sends an event that says an error.
func (x *exchange) fault(code string) {
	status, err := strconv.Atoi(code)
	if err != nil {
		status = 429
	} else {
		code = ""
	}
	_, _ = io.WriteString(x.w, x.dialect.fault(status, code))
}

// cut ends the connection without a word.
func (x *exchange) cut() { panic(http.ErrAbortHandler) }

// reset ends the connection by a TCP reset.
func (x *exchange) reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// raw answers with bytes that need not be HTTP.
func (x *exchange) raw(text string) {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// hang says nothing until the client has gone.
func (x *exchange) hang() {
	select {
	case <-x.r.Context().Done():
	case <-x.closing:
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
