package toolhealth

import (
	"context"
	"time"

	"github.com/toolhealth/toolhealth/internal/frame"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// callFrame is the ctx of an attempt, or one that WithCallInfo or WithoutFallback
// made; askedOf is what such a ctx asks of a call.
type (
	callFrame = frame.Frame[CallInfo]
	askedOf   = frame.Options[CallInfo]
)

// CallInfo says how one guarded call went. It is complete when the call has returned,
// and must not be read before.
type CallInfo struct {
	Requested string          // the tool that was asked for
	Served    string          // the tool whose answer was returned; "" without an answer
	Attempts  int             // runs of tool functions in all
	Waits     []time.Duration // waits between the attempts; without the time that substitutes took
	Partial   bool            // whether the answer is the Partial handler's
	Reason    StopReason      // StopNone after a success, a substitute's included
	Skipped   []Candidate     // after a success, why each other candidate did not serve
}

// WithCallInfo returns a ctx for one guarded call, and the CallInfo that this call
// fills in. Calls inside the tool function do not write there.
func WithCallInfo(ctx context.Context) (context.Context, *CallInfo) {
	info := new(CallInfo)
	return asking(ctx, func(o *askedOf) { o.Info = info }), info
}

// WithoutFallback returns a ctx for guarded calls that may not be served by a
// substitute. A Partial handler is still asked.
func WithoutFallback(ctx context.Context) context.Context {
	return asking(ctx, func(o *askedOf) { o.NoFallback = true })
}

// WithoutProbe returns a ctx for calls that must not be the probe of a tool, such as a
// payment or a deletion: a tool that is not closed refuses them until another call has
// closed it, also while Available and Resolve say that a call would be admitted. It
// holds for a Guard and a Gate, and for calls inside the tool function.
func WithoutProbe(ctx context.Context) context.Context {
	return asking(ctx, func(o *askedOf) { o.NoProbe = true })
}

// asking returns a ctx whose calls are asked for more than those of ctx. A nil ctx is
// context.Background, as everywhere in this package.
func asking(ctx context.Context, more func(*askedOf)) context.Context {
	if ctx == nil {
		ctx = context.Background()
	}
	o := frame.Of[CallInfo](ctx).Ask()
	more(&o)
	return &callFrame{Context: ctx, Options: &o}
}

// KeepAlive says that the attempt to which ctx belongs is alive: a piece of a stream has
// come, or a report of progress. The attempt's Timeout begins anew, and so does the lease
// of a probe; MaxDuration goes on. It holds for the attempts further out, too.
//
// It is for tool functions, with the ctx that they were given or one that is derived from
// it, and costs little enough for every piece of a stream. With any other ctx, also a nil
// one, and once the attempt has ended, it does nothing. It may be called from any
// goroutine.
func KeepAlive(ctx context.Context) { attemptIn(ctx).KeepAlive() }

// Pause stops the clocks of the attempt to which ctx belongs, and of those further out,
// until resume is called: Timeout, MaxDuration, the lease of a probe, and the time that
// the attempt took. Call it before a person is asked, so that thinking costs the tool
// nothing:
//
//	resume := toolhealth.Pause(ctx)
//	defer resume()
//
// Pauses nest: the clocks go on when each of them has been resumed, and where they
// stopped. A pause ends with its attempt at the latest. The lease of a probe ends
// MaxOpenDuration after the pause began, 10m if that is off, and begins anew with resume.
// The caller's deadline does not move.
//
// resume is never nil, and does nothing when it is called again. With a ctx for which
// [KeepAlive] does nothing, Pause does nothing. Both may be called from any goroutine.
func Pause(ctx context.Context) (resume func()) { return attemptIn(ctx).Pause() }

// IsProbe reports whether the attempt to which ctx belongs decides whether its tool is
// well again. A tool function may dial anew then. It is false with a ctx for which
// [KeepAlive] does nothing. It may be called from any goroutine.
func IsProbe(ctx context.Context) bool { return attemptIn(ctx).Probe() }

// attemptIn returns the nearest attempt that ctx belongs to; nil if there is none.
func attemptIn(ctx context.Context) *frame.Attempt {
	if ctx == nil {
		return nil
	}
	return frame.Of[CallInfo](ctx).Current()
}

// probeLease is the lease of a probe that a guarded call has.
type probeLease struct {
	registry  *Registry
	admission admission
}

// KeepAlive implements [frame.Lease].
func (l *probeLease) KeepAlive() { l.tell(machine.OpKeepAlive) }

// Pause implements [frame.Lease].
func (l *probeLease) Pause(paused bool) {
	if paused {
		l.tell(machine.OpPause)
	} else {
		l.tell(machine.OpResume)
	}
}

// holds implements groupLease.
func (l *probeLease) holds(g *group, epoch uint64) bool {
	a := &l.admission
	return a.group.Probe && a.node.Value.group == g && a.group.GroupEpoch(epoch) == epoch
}

func (l *probeLease) tell(op machine.Op) {
	l.admission.tell(l.registry, op)
}
