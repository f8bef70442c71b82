// Package frame makes the contexts of guarded calls: those that carry what a caller
// asks of its next call, and those of attempts, by which a call inside a tool
// function finds the attempts that it is inside of.
package frame

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// Frame is one such context. Its fields never change once it is made: a tool function
// may hand it to goroutines that outlive the attempt. Info is where a call reports how
// it went. A nil *Frame stands for a context that has none.
type Frame[Info any] struct {
	context.Context
	// Options has what the caller asked for; an attempt has those of its caller. Nil
	// means the zero Options.
	Options *Options[Info]
	// Attempt is nil if the frame is no attempt's.
	Attempt *Attempt
}

// Options are what a caller asks of a guarded call. They never change.
type Options[Info any] struct {
	Info       *Info // where to report; nil for no report
	NoFallback bool  // no substitute may serve
	NoProbe    bool  // the call must not be a probe
}

// Attempt is what an attempt shares with the calls inside of it.
type Attempt struct {
	// Tool is the tool that runs. It points at the entry's copy of the name, so a
	// retained ctx retains the entry.
	Tool *string
	// Owner tells the registries of two attempts apart; nil if nothing is kept.
	Owner any
	// Notes is the last note that a lower layer left of the attempt. It has a type of
	// its user's; nil means that there is none.
	Notes atomic.Value

	// outer is the attempt around this one; nil without one. Unlike a lookup in the ctx,
	// it calls no code of a user.
	outer *Attempt
	// clock is nil for an attempt without bounds that is no probe, until Pause needs one.
	clock atomic.Pointer[clock]
	// acting counts the runs inside the attempt that may have changed something: Act
	// adds one before such a run, Unact takes it back if the run surely did not reach
	// its tool. GiveUp makes it givenUp if it is 0, for good: the attempt may be
	// repeated, so no such run may begin in it any more.
	acting atomic.Int32
	// ended is set once: when the tool function has returned or was left, and, if the
	// call goes on after it, when that has ended.
	ended atomic.Bool
}

// Enter returns the ctx of an attempt inside of ctx, and what ends it. caller is the
// nearest frame of ctx, nil if there is none; the attempt has its options.
func Enter[Info any](ctx context.Context, caller *Frame[Info], limits Limits, tool *string, owner any) (*Frame[Info], context.CancelCauseFunc) {
	type parts struct {
		frame   Frame[Info]
		attempt Attempt
		outer   outer
	}
	var made *parts
	var timed *clock
	if limits == (Limits{}) {
		made = new(parts)
	} else {
		both := new(struct {
			parts
			clock clock
		})
		made, timed = &both.parts, &both.clock
	}
	made.outer.Context = ctx
	made.attempt.Tool, made.attempt.Owner = tool, owner
	made.frame.Attempt = &made.attempt
	if caller != nil {
		made.frame.Options, made.attempt.outer = caller.Options, caller.Current()
	}
	inner, cancel := context.WithCancelCause(&made.outer)
	made.frame.Context = inner
	if timed != nil {
		timed.Limits, timed.cancel = limits, cancel
		made.attempt.start(timed)
	}
	return &made.frame, cancel
}

// outer is the caller's ctx. Package context panics, on a goroutine of its own, if the
// Done of a context is closed while its Err says nothing, as that of a user may be.
type outer struct{ context.Context }

// Err is never nil once Done is closed.
func (c *outer) Err() error {
	err := c.Context.Err()
	select {
	case <-c.Done():
		return cmp.Or(err, c.Context.Err(), context.Canceled)
	default:
		return err
	}
}

// Err is context.DeadlineExceeded if that is why an attempt was canceled: then its own
// limits, or those of an attempt further out, have ended it.
func (f *Frame[Info]) Err() error {
	err := f.Context.Err()
	if err == context.Canceled && f.Attempt != nil && context.Cause(f.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// Deadline is the sooner of the caller's and the end of the whole time of an attempt. A
// pause moves the latter.
func (f *Frame[Info]) Deadline() (time.Time, bool) {
	deadline, ok := f.Context.Deadline()
	if f.Attempt != nil {
		if end, bounded := f.Attempt.deadline(); bounded && (!ok || end.Before(deadline)) {
			return end, true
		}
	}
	return deadline, ok
}

type key struct{}

// Value returns f itself for the key of this package, so one lookup finds the nearest
// frame, and the notes of an attempt for NotesKey.
func (f *Frame[Info]) Value(k any) any {
	switch {
	case k == (key{}):
		return f
	case k == (NotesKey{}) && f.Attempt != nil:
		return &f.Attempt.Notes
	}
	return f.Context.Value(k)
}

// NotesKey is the key under which a context has the Notes of its attempt, an
// *atomic.Value.
type NotesKey struct{}

// Of returns the nearest frame of ctx; nil if there is none.
func Of[Info any](ctx context.Context) *Frame[Info] {
	f, _ := ctx.Value(key{}).(*Frame[Info])
	return f
}

// Ask returns what f asks of a call inside of it. A call inside an attempt does not
// report to the caller of the attempt.
func (f *Frame[Info]) Ask() (o Options[Info]) {
	if f == nil || f.Options == nil {
		return o
	}
	if o = *f.Options; f.Attempt != nil {
		o.Info = nil
	}
	return o
}

// NoProbe reports whether ctx asks that calls inside of it are no probes, without a
// word about what they report.
func NoProbe(ctx context.Context) bool {
	f, ok := ctx.Value(key{}).(interface{ noProbe() bool })
	return ok && f.noProbe()
}

func (f *Frame[Info]) noProbe() bool { return f.Options != nil && f.Options.NoProbe }

// Around returns the nearest attempt that ctx lies in, whatever it reports; nil if there
// is none.
func Around(ctx context.Context) *Attempt {
	if f, ok := ctx.Value(key{}).(interface{ Current() *Attempt }); ok {
		return f.Current()
	}
	return nil
}

// attempt returns the nearest frame from f outwards that is an attempt's; nil if there
// is none.
func (f *Frame[Info]) attempt() *Frame[Info] {
	for f != nil && f.Attempt == nil {
		f = Of[Info](f.Context)
	}
	return f
}

// Current returns the nearest attempt that f lies in; nil if there is none.
func (f *Frame[Info]) Current() *Attempt {
	if f = f.attempt(); f == nil {
		return nil
	}
	return f.Attempt
}

// Nested reports whether f lies in an attempt that is still running.
func (f *Frame[Info]) Nested() bool {
	for f = f.attempt(); f != nil; f = Of[Info](f.Context).attempt() {
		if !f.Attempt.ended.Load() {
			return true
		}
	}
	return false
}

// Inside reports whether f lies in an attempt of the tool that is still running and
// has the same owner.
func (f *Frame[Info]) Inside(tool string, owner any) bool {
	for f = f.attempt(); f != nil; f = Of[Info](f.Context).attempt() {
		if a := f.Attempt; *a.Tool == tool && a.Owner == owner && !a.ended.Load() {
			return true
		}
	}
	return false
}

// givenUp is acting in an attempt that has changed nothing and will change nothing.
const givenUp = -1

// Act notes, in every attempt that f lies in, that a run which may change something
// begins. It reports false, and notes nothing, if one of them was given up.
func (f *Frame[Info]) Act() bool {
	for at := f.attempt(); at != nil; at = Of[Info](at.Context).attempt() {
		if !at.Attempt.act() {
			f.unact(at)
			return false
		}
	}
	return true
}

func (a *Attempt) act() bool {
	for {
		n := a.acting.Load()
		if n == givenUp {
			return false
		}
		if a.acting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Unact takes one Act back.
func (f *Frame[Info]) Unact() { f.unact(nil) }

// unact takes back what Act noted from f outwards up to the frame end.
func (f *Frame[Info]) unact(end *Frame[Info]) {
	for f = f.attempt(); f != end; f = Of[Info](f.Context).attempt() {
		f.Attempt.acting.Add(-1)
	}
}

// GiveUp reports whether no run inside the attempt may have changed something. Then none
// will begin any more.
func (a *Attempt) GiveUp() bool {
	return a.acting.CompareAndSwap(0, givenUp) || a.acting.Load() == givenUp
}
