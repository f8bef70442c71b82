package mcpgohealth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// Connect makes a transport that is not started yet: a new one each time, because a
// transport is good for one connection. ctx is done when the connection ends.
type Connect func(ctx context.Context) (transport.Interface, error)

// Session is a session with a server, and a client.MCPClient. CallTool is guarded; the other
// methods are not. Any method connects again if the connection is lost: the child process
// has ended, the server has forgotten the session, or a call has not returned half a second
// after its ctx was done, because the child does not read. A call that is a probe also
// connects again if the last request had no answer. Calls that are running on a connection
// that is not lost end there.
//
// All methods may be called from any goroutine. A Session has to be closed.
type Session struct {
	guard   *toolhealth.Guard
	connect Connect
	verify  toolhealth.CallOption[*mcp.CallToolResult]
	*options

	known known

	mu       sync.Mutex
	conn     *conn          // nil: the next call connects
	dialing  *dialing       // nil: no connection is being made
	conns    map[*conn]bool // that have not ended
	closed   bool
	handlers []func(mcp.JSONRPCNotification)
}

var _ client.MCPClient = (*Session)(nil)

// errClosed is the error of every method of a Session that is closed.
var errClosed = toolhealth.WithVerdict(errors.New("mcpgohealth: the session is closed"),
	toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, NotSent: true})

// Dial connects to a server, reads the list of its tools and returns a Session whose calls
// the guard guards. ctx is for the first connection only. An error is a mistake in the
// arguments, or that of the connection; then there is nothing to close.
func Dial(ctx context.Context, guard *toolhealth.Guard, connect Connect, list ...Option) (*Session, error) {
	o := newOptions(list)
	switch {
	case connect == nil:
		return nil, errors.New("mcpgohealth: Dial: connect is nil")
	case strings.Contains(o.server, separator):
		return nil, fmt.Errorf("mcpgohealth: Dial: Server %q has a %q in it", o.server, separator)
	}
	s := &Session{guard: guard, connect: connect, options: o, verify: toolhealth.CheckResult(o.verify),
		conns: map[*conn]bool{}}
	c, err := s.acquire(ctx, false)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.release(c)
	return s, nil
}

// Server returns the name of the server, as the guard knows it.
func (s *Session) Server() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// CallTool makes a guarded call of the tool "server/tool". The error is not nil only if the
// caller has gone, or if a person has to be asked first; see the package's comment. A
// substitute serves if it is a tool of this server.
//
// A name that is not in the server's list is sent without the guard, so that the model reads
// what the server says of it, and no health is kept of names that a model invents.
func (s *Session) CallTool(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if s.known.lacks(q.Params.Name) {
		return s.callUnknown(ctx, q)
	}
	name := s.Server()
	r, err := toolhealth.Call(ctx, s.guard, join(name, q.Params.Name), func(ctx context.Context, served string) (*mcp.CallToolResult, error) {
		server, tool := split(served)
		if server != name {
			return nil, errElsewhere
		}
		return s.attempt(ctx, tool, q)
	}, s.verify)
	if err == nil || own(r, err) {
		return r, nil
	}
	return s.soften(err)
}

// callUnknown calls a tool that is not in the list.
func (s *Session) callUnknown(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if !s.guard.Registry().Available(join(s.Server(), q.Params.Name)) {
		return s.soften(toolhealth.ErrUnknownTool)
	}
	r, err := s.attempt(ctx, q.Params.Name, q)
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return s.soften(err)
}

// attempt makes one call.
func (s *Session) attempt(ctx context.Context, tool string, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c, err := s.acquire(ctx, toolhealth.IsProbe(ctx))
	if err != nil {
		return nil, err
	}
	defer s.release(c)
	defer s.watch(ctx, c)()
	q.Params.Name = tool
	ctx, done := c.calls.begin(ctx, &q)
	defer done()
	r, err := c.client.CallTool(ctx, q)
	if err != nil && s.isClosed() { // which ends running calls, and is no fault of the tool
		err = errClosed
	}
	return r, err
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// do makes a call that is not guarded.
func do[Out any](ctx context.Context, s *Session, call func(*client.Client) (Out, error)) (Out, error) {
	c, err := s.acquire(ctx, false)
	if err != nil {
		var none Out
		return none, err
	}
	defer s.release(c)
	defer s.watch(ctx, c)()
	return call(c.client)
}

// acquire returns a connection that is not known to be lost, and for a probe one that is
// not suspect. It has to be released.
func (s *Session) acquire(ctx context.Context, probe bool) (*conn, error) {
	for range 3 { // a server may take a connection and drop it at once
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, d, err := s.take(ctx, probe)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, s.lateError(ctx)
		}
	}
	return nil, s.dialError(ctx, transport.ErrTransportClosed)
}

// take returns the present connection, or a new one that the caller has to wait for.
func (s *Session) take(ctx context.Context, probe bool) (*conn, *dialing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	switch {
	case s.closed:
		return nil, nil, errClosed
	case s.dialing != nil:
		return nil, s.dialing, nil
	case c == nil:
		return nil, s.dial(ctx), nil
	case c.wire.lost.Load(), probe && c.wire.suspect.Load(), c.wire.gone():
		s.conn, c.retired = nil, true
		s.endUnused(c)
		return nil, s.dial(ctx), nil
	}
	c.users++
	return c, nil, nil
}

// dialed makes a new connection the present one, or tells those who wait why there is none.
func (s *Session) dialed(c *conn, d *dialing, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing = nil
	switch {
	case s.closed: // which has ended the connection
		d.err = errClosed
	case err != nil:
		d.err = err
	default:
		s.conn = c
		s.follow(c)
	}
	close(d.done)
}

func (s *Session) release(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users--
	s.endUnused(c)
}

// endUnused ends a retired connection that no call holds. The caller holds mu.
func (s *Session) endUnused(c *conn) {
	if c.retired && c.users == 0 {
		c.end()
	}
}

// drop ends a connection at once, with all calls on it.
func (s *Session) drop(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		s.conn = nil
	}
	c.retired = true
	if c.wire != nil {
		c.wire.lost.Store(true)
	}
	c.end()
}

// ended forgets a connection.
func (s *Session) ended(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Close ends the session and all calls that are running, and waits for the end of what it
// has started: a child that does not go by itself is killed after a while. It returns nil.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed, s.conn = true, nil
	var ends []*conn
	for c := range s.conns {
		c.end()
		ends = append(ends, c)
	}
	s.mu.Unlock()
	for _, c := range ends {
		<-c.over
	}
	return nil
}

// classify says what an error means to the guard.
func (s *Session) classify(ctx context.Context, err error) toolhealth.Verdict {
	if gate := s.guard.Gate(); gate != nil && gate.Classify != nil {
		return gate.Classify(ctx, err)
	}
	return toolhealth.Classify(ctx, err)
}
