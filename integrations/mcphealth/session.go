package mcphealth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
)

// Server says how to reach a server; see [Tools.Open].
type Server struct {
	// Name is the first part of the names of its tools, and their group. It must not be
	// empty and has no "/".
	Name string
	// Client makes the sessions. Without one of [Tools.NewClient], nothing is heard of
	// progress, of persons who are asked and of lists that have changed.
	Client *mcp.Client
	// Transport returns a way to the server, a new one each time: an exec.Cmd cannot be
	// started twice. Its ctx ends when the session is made: do not start a process with it.
	Transport func(ctx context.Context) (mcp.Transport, error)
	// ConnectTimeout is how long it may take to make a session, a minute by default. A call
	// waits no longer than its own time; what it has begun is there for the next call.
	ConnectTimeout time.Duration
	// Options are those of each session; nil means none.
	Options *mcp.ClientSessionOptions
}

func (s *Server) validate() error {
	switch {
	case s.Name == "" || strings.Contains(s.Name, separator):
		return fmt.Errorf("mcphealth: Server.Name is %q: it must not be empty or contain %q", s.Name, separator)
	case s.Client == nil:
		return fmt.Errorf("mcphealth: Server.Client of %q is nil", s.Name)
	case s.Transport == nil:
		return fmt.Errorf("mcphealth: Server.Transport of %q is nil", s.Name)
	case s.ConnectTimeout < 0:
		return fmt.Errorf("mcphealth: Server.ConnectTimeout of %q is %v: it must not be negative", s.Name, s.ConnectTimeout)
	}
	return nil
}

// Session is a session of one server that comes back. It connects when it is first
// needed, after the session was lost, and before a probe and a list if nothing has been
// heard of the server since a call failed for want of an answer, not even an answer to the
// ping that follows. What the SDK's session knew is lost then, and so is what the server
// kept for it.
//
// A call that does not return when its attempt is over ends the session: the child
// process, which does not read its standard input, is killed. A session that is given up
// otherwise ends when the last call in it has returned.
//
// All methods may be called from any goroutine.
type Session struct {
	tools  *Tools
	server Server
	life   context.Context // ends with Close
	end    context.CancelFunc

	mu      sync.Mutex
	link    *link              // for new calls; nil if the next one has to connect
	dialing *dialing           // what is under way to make one
	links   map[*link]struct{} // that are not closed
	listing bool               // a goroutine asks for the list of tools
	closed  bool

	background sync.WaitGroup // begun under mu while it is not closed
}

const defaultConnectTimeout = time.Minute

// Open returns a session of a server, without connecting. The error names what is wrong
// with s, or says that a session of that name is open. Close it.
func (t *Tools) Open(s Server) (*Session, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.Name] != nil {
		return nil, fmt.Errorf("mcphealth: a session of the server %q is open", s.Name)
	}
	if t.sessions == nil {
		t.sessions = make(map[string]*Session)
	}
	session := &Session{tools: t, server: s, links: make(map[*link]struct{})}
	session.life, session.end = context.WithCancel(context.Background())
	t.sessions[s.Name] = session
	t.catalog.know(s.Name)
	return session, nil
}

// Close ends the session, and calls that are under way with it. It waits until the SDK
// has ended its own, which may take as long as TerminateDuration says for a child process
// that does not leave.
func (s *Session) Close() error {
	s.tools.mu.Lock()
	if s.tools.sessions[s.server.Name] == s {
		delete(s.tools.sessions, s.server.Name)
	}
	s.tools.mu.Unlock()

	s.mu.Lock()
	s.closed, s.link = true, nil
	var last []*link
	for l := range s.links {
		if !l.closing {
			l.closing, l.retired = true, true
			last = append(last, l)
		}
	}
	s.mu.Unlock()
	s.end()
	var errs []error
	for _, l := range last {
		errs = append(errs, l.close(true))
	}
	s.background.Wait()
	return errors.Join(errs...)
}

var errClosed = toolhealth.WithVerdict(errors.New("mcphealth: the session is closed"),
	toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, NotSent: true})

// CallTool makes one guarded call. The result is what the model may see: a refusal and a
// failure are results, too. An error ends the run: the caller is gone, or a person has to
// be asked. The params are not changed.
func (s *Session) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	if params == nil {
		params = new(mcp.CallToolParams)
	}
	if s.isClosed() {
		return nil, errClosed
	}
	return s.tools.call(ctx, s.server.Name, params, func(attempt context.Context, tool string, p *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		return s.attempt(attempt, ctx, tool, p)
	})
}

// ListTools returns all tools of the server. It is not guarded: give the ctx a deadline.
// See [Tools.Offer] for those to show to the model.
func (s *Session) ListTools(ctx context.Context) ([]*mcp.Tool, error) {
	for again := true; ; again = false {
		l, err := s.join(ctx, ctx, true)
		if err != nil {
			return nil, err
		}
		tools, err := s.list(ctx, l)
		s.heard(l, err)
		s.leave(l)
		if err == nil || !again || !lost(err) || ctx.Err() != nil {
			return tools, err
		}
	}
}

// Name returns the name under which a tool of the server is known.
func (s *Session) Name(tool string) string { return fullName(s.server.Name, tool) }

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// attempt makes one attempt, within the ctx of a caller. If it turns out that the session
// was lost before, it connects and sends the call then.
func (s *Session) attempt(ctx, caller context.Context, tool string, p *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	for again := true; ; again = false {
		l, err := s.join(ctx, caller, toolhealth.IsProbe(ctx))
		if err != nil {
			return nil, err
		}
		res, err := s.send(ctx, l, tool, p)
		if err == nil || !again || !lost(err) || !unsent(err) || ctx.Err() != nil {
			return res, err
		}
	}
}

// send makes a call in l, and leaves it.
func (s *Session) send(ctx context.Context, l *link, tool string, p *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	defer s.leave(l)
	defer s.watch(ctx, l)()
	flight, q, done := s.tools.flights.begin(ctx, l.session, tool, p)
	defer done()
	res, err := l.session.CallTool(flight, q)
	s.heard(l, err)
	return res, err
}

// heard takes notice of how a request of l ended.
func (s *Session) heard(l *link, err error) {
	switch {
	case err == nil:
		l.silent.Store(false)
	case lost(err):
		s.retire(l)
	case isSilence(err):
		l.silent.Store(true)
		s.check(l)
	case saidBy(err) != nil:
		l.silent.Store(false)
	}
}

// checkTime is how long a server may take to answer a ping.
const checkTime = 5 * time.Second

// check asks for a sign of life: a slow tool is no dead server. Any answer is one.
func (s *Session) check(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || l.retired || l.checking {
		return
	}
	l.checking = true
	l.users++
	s.background.Go(func() {
		defer s.leave(l)
		ctx, cancel := context.WithTimeout(l.life, checkTime)
		defer cancel()
		err := s.ping(ctx, l)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.checking = false
		if l.life.Err() == nil && (err == nil || !isSilence(err)) {
			l.silent.Store(false)
		}
	})
}

func (s *Session) ping(ctx context.Context, l *link) error {
	defer s.watch(ctx, l)()
	return l.session.Ping(ctx, nil)
}

// grace is how long a call may take to notice that its attempt is over.
const grace = 100 * time.Millisecond

// watch ends l if a request does not return when its ctx is done: it hangs in a pipe that
// the child does not read, where no ctx reaches it. stop is called when the request has returned.
func (s *Session) watch(ctx context.Context, l *link) (stop func()) {
	returned := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		select {
		case <-returned:
		case <-time.After(grace):
			s.retire(l)
			l.kill()
		}
	})
	return func() {
		unwatch()
		close(returned)
	}
}

// list asks for all tools of the server.
func (s *Session) list(ctx context.Context, l *link) ([]*mcp.Tool, error) {
	defer s.watch(ctx, l)()
	var tools []*mcp.Tool
	for cursor := ""; ; {
		p := &mcp.ListToolsParams{Cursor: cursor}
		page, err := l.session.ListTools(context.WithValue(ctx, inFlight{}, p), p)
		if err != nil {
			return nil, err
		}
		s.tools.catalog.learn(s.server.Name, cursor, page.Tools, page.NextCursor)
		tools = append(tools, page.Tools...)
		if cursor = page.NextCursor; cursor == "" {
			return tools, nil
		}
	}
}

// listTime is how long a server may take to tell its tools, where no caller waits.
const listTime = 30 * time.Second

// relist asks for the list of tools, on a goroutine of its own, until it is known.
func (s *Session) relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.link
	if s.closed || s.listing || l == nil { // who connects asks for the list
		return
	}
	s.listing = true
	l.users++
	s.background.Go(func() {
		defer s.leave(l)
		ctx, cancel := context.WithTimeout(l.life, listTime)
		defer cancel()
		for {
			_, err := s.list(ctx, l)
			s.mu.Lock()
			if err != nil || s.tools.catalog.isFresh(s.server.Name) {
				s.listing = false
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
		}
	})
}
