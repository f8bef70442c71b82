package mcpgohealth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolhealth/toolhealth"
)

// conn is one connection to the server. It ends once, whoever ends it.
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
	workers sync.WaitGroup // added to only under mu, while not ending

	users   int  // calls that hold it; guarded by Session.mu
	retired bool // ends with its last user; guarded by Session.mu

	list relisting
}

// start makes the client and connects. If ctx is done before, the connection ends.
func (s *Session) start(ctx context.Context) (c *conn, err error) {
	c = &conn{session: s, over: make(chan struct{})}
	c.life, c.cancel = context.WithCancel(context.Background())
	if err = s.began(c); err != nil {
		c.cancel()
		return c, err
	}
	stop := context.AfterFunc(ctx, c.cancel)
	defer func() {
		if stop(); err != nil {
			c.cancel() // the child has nothing to finish
			c.end()
		}
	}()
	base, err := s.connect(c.life)
	if err == nil && base == nil {
		err = fmt.Errorf("mcpgohealth: connect has returned neither a transport nor an error")
	}
	if err != nil {
		return c, err
	}
	if err = c.set(s, base); err != nil {
		return c, err
	}
	defer s.watch(ctx, c)()
	if err = c.client.Start(c.life); err != nil {
		return c, err
	}
	c.client.OnNotification(func(n mcp.JSONRPCNotification) { s.notified(c, n) })
	if c.hello, err = c.client.Initialize(ctx, s.hello); err != nil {
		return c, err
	}
	if err = s.list(ctx, c); err != nil {
		return c, err
	}
	if !stop() {
		return c, context.Cause(ctx)
	}
	return c, nil
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

// end ends the connection in the background. A connection that may be dead ends by force:
// its child is killed first, because it may not read that it should go.
func (c *conn) end() {
	c.once.Do(func() {
		c.mu.Lock()
		c.ending = true
		w, made := c.wire, c.client
		c.mu.Unlock()
		go func() {
			defer close(c.over)
			if w == nil || w.lost.Load() || w.suspect.Load() {
				c.cancel()
			}
			if made != nil {
				_ = made.Close()
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
// sent. What the server itself has answered, such as a 401, keeps its meaning, and so does
// a ctx that is done.
func (s *Session) dialError(ctx context.Context, err error) error {
	wrapped := fmt.Errorf("mcpgohealth: cannot connect to server %q: %w", s.server, err)
	if ctx.Err() != nil {
		return wrapped
	}
	v := s.classify(ctx, err)
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
