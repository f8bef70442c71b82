package mcphealth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// Transport returns a RoundTripper for the HTTPClient of a StreamableClientTransport. It
// does two things that the SDK does not:
//
//   - What the server says beside its answers, such as a Retry-After, gets to the guard:
//     it is a [httphealth.Witness].
//   - A bare status of 4xx or 5xx ends one call and not the session. The SDK gets an error
//     in its place: a [toolhealth.StatusError], or mcp.ErrSessionMissing if the text says
//     that the server does not know the session.
//
// Left alone are answers that the SDK understands: errors of JSON-RPC, a 404 in a session,
// and a 401 or 403 with a WWW-Authenticate, which an OAuthHandler has to see.
//
// A nil base is http.DefaultTransport.
func Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{httphealth.Witness(base)}
}

type transport struct{ base http.RoundTripper }

// maxBody is how much of a bare status's body is read, in bytes.
const maxBody = 64 << 10

// RoundTrip does what Transport says.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || !endsSession(req, res) {
		return res, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if closing := res.Body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		body = nil // the status says enough
	}
	if isAnswer(body) {
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, nil
	}
	words := textOf(res, body)
	if cannotBeReached(errors.New(words)) {
		return nil, fmt.Errorf("%w: %d: %s", mcp.ErrSessionMissing, res.StatusCode, words)
	}
	return nil, &statusError{&toolhealth.StatusError{StatusCode: res.StatusCode, Header: res.Header}, words}
}

// CloseIdleConnections closes those of the base.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// endsSession reports whether the SDK may end a session because of the answer.
func endsSession(req *http.Request, res *http.Response) bool {
	switch code := res.StatusCode; {
	case code < 400:
		return false
	case code == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "":
		return false
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return res.Header.Get("WWW-Authenticate") == ""
	}
	return true
}

// isAnswer reports whether the body is an error of JSON-RPC that the SDK can read.
func isAnswer(body []byte) bool {
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return false
	}
	answer, ok := msg.(*jsonrpc.Response)
	return ok && answer.Error != nil
}

// maxWords is the longest text of a body that is kept, in bytes.
const maxWords = 500

// textOf returns what the answer says in plain words.
func textOf(res *http.Response, body []byte) string {
	words := strings.TrimSpace(string(body))
	if words == "" || len(words) > maxWords || strings.HasPrefix(words, "<") {
		return http.StatusText(res.StatusCode)
	}
	return words
}

// statusError is a StatusError with the words of the server.
type statusError struct {
	*toolhealth.StatusError
	words string
}

func (e *statusError) Error() string {
	if e.words == "" {
		return e.StatusError.Error()
	}
	return e.words
}

func (e *statusError) Unwrap() error { return e.StatusError }
