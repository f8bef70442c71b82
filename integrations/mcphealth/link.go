package mcphealth

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
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
	life    context.Context // ends when it is retired; of requests for which no caller waits
	end     context.CancelFunc
	silent  atomic.Bool // no answer has come since a request failed for want of one

	// Under Session.mu:
	users    int  // requests in it
	retired  bool // there are no new ones
	closing  bool
	checking bool // a goroutine asks for a sign of life

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

// dialing is a session of the SDK that is being made. It goes on when the attempt is over
// that began it, so that a server that is slow to start comes back, too.
type dialing struct {
	done chan struct{} // closed when err is known
	err  error         // nil if there is a link
}

// join returns a link for one request, which has to leave it. Its ctx is that of an
// attempt of the caller. A link that has been silent will do unless it is to be heard.
func (s *Session) join(ctx, caller context.Context, heard bool) (*link, error) {
	for {
		l, d, err := s.linkOrDialing(caller, heard)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
		case <-ctx.Done():
			return nil, tooLate(ctx, caller)
		}
	}
}

// linkOrDialing joins the link for new calls, or returns what is under way to make one.
func (s *Session) linkOrDialing(caller context.Context, heard bool) (*link, *dialing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	if l := s.link; l != nil && heard && l.silent.Load() {
		s.drop(l)
	}
	if s.link != nil {
		s.link.users++
		return s.link, nil, nil
	}
	if s.dialing == nil {
		d := &dialing{done: make(chan struct{})}
		s.dialing = d
		s.background.Go(func() { s.dial(d, caller) })
	}
	return nil, s.dialing, nil
}

// tooLate says that the time of an attempt was up before there was a session: the call was
// not sent.
func tooLate(ctx, caller context.Context) error {
	if caller.Err() != nil {
		return ctx.Err()
	}
	return toolhealth.WithVerdict(ctx.Err(), toolhealth.Verdict{
		Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true, NotSent: true,
	})
}

// valuesOf is the first ctx with the values of the second one.
type valuesOf struct {
	context.Context
	values context.Context
}

func (v valuesOf) Value(key any) any { return v.values.Value(key) }

// dial makes a link with what the ctx of the first caller has, such as its credentials.
func (s *Session) dial(d *dialing, caller context.Context) {
	limit, cancel := context.WithTimeout(s.life, cmp.Or(s.server.ConnectTimeout, defaultConnectTimeout))
	defer cancel()
	ctx := toolhealth.WithNotes(valuesOf{limit, caller})
	l, err := s.connect(ctx)
	if err == nil && !s.enter(l) {
		err = errClosed
		_ = l.close(true) // no session knows of it
	}
	if err != nil && err != errClosed {
		err = unconnected(ctx, err)
	}
	s.mu.Lock()
	s.dialing, d.err = nil, err
	s.mu.Unlock()
	close(d.done)
	if err == nil {
		s.tools.catalog.reconnect(s.server.Name)
		s.relist()
	}
}

var errNoTransport = errors.New("mcphealth: Server.Transport has returned nil")

// connect makes a link.
func (s *Session) connect(ctx context.Context) (l *link, err error) {
	defer func() {
		if p := recover(); p != nil { // of the host's code
			err = &toolhealth.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	base, err := s.server.Transport(ctx)
	switch {
	case err != nil:
		return nil, err
	case base == nil:
		return nil, errNoTransport
	}
	l = &link{base: base}
	defer context.AfterFunc(ctx, l.kill)() // the SDK waits for a child process that hangs
	l.session, err = s.server.Client.Connect(ctx, l, s.server.Options)
	if err != nil {
		return nil, err
	}
	l.life, l.end = context.WithCancel(context.Background())
	s.tools.names.put(l.session, s.server.Name)
	return l, nil
}

// unconnected says what it means that no session could be made: no call was sent, and no
// tool of the server can be reached.
func unconnected(ctx context.Context, err error) error {
	v := toolhealth.Classify(ctx, err)
	switch {
	case ctx.Err() != nil:
		v = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true}
	case v.Outcome == toolhealth.OutcomeFailure && v.Kind != toolhealth.KindTimeout, v.Outcome == toolhealth.OutcomeSuccess:
		v.Outcome, v.Kind, v.Retryable = toolhealth.OutcomeFailure, toolhealth.KindConnection, true
	}
	v.NotSent = true
	return toolhealth.WithVerdict(err, v)
}

// enter puts l in the place for new calls.
func (s *Session) enter(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.link = l
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
	l.end()
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
