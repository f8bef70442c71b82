package toolhealth

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Begin makes a guarded call that goes on after fn has returned, such as one that opens
// a stream or the body of an answer. It retries and goes on to substitutes as [Call]
// does, until fn returns without an error: then the call is open, and the outcome is what
// its [Flight] is told at the end. The ctx that fn was given stays alive until then.
//
//	body, flight, err := toolhealth.Begin(ctx, guard, "search", open)
//	if err != nil {
//		return err
//	}
//	_, err = io.Copy(w, body)
//	body.Close()
//	return flight.Done(err)
//
// After Begin has returned, nothing is repeated. The time that counts for the tool, and
// for SlowCallDuration, ends when fn returns; the call counts as in flight until the
// Flight ends, and that is when Observe hears of it. A [CallInfo] is complete when Begin
// returns.
//
// The Flight is nil if the call is not open: if err is not nil, if a [Partial] handler
// has answered, and if the error of fn is one that the Gate's Classify calls a success.
//
// With Detach, the call does not wait for an fn that is late; what such an fn opens later
// is dropped, and its ctx is done. A tool with SideEffects may have acted once it is open.
func Begin[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), options ...CallOption[Out]) (Out, *Flight, error) {
	return begun(ctx, g, tool, fn, optionsOf(options), nil)
}

// Begin makes a guarded call that goes on after the function has returned; see the
// function [Begin].
func (t *Tool[In, Out]) Begin(ctx context.Context, in In) (Out, *Flight, error) {
	if t == nil {
		t = t.copy()
	}
	return begun(ctx, t.guard, t.wiring.tool, func(ctx context.Context, serving string) (Out, error) {
		return t.run(ctx, serving, in)
	}, &t.options, &t.wiring)
}

// begun makes a call for Begin, and for a Tool, which has a wiring.
func begun[Out any](ctx context.Context, g *Guard, tool string, fn func(ctx context.Context, tool string) (Out, error), o *callOptions[Out], w *wiring) (out Out, flight *Flight, err error) {
	f := new(openCall)
	c := &f.call
	c.begin(ctx, g, tool)
	c.wiring, c.stays = w, true
	defer func() {
		if flight == nil && c.open { // a hook has ended the goroutine
			f.expire()
		}
	}()
	failure := c.run(func() (err error) {
		out, err = attempt(c, fn, o)
		return err
	})
	switch {
	case c.open:
		return out, f.launch(), nil
	case failure == nil:
		return out, nil, c.lastErr
	}
	if part, ok := lastResort(c, o, failure); ok {
		return part, nil, nil
	}
	return out, nil, failure
}

// Flight is a guarded call that is open; [Begin] makes it. The caller of Begin ends it
// with Done, whatever becomes of the result.
//
// A Flight that Done does not end settles as neutral, without a verdict on the tool, and
// frees the probe that it may be: when the caller's ctx is canceled, and a moment after
// the caller's deadline, the Timeout without a sign of life or MaxDuration has ended its
// ctx, so that a reader who is told of that can say so. One that is garbage settles when
// it is collected; its ctx, which a reader may still use, ends as these say.
//
// All methods may be called from any goroutine, and do nothing on a nil or zero Flight.
type Flight struct {
	open *openCall // does not lead back to the Flight
}

// lateness is how long a Flight whose ctx is done waits for Done. A reader whose ctx
// ends needs less.
const lateness = 100 * time.Millisecond

// KeepAlive is [KeepAlive] for the ctx of the attempt: a piece of the stream has come.
func (f *Flight) KeepAlive() {
	if f != nil && f.open != nil {
		f.open.call.frame.Attempt.KeepAlive()
	}
}

// Done ends the Flight, and its ctx. Nil means that all went well; any other error is
// classified like that of a tool function: a stream that is cut is a failure, a reader
// who leaves because the caller's ctx is canceled is neutral. The end of a stream is no
// error, so do not hand in io.EOF. The first Done counts, and one after the Flight has
// settled by itself does nothing.
//
// Done returns what the call has come to, for [ModelText]: nil if all went well, else a
// *[ToolError]. One that does nothing returns err as it is, so a reader that is told of the
// end of its ctx has an error also if the Flight has settled before.
func (f *Flight) Done(err error) error {
	if f == nil || f.open == nil {
		return err
	}
	defer runtime.KeepAlive(f) // so that it is not collected before the claim
	if !f.open.claim() {
		return err
	}
	f.open.unwatch()
	if failure := f.open.end(err); failure != nil {
		return failure
	}
	return nil
}

// Tool returns the name of the tool that serves: a substitute's if it stands in. It is
// "" on a nil Flight.
func (f *Flight) Tool() string {
	if f == nil || f.open == nil {
		return ""
	}
	return f.open.call.tool
}

// openCall is a call of Begin. Once it is open, only the goroutine that claims it changes
// it.
type openCall struct {
	call
	claimed atomic.Bool
	unwatch func() bool // ends the wait for the end of the ctx
}

func (o *openCall) claim() bool { return o.claimed.CompareAndSwap(false, true) }

// launch returns the Flight of a call that is open.
func (o *openCall) launch() *Flight {
	o.options.Info, o.failures = nil, slices.Clip(o.failures) // the CallInfo is complete
	f, ended := &Flight{o}, o.ended
	runtime.AddCleanup(f, func(o *openCall) {
		if !o.claimed.Load() {
			go o.abandon(ended) // it may call hooks
		}
	}, o)
	o.unwatch = context.AfterFunc(o.frame.Context, o.ctxDone)
	return f
}

// ctxDone settles an open call whose ctx is done.
func (o *openCall) ctxDone() {
	ctx := o.frame.Context // not the caller's, whose methods may panic
	if ctx.Err() == context.DeadlineExceeded || context.Cause(ctx) == context.DeadlineExceeded {
		time.AfterFunc(lateness, o.expire)
	} else {
		o.expire()
	}
}

// expire ends an open call, and its ctx, without a word of its reader.
func (o *openCall) expire() {
	o.frame.Attempt.End()
	defer o.abandon(o.now())
	o.quit(nil)
}

// end ends a claimed call with what its reader says.
func (o *openCall) end(err error) (failure *ToolError) {
	now := o.now()
	o.late = o.frame.Err() != nil
	paused := o.frame.Attempt.End() - o.paused
	o.stayed = time.Duration(now-o.ended) - paused
	defer func() { failure = o.finish(now, func() { o.done(err) }) }() // also if the caller's ctx panics when it is left
	o.quit(nil)
	return nil
}

// abandon settles a call that its reader has not ended. It touches no channel and no timer: what
// is collected may come from a bubble of testing/synctest, outside of which this runs.
func (o *openCall) abandon(now int64) {
	if o.claim() {
		o.finish(now, o.giveBack)
	}
}

// giveBack reports that a call was left open.
func (o *openCall) giveBack() {
	o.last, o.lastErr = vCanceled, errLeftOpen
	o.canceled = cmp.Or(o.frame.Err(), context.Canceled) // what ended it; the flight was collected if nothing did
	o.fail(Candidate{Tool: o.tool, Reason: StopCanceled, Verdict: o.last, Err: errLeftOpen}, false)
	defer o.observe(StopCanceled, 0) // also if a hook ends the goroutine
	if o.node != nil {
		o.report(o.registry, o.last, o.ended)
	}
}

// finish ends a claimed call as report says, also if code of a user panics there or ends
// the goroutine. The time in which the call was open is not the tool's.
func (o *openCall) finish(now int64, report func()) *ToolError {
	o.admission.start += now - o.ended
	o.ended = now
	o.stays, o.answered = false, false
	reported := false
	defer func() {
		if !reported {
			o.abort()
		}
	}()
	report()
	reported = true
	return o.call.end()
}

var errLeftOpen = errors.New("the call was left open")
