package mcpgohealth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// wire is a transport that sees what the client of the SDK makes texts of. It changes
// nothing for the client, but that it marks two errors whose texts say something else.
type wire struct {
	transport.Interface
	version atomic.Value // string: the protocol version
	// suspect says that the last request had no answer: the connection may be dead.
	suspect atomic.Bool
	// lost says that the connection is dead, or that the server has forgotten the session.
	lost atomic.Bool
}

// httpWire is a wire for a transport over HTTP, which the client tells from others by its
// methods.
type httpWire struct{ *wire }

func (w httpWire) SetProtocolVersion(version string) {
	w.version.Store(version)
	w.Interface.(transport.HTTPConnection).SetProtocolVersion(version)
}

// newWire returns the wire, and the same as what the client is given.
func newWire(base transport.Interface) (*wire, transport.Interface) {
	w := &wire{Interface: base}
	if _, ok := base.(transport.HTTPConnection); ok {
		return w, httpWire{w}
	}
	return w, w
}

// SetRequestHandler hands on, if the transport has requests of the server.
func (w *wire) SetRequestHandler(handler transport.RequestHandler) {
	if base, ok := w.Interface.(transport.BidirectionalInterface); ok {
		base.SetRequestHandler(handler)
	}
}

// RequiresLegacyProtocol is asked by the client when it connects.
func (w *wire) RequiresLegacyProtocol() bool {
	base, ok := w.Interface.(interface{ RequiresLegacyProtocol() bool })
	return ok && base.RequiresLegacyProtocol()
}

// SendRequest notes what the answer says.
func (w *wire) SendRequest(ctx context.Context, q transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	r, err := w.Interface.SendRequest(ctx, q)
	switch {
	case q.Method == string(mcp.MethodSubscriptionsListen): // ends when it likes
	case err != nil:
		err = w.failed(ctx, err)
	case r != nil:
		w.answered(ctx, q.Method, r)
	}
	return r, err
}

// answered notes the code and the data of an error, of which the client keeps the text.
// What the status of an HTTP answer says comes first, and is noted already.
func (w *wire) answered(ctx context.Context, method string, r *transport.JSONRPCResponse) {
	switch {
	case r.Error == nil && len(r.Result) == 0: // any JSON, as of a gateway
		return
	case r.Error == nil:
		w.suspect.Store(false)
		return
	}
	w.suspect.Store(false)
	v := toolhealth.Classify(context.Background(), newRPCError(r.Error))
	if isConnection(v) || isConnection(toolhealth.Classify(context.Background(), r.Error.AsError())) {
		w.lost.Store(true)
	}
	note, ok := toolhealth.NoteOf(ctx)
	if method == string(mcp.MethodToolsCall) && (!ok || note.Outcome == toolhealth.OutcomeSuccess) {
		toolhealth.Note(ctx, v)
	}
}

// failed notes what a request without an answer says of the connection, and returns the
// error with a mark where its text says something else.
func (w *wire) failed(ctx context.Context, err error) error {
	v := toolhealth.Classify(context.Background(), err)
	switch {
	case errors.Is(err, transport.ErrSessionTerminated) && w.isModern():
		return &notFoundError{err}
	case errors.Is(err, transport.ErrTransportClosed), errors.Is(err, transport.ErrSessionTerminated):
		w.lost.Store(true)
	case ctx.Err() != nil: // a caller who leaves says nothing
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			w.suspect.Store(true)
		}
	case isConnection(v) && !ofNetwork(err):
		w.lost.Store(true)
	case v.Outcome == toolhealth.OutcomeFailure && v.Kind != toolhealth.KindServerError && v.Kind != toolhealth.KindRateLimited:
		w.suspect.Store(true)
	}
	if err.Error() != endOfStream {
		return err
	}
	if note, ok := toolhealth.NoteOf(ctx); ok && note.Outcome == toolhealth.OutcomeFailure {
		return toolhealth.WithVerdict(err, note)
	}
	return err
}

// gone reports whether the child of a transport over stdio has ended. The transport says so
// only to a caller, and a caller whose ctx is done makes it write nothing: then it chooses
// between its two reasons at random.
func (w *wire) gone() bool {
	switch w.Interface.(type) {
	case *transport.Stdio, *transport.CommandTransport:
	default:
		return false
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for range 16 {
		if err := w.Interface.SendNotification(done, mcp.JSONRPCNotification{}); errors.Is(err, transport.ErrTransportClosed) {
			return true
		}
	}
	return false
}

// endOfStream is what the SDK says of every stream that ends without an answer.
const endOfStream = "unexpected nil response"

// isModern reports whether the protocol has no sessions.
func (w *wire) isModern() bool {
	version, _ := w.version.Load().(string)
	return mcp.IsModernProtocol(version)
}

func isConnection(v toolhealth.Verdict) bool {
	return v.Outcome == toolhealth.OutcomeFailure && v.Kind == toolhealth.KindConnection
}

// ofNetwork reports whether a request over HTTP failed on its way. The session of the
// server, if it has one, outlives that.
func ofNetwork(err error) bool {
	var sent *url.Error
	return errors.As(err, &sent) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == endOfStream
}

// notFoundError is a 404 where there is no session that it could mean.
type notFoundError struct{ err error }

func (e *notFoundError) Error() string { return "the server answered 404 Not Found" }

func (e *notFoundError) Unwrap() error { return e.err }

func (e *notFoundError) ToolVerdict() toolhealth.Verdict {
	return toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}
}

// rpcError is an error of JSON-RPC in the shape that Classify knows.
type rpcError struct {
	Code    int64
	Message string
	Data    json.RawMessage
}

func newRPCError(e *mcp.JSONRPCErrorDetails) *rpcError {
	data, _ := json.Marshal(e.Data) // what cannot be written says nothing
	return &rpcError{Code: int64(e.Code), Message: e.Message, Data: data}
}

func (e *rpcError) Error() string { return e.Message }
