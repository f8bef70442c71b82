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
	"sync/atomic"
)

// target is a server on loopback and the way to it. Until it is armed both are
// sound; then they fail.
type target struct {
	dialect dialect
	failure *Failure
	server  *httptest.Server
	sound   http.Handler // answers requests of a session that are no tool calls; nil: there are none
	end     func()       // ends what sound has begun
	client  *http.Client
	base    *http.Transport
	way     http.RoundTripper // once armed
	armed   atomic.Bool
	hits    atomic.Int32 // requests that the failure has met
	extra   []*httptest.Server
	closing chan struct{}
}

// newTarget starts a server. above wraps the way to it.
func newTarget(d dialect, f *Failure, sound sound, above func(http.RoundTripper) http.RoundTripper) *target {
	t := &target{dialect: d, failure: f, base: &http.Transport{}, closing: make(chan struct{})}
	if sound != nil {
		t.sound, t.end = sound()
	}
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

// sound returns a new server for what a session needs beside tool calls, and a
// function that ends it.
type sound func() (http.Handler, func())

// close ends the server and all that hangs in it.
func (t *target) close() {
	close(t.closing)
	t.base.CloseIdleConnections()
	for _, s := range append(t.extra, t.server) {
		s.CloseClientConnections()
		s.Close()
	}
	if t.end != nil {
		t.end()
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
	if t.sound == nil || q.URL.Path == loginPath {
		return true
	}
	if q.GetBody == nil {
		return false
	}
	body, err := q.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	return rpcOf(body).Method == toolCall
}

// loginPath is where redirects lead to.
const loginPath = "/login"

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
	if t.sound != nil && rpc.Method != toolCall && r.URL.Path != loginPath {
		t.sound.ServeHTTP(w, r)
		return
	}
	if t.armed.Load() {
		t.hits.Add(1)
	}
	if t.failure.Answer == nil {
		x.succeed()
		return
	}
	t.failure.Answer(x)
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
