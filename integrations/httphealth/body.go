package httphealth

import (
	"io"
	"net/http"
	"sync/atomic"
)

// listener is told of a body as it is read.
type listener interface {
	// read is called after each Read that returned bytes.
	read(p []byte)
	// ended is called once: with nil if the body was read to its end or closed, and
	// with the error if it broke off.
	ended(err error)
}

// body is the body of an answer with a listener.
type body struct {
	io.ReadCloser
	to   listener
	over atomic.Bool // the listener was told of the end
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.to.read(p[:n])
	}
	switch err {
	case nil:
	case io.EOF:
		b.end(nil)
	default:
		b.end(err)
	}
	return n, err
}

// Close tells the listener first: a Read that it interrupts has not broken off.
func (b *body) Close() error {
	b.end(nil)
	return b.ReadCloser.Close()
}

func (b *body) end(err error) {
	if !b.over.Swap(true) {
		b.to.ended(err)
	}
}

// hasBody reports whether there is a body to wait for. The body of a protocol switch is
// the connection, which the client takes as it is: it can be written to, and does not
// belong to the answer.
func hasBody(res *http.Response) bool {
	return res.Body != nil && res.Body != http.NoBody && res.StatusCode != http.StatusSwitchingProtocols &&
		(res.Request == nil || res.Request.Method != http.MethodHead)
}

// orDefault returns base, or http.DefaultTransport if it is nil.
func orDefault(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		return http.DefaultTransport
	}
	return base
}

// closeIdle closes the idle connections of a RoundTripper that has some. It makes
// http.Client.CloseIdleConnections reach through those of this package.
func closeIdle(base http.RoundTripper) {
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
