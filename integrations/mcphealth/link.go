package mcphealth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// link is one session of the SDK. It is the transport of that session, too, so that there
// is a way to end it that waits for no call.
type link struct {
	base    mcp.Transport
	session *mcp.ClientSession
	life    context.Context // ends with the session
	end     context.CancelFunc
	silent  atomic.Bool // no answer has come since a request failed for want of one

	// Under Session.mu:
	users   int  // calls in it
	retired bool // there are no new ones
	closing bool

	mu     sync.Mutex
	conn   mcp.Connection // nil before it is made
	killed bool
}

// Connect makes the connection.
func (l *link) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := l.base.Connect(ctx)
	l.mu.Lock()
	l.conn = conn
	killed := l.killed
	l.mu.Unlock()
	if killed && conn != nil {
		l.cut()
	}
	return conn, err
}

// kill ends the connection, now or as soon as it is made.
func (l *link) kill() {
	l.mu.Lock()
	l.killed = true
	made := l.conn != nil
	l.mu.Unlock()
	if made {
		l.cut()
	}
}

// cut ends a connection that is made. A child process that does not read would not notice
// that its standard input is closed.
func (l *link) cut() {
	if c, ok := l.base.(*mcp.CommandTransport); ok && c.Command.Process != nil {
		_ = c.Command.Process.Kill() // it may have ended
		return
	}
	_ = l.conn.Close() // the session that it belongs to is lost
}

// close ends the session of the SDK. It waits for the calls in it, unless they are to end
// with it.
func (l *link) close(withCalls bool) error {
	l.end()
	var err error
	if withCalls {
		err = l.conn.Close()
	}
	return errors.Join(err, l.session.Close())
}

// join returns a link for one request, which has to leave it. Its ctx is that of an
// attempt of the caller.
func (s *Session) join(ctx, caller context.Context) (*link, error) {
	if l := s.current(ctx); l != nil {
		return l, nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, unconnected(ctx, caller, ctx, ctx.Err())
	}
	defer func() { <-s.turn }()
	if l := s.current(ctx); l != nil { // another has connected meanwhile
		return l, nil
	}
	notes := toolhealth.WithNotes(dialing{ctx, caller})
	l, err := s.dial(notes)
	if err != nil {
		return nil, unconnected(ctx, caller, notes, err)
	}
	return l, nil
}

// current joins the link for new calls, if there is one that will do.
func (s *Session) current(ctx context.Context) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.link
	if l == nil {
		return nil
	}
	if l.silent.Load() && toolhealth.IsProbe(ctx) {
		s.drop(l)
		return nil
	}
	l.users++
	return l
}

// dialing is the ctx in which a session is made: it ends with the attempt and has the
// values of its caller, because the session goes on when the attempt is over.
type dialing struct {
	context.Context
	values context.Context
}

func (d dialing) Value(key any) any { return d.values.Value(key) }

var errNoTransport = errors.New("mcphealth: Server.Transport has returned nil")

// dial makes a link and joins it.
func (s *Session) dial(ctx context.Context) (*link, error) {
	base, err := s.server.Transport(ctx)
	switch {
	case err != nil:
		return nil, err
	case base == nil:
		return nil, errNoTransport
	}
	l := &link{base: base}
	stop := context.AfterFunc(ctx, l.kill) // the SDK waits for a child process that hangs
	l.session, err = s.server.Client.Connect(ctx, l, s.server.Options)
	stop()
	if err != nil {
		return nil, err
	}
	l.life, l.end = context.WithCancel(context.Background())
	s.tools.names.put(l.session, s.server.Name)
	if !s.enter(l) {
		_ = l.close(true) // nobody knows of it
		return nil, errClosed
	}
	s.tools.catalog.change(s.server.Name) // it may be another version of the server
	s.relist()
	return l, nil
}

// enter puts l in the place for new calls, and joins it.
func (s *Session) enter(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.link, l.users = l, 1
	s.links[l] = struct{}{}
	s.background.Go(func() {
		_ = l.session.Wait() // why it ended, its calls have said
		s.retire(l)
	})
	return true
}

// leave says that a request of l has returned.
func (s *Session) leave(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	s.sweep(l)
}

// retire gives l up for new calls.
func (s *Session) retire(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(l)
}

// drop is retire under the lock.
func (s *Session) drop(l *link) {
	if s.link == l {
		s.link = nil
	}
	l.retired = true
	s.sweep(l)
}

// sweep closes l if there are no calls in it and will be none.
func (s *Session) sweep(l *link) {
	if !l.retired || l.users > 0 || l.closing {
		return
	}
	l.closing = true
	delete(s.links, l)
	s.background.Go(func() { _ = l.close(false) })
}

// unconnected says what it means that no session could be made: the call was not sent,
// and no tool of the server can be reached.
func unconnected(ctx, caller, notes context.Context, err error) error {
	if err == errClosed || caller.Err() != nil {
		return err
	}
	v := toolhealth.Classify(notes, err)
	switch {
	case ctx.Err() != nil: // the attempt's time was up
		v = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true}
	case v.Outcome == toolhealth.OutcomeFailure && v.Kind != toolhealth.KindTimeout, v.Outcome == toolhealth.OutcomeSuccess:
		v.Outcome, v.Kind, v.Retryable = toolhealth.OutcomeFailure, toolhealth.KindConnection, true
	}
	v.NotSent = true
	return toolhealth.WithVerdict(err, v)
}
