package grpchealth

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolhealth/toolhealth"
)

// Stream is [Unary] for streams. A stream that was opened counts when it ends:
//
//   - It was read to its end, or the one answer of a client stream has come: a success.
//   - RecvMsg, SendMsg or Header has returned an error: what the error means. The io.EOF
//     of SendMsg is none; the RecvMsg that has to follow tells.
//   - The deadline of the caller's ctx passes while one of these waits: a timeout.
//   - Its reader has left it: neutral. The reader's ctx is done while the reader is busy
//     elsewhere, or the stream was dropped and the garbage collector has found it; grpc
//     itself would keep a dropped stream until its ctx is done.
//
// Each message that comes, and the header, renews the lease of a probe, and the Timeout
// of a Guard's attempt. A message that is sent does not: it may lie in a buffer.
//
// A stream without an end is a bad probe, because it reports nothing as long as it works:
// open it with a ctx of [toolhealth.WithoutProbe]. The time of a stream is that until it
// ends, which SlowCallDuration should allow.
func Stream(gate *toolhealth.Gate, name func(method string) string) grpc.StreamClientInterceptor {
	gate, name = plain(gate), namer(name)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		c := &streamCall{ctx: ctx}
		var err error
		if c.permit, err = admit(ctx, gate, name(method)); err != nil {
			return nil, notAdmitted(ctx, err)
		}
		opened := false
		inner, cancel := context.WithCancel(ctx)
		defer func() {
			if !opened { // open failed, panics or ends the goroutine
				cancel()
				c.permit.Release()
			}
		}()
		base, err := open(inner, desc, cc, method, opts...)
		if err != nil {
			err = see(err, false, false)
			report(ctx, &c.permit, err)
			return nil, err
		}
		opened = true
		c.cancel = cancel
		return c.follow(base, !desc.ServerStreams), nil
	}
}

// streamCall is an admitted call whose stream is open. It does not lead to the stream.
type streamCall struct {
	ctx    context.Context // the caller's
	cancel context.CancelFunc
	permit toolhealth.Permit
	busy   atomic.Int32 // calls of methods of the stream that are running; each ends soon after ctx
	over   atomic.Bool  // it is settled
	unwait func() bool  // ends the wait for the end of ctx
}

// follow returns the stream that its reader gets.
func (c *streamCall) follow(base grpc.ClientStream, single bool) *clientStream {
	s := &clientStream{ClientStream: base, call: c, single: single}
	runtime.AddCleanup(s, func(c *streamCall) {
		if !c.over.Load() {
			c.unwait()
			go c.leave() // it may call hooks
		}
	}, c)
	// That of the stream would be the wrong ctx: to ask for it ends grpc's retries.
	c.unwait = context.AfterFunc(c.ctx, c.ctxDone)
	return s
}

// end settles the call with what its stream says.
func (c *streamCall) end(err error) {
	if !c.over.Swap(true) {
		report(c.ctx, &c.permit, err)
		c.unwait()
		c.cancel()
	}
}

// ctxDone settles a call whose ctx is done, unless a method of the stream is about to do
// so. It may run before unwait is set.
func (c *streamCall) ctxDone() {
	if c.busy.Load() == 0 {
		c.leave()
	}
}

// ctxErr is the error of grpc for a ctx that is done.
func (c *streamCall) ctxErr() error { return status.FromContextError(c.ctx.Err()).Err() }

// leave settles a call whose reader has left it: that says nothing about the tool.
func (c *streamCall) leave() {
	if !c.over.Swap(true) {
		toolhealth.Note(c.ctx, left)
		c.permit.Settle(left)
		c.cancel()
	}
}

var left = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}

// alive says that something has come.
func (c *streamCall) alive() {
	c.permit.KeepAlive()
	toolhealth.KeepAlive(c.ctx)
}

// clientStream is a stream that tells its call how it goes.
type clientStream struct {
	grpc.ClientStream
	call   *streamCall
	single bool // there is one answer, and RecvMsg returns it with the end of the stream
}

func (s *clientStream) RecvMsg(m any) error {
	defer s.enter()()
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == io.EOF, err == nil && s.single:
		s.call.end(nil)
	case err != nil:
		return s.fail(err)
	default:
		s.call.alive()
	}
	return err
}

func (s *clientStream) Header() (metadata.MD, error) {
	defer s.enter()()
	header, err := s.ClientStream.Header()
	switch {
	case err != nil:
		err = s.fail(err)
	case len(header) > 0:
		s.call.alive()
	case s.call.ctx.Err() != nil: // it waited in vain; without a header RecvMsg has the error
		s.call.end(s.call.ctxErr())
	}
	return header, err
}

func (s *clientStream) SendMsg(m any) error {
	defer s.enter()()
	err := s.ClientStream.SendMsg(m)
	switch {
	case err == io.EOF && s.call.ctx.Err() != nil: // it waited in vain
		s.call.end(s.call.ctxErr())
	case err != nil && err != io.EOF:
		return s.fail(err)
	}
	return err
}

// enter is called before a method of the stream that may wait, and what it returns after.
func (s *clientStream) enter() (leave func()) {
	c := s.call
	c.busy.Add(1)
	return func() {
		if c.busy.Add(-1) == 0 && c.ctx.Err() != nil {
			c.ctxDone() // which may have left it to this method
		}
		runtime.KeepAlive(s) // so that it is not collected meanwhile
	}
}

// fail settles the call with an error that has ended the stream, and returns it.
func (s *clientStream) fail(err error) error {
	header, _ := s.ClientStream.Header() // does not wait: the stream is over
	err = see(err, len(header) > 0, len(s.ClientStream.Trailer()) > 0)
	s.call.end(err)
	return err
}
