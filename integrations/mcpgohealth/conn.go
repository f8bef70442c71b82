package mcpgohealth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// conn is one connection to the server. It ends once: the first that ends it does.
type conn struct {
	session *Session
	client  *client.Client
	wire    *wire
	hello   *mcp.InitializeResult
	calls   calls

	life   context.Context // done when the connection ends; a child is killed then
	cancel context.CancelFunc
	once   sync.Once
	over   chan struct{} // closed when nothing of the connection is left

	mu      sync.Mutex // for ending, and for client and wire while the connection is made
	ending  bool
	made    bool           // it is not being made any more
	workers sync.WaitGroup // added to only under mu, while not ending

	users   int  // calls that hold it; guarded by Session.mu
	retired bool // ends with its last user; guarded by Session.mu

	list relisting
}

// dialing is the making of a connection, for which calls wait.
type dialing struct {
	done chan struct{} // closed when err is set
	err  error
}

// dialTimeout bounds the making of a connection.
const dialTimeout = 30 * time.Second

// dial makes a connection in the background, so that a call that does not wait until a slow
// child has started leaves it to the next one. The caller holds mu.
func (s *Session) dial(ctx context.Context) *dialing {
	c := &conn{session: s, over: make(chan struct{})}
	c.life, c.cancel = context.WithCancel(context.Background())
	d := &dialing{done: make(chan struct{})}
	s.conns[c], s.dialing = true, d
	ctx = context.WithoutCancel(ctx) // its values may be what an HTTP header is made of
	c.work(func() {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		err := s.start(ctx, c)
		if err != nil {
			err = s.dialError(ctx, err)
			c.end()
		}
		s.dialed(c, d, err)
	})
	return d
}

// start makes the client of a connection and connects.
func (s *Session) start(ctx context.Context, c *conn) error {
	stop := context.AfterFunc(ctx, c.cancel)
	defer stop()
	base, err := s.connect(c.life)
	if err == nil && base == nil {
		err = errors.New("mcpgohealth: connect has returned neither a transport nor an error")
	}
	if err != nil {
		return err
	}
	if err := c.set(s, base); err != nil {
		return err
	}
	defer s.watch(ctx, c)()
	if err := c.client.Start(c.life); err != nil {
		return err
	}
	c.client.OnNotification(func(n mcp.JSONRPCNotification) { s.notified(c, n) })
	if c.hello, err = c.client.Initialize(ctx, s.hello); err != nil {
		return err
	}
	if err := s.list(ctx, c); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = true
	return nil
}

// set makes the client, unless the session is closed meanwhile.
func (c *conn) set(s *Session, base transport.Interface) error {
	w, way := newWire(base)
	made := client.NewClient(way, s.clientOptions(c)...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		_ = made.Close()
		return errClosed
	}
	c.wire, c.client = w, made
	return nil
}

// clientOptions returns the options of the client of a connection.
func (s *Session) clientOptions(c *conn) []client.ClientOption {
	list := s.client
	if s.elicit != nil {
		list = append(list[:len(list):len(list)], client.WithElicitationHandler(&pausing{s.elicit, c}))
	}
	return list
}

// work runs f on a goroutine that the end of the connection waits for, unless that has
// begun. f has to return when life is done.
func (c *conn) work(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ending {
		c.workers.Go(f)
	}
	return !c.ending
}

// end ends the connection in the background. One that may be dead, or is being made, ends
// by force: its child is killed first, because it may not read that it should go.
func (c *conn) end() {
	c.once.Do(func() {
		c.mu.Lock()
		c.ending = true
		made, w, open := c.made, c.wire, c.client
		c.mu.Unlock()
		go func() {
			defer close(c.over)
			if !made || w.lost.Load() || w.suspect.Load() {
				c.cancel()
			}
			if open != nil {
				_ = open.Close()
			}
			c.cancel()
			c.workers.Wait()
			c.session.ended(c)
		}()
	})
}

// grace is how long a call may take to return after its ctx is done. One that takes longer
// is stuck, as a write to a child that does not read is.
const grace = 500 * time.Millisecond

// watch drops the connection if the call does not return after its ctx is done. The call
// has to call returned.
func (s *Session) watch(ctx context.Context, c *conn) (returned func()) {
	back := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-back:
		case <-timer.C:
			s.drop(c)
		}
	})
	return func() {
		stop()
		close(back)
	}
}

// dialError returns the error of a connection that could not be made, with what it means
// for the tool that was to be called: the server cannot be reached, and the call was not
// sent. What the server itself has answered, such as a 401, keeps its meaning.
func (s *Session) dialError(ctx context.Context, err error) error {
	wrapped := fmt.Errorf("mcpgohealth: cannot connect to server %q: %w", s.Server(), err)
	v := s.classify(context.WithoutCancel(ctx), err) // the time of the call is not that of the dial
	if v.Outcome != toolhealth.OutcomeFailure {
		return toolhealth.WithVerdict(wrapped, v)
	}
	switch v.Kind {
	case toolhealth.KindUnknown, toolhealth.KindCanceled, toolhealth.KindNotFound:
		v.Kind = toolhealth.KindConnection
	}
	v.NotSent = true
	return toolhealth.WithVerdict(wrapped, v)
}

// lateError returns the error of a call that has not waited for the connection. If its
// Timeout has ended it, and not its caller, it was surely not sent.
func (s *Session) lateError(ctx context.Context) error {
	err := fmt.Errorf("mcpgohealth: no connection to server %q in time: %w", s.Server(), ctx.Err())
	deadline, ok := ctx.Deadline()
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || ok && !time.Now().Before(deadline) {
		return err
	}
	return toolhealth.WithVerdict(err, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, Retryable: true, NotSent: true})
}
