package mcpgohealth_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// serve returns the URL of a server on loopback that lives as long as the test.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// fake is a real MCP server over HTTP whose calls of tools are answered by hand.
type fake struct {
	url     string
	sound   atomic.Pointer[server.StreamableHTTPServer]
	by      atomic.Pointer[func(*exchange)] // nil: the server itself
	streams atomic.Bool
	hits    atomic.Int32 // calls of tools
	closing chan struct{}
}

func newFake(t testing.TB) *fake {
	f := &fake{closing: make(chan struct{})}
	f.restart()
	f.url = serve(t, f)
	t.Cleanup(func() { close(f.closing) }) // runs first
	return f
}

// restart makes the server forget all sessions.
func (f *fake) restart() {
	f.sound.Store(server.NewStreamableHTTPServer(newServer(say("hello")), server.WithStateful(true)))
}

// answer answers all calls of tools from now on.
func (f *fake) answer(by func(*exchange)) *fake {
	f.by.Store(&by)
	return f
}

// heal leaves the answers to the server again.
func (f *fake) heal() { f.by.Store(nil) }

const loginPath = "/login" // where redirects lead to

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &q)
	by := f.by.Load()
	calls := q.Method == "tools/call" || r.URL.Path == loginPath
	if calls {
		f.hits.Add(1)
	}
	if by == nil || !calls {
		f.sound.Load().ServeHTTP(w, r)
		return
	}
	(*by)(&exchange{w: w, r: r, id: string(q.ID), streams: f.streams.Load(), closing: f.closing})
}

// exchange is one call of a tool and what the server does with it.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request
	id      string // of the JSON-RPC request
	streams bool
	closing <-chan struct{}
}

const jsonType, streamType = "application/json", "text/event-stream"

func (x *exchange) header(name, value string) { x.w.Header().Set(name, value) }

// say gives a whole answer.
func (x *exchange) say(status int, contentType, body string) {
	x.header("Content-Type", contentType)
	x.header("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, body)
}

// fail gives the text of a status.
func (x *exchange) fail(status int) {
	x.say(status, "text/plain; charset=utf-8", http.StatusText(status)+"\n")
}

// begin gives the headers and the beginning of a body.
func (x *exchange) begin(contentType, part string) {
	x.header("Content-Type", contentType)
	x.w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(x.w, part)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) good() string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[{"type":"text","text":"hello"}]}}`, x.id)
}

func (x *exchange) half() string { return x.good()[:len(x.good())/2] }

// open begins a stream with an event.
func (x *exchange) open() {
	x.begin(streamType, "")
	x.event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)
}

func (x *exchange) event(data string) {
	_, _ = io.WriteString(x.w, "event: message\ndata: "+data+"\n\n")
	_ = http.NewResponseController(x.w).Flush()
}

// rpc answers with an error of JSON-RPC, as a stream if that is how the server answers.
func (x *exchange) rpc(status int, id string, code int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q%s}}`, id, code, message, data)
	if x.streams {
		x.open()
		x.event(body)
		return
	}
	x.say(status, jsonType, body)
}

// cut ends the connection without a word.
func (x *exchange) cut() { panic(http.ErrAbortHandler) }

// reset ends the connection by a TCP reset.
func (x *exchange) reset() {
	conn := x.hijack()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// raw answers with bytes that need not be HTTP.
func (x *exchange) raw(text string) {
	conn := x.hijack()
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

func (x *exchange) hijack() net.Conn {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	return conn
}

// hang says nothing until the client has gone.
func (x *exchange) hang() {
	select {
	case <-x.r.Context().Done():
	case <-x.closing:
	}
}
