package verdicts

import (
	"io"
	"net"
	"net/http"
	"strconv"
)

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
