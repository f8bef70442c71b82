package toolhealth

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/hooks"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// State is the state of a breaker. Its zero value is StateClosed.
type State uint8

// The states. Their texts are "closed", "open" and "half-open".
const (
	StateClosed   State = State(machine.Closed)   // calls go through
	StateOpen     State = State(machine.Open)     // calls are refused until the cooldown is over
	StateHalfOpen State = State(machine.HalfOpen) // one probe is out, under a lease; all other calls are refused
)

var stateTexts = []string{"closed", "open", "half-open"}

// String returns the text of s, or "State(n)" for a value that is no state.
func (s State) String() string { return enum.Text("State", stateTexts, s) }

// MarshalText returns the text of s, and an error for a value that is no state.
func (s State) MarshalText() ([]byte, error) { return enum.Marshal("State", stateTexts, s) }

// UnmarshalText is the inverse of MarshalText.
func (s *State) UnmarshalText(text []byte) error {
	return enum.Unmarshal("State", stateTexts, text, s)
}

// Cause says why a breaker changed its state.
type Cause uint8

// The causes. Their texts are the words of the names in lower case, joined by
// underscores: "failure_threshold".
const (
	CauseNone             Cause = Cause(machine.CauseNone)
	CauseFailureThreshold Cause = Cause(machine.CauseFailureThreshold) // closed to open: FailureThreshold consecutive failures
	CauseFailureRate      Cause = Cause(machine.CauseFailureRate)      // closed to open: the share of failures reached FailureRate
	CauseProbeAdmitted    Cause = Cause(machine.CauseProbeAdmitted)    // open to half-open: the cooldown was over and a caller came
	CauseProbeSucceeded   Cause = Cause(machine.CauseProbeSucceeded)   // half-open to closed, or to open if ProbeSuccesses wants more
	CauseProbeFailed      Cause = Cause(machine.CauseProbeFailed)      // half-open to open, with a fresh cooldown
	CauseProbeThrottled   Cause = Cause(machine.CauseProbeThrottled)   // half-open to open: the tool stated a wait
	CauseProbeReturned    Cause = Cause(machine.CauseProbeReturned)    // half-open to open without a verdict: the next probe is due at once, after three in a row in a cooldown
	CauseLeaseExpired     Cause = Cause(machine.CauseLeaseExpired)     // half-open to open: the probe did not report in time
	CauseReset            Cause = Cause(machine.CauseReset)            // any to closed: an operator's Reset
	CauseIsolated         Cause = Cause(machine.CauseIsolated)         // any to open: an operator's Isolate
	CauseReconfigured     Cause = Cause(machine.CauseReconfigured)     // any to closed: SetConfig left no rule that opens
	CauseSuspected        Cause = Cause(machine.CauseSuspected)        // closed to open: one failure, while others suspect the tool; see HintSuspect
	CauseReported         Cause = Cause(machine.CauseReported)         // closed to open: others report the tool down; see HintDown
	CauseRestored         Cause = Cause(machine.CauseRestored)         // closed to open: Restore
)

var causeTexts = []string{
	"none", "failure_threshold", "failure_rate", "probe_admitted", "probe_succeeded", "probe_failed",
	"probe_throttled", "probe_returned", "lease_expired", "reset", "isolated", "reconfigured",
	"suspected", "reported", "restored",
}

// String returns the text of c, or "Cause(n)" for a value that is no cause.
func (c Cause) String() string { return enum.Text("Cause", causeTexts, c) }

// MarshalText returns the text of c, and an error for a value that is no cause.
func (c Cause) MarshalText() ([]byte, error) { return enum.Marshal("Cause", causeTexts, c) }

// UnmarshalText is the inverse of MarshalText.
func (c *Cause) UnmarshalText(text []byte) error {
	return enum.Unmarshal("Cause", causeTexts, text, c)
}

// Transition is one change of one tool's breaker. For one tool they form a
// chain: each From is the To before it and each Epoch one more than the last, unless
// events were dropped because a hook hung; see [Registry.OnTransition].
type Transition struct {
	Tool   string
	From   State
	To     State
	Epoch  uint64 // of the new state; a new tool starts closed in epoch 1
	Cause  Cause
	When   time.Time     // when it took effect: for CauseLeaseExpired, when the lease ended; for CauseRestored, when it opened before the restart
	Streak int           // consecutive failures, this one included
	Kind   Kind          // of the last failure that counted; KindNone if none has
	Wait   time.Duration // until the next probe may go; 0 when closed, one cooldown when isolated
	By     string        // the operator that Reset or Isolate was given; "" for other causes
	// Group is the group whose breaker changed; then Tool is "". It is "" for the breaker
	// of a tool.
	Group string
}

// StatedWait is a wait that a tool stated at the end of a call, and that every caller of
// the tool is held to from now on.
type StatedWait struct {
	Tool string
	Wait time.Duration // how long callers are refused from When on, as MaxStatedWait and MaxOpenDuration bound it; more than 0
	Kind Kind          // of the outcome: KindRateLimited for most throttles, else the kind of the failure
	When time.Time     // when the call was reported
}

// carrier holds the snapshot of one breaker: every change is one [machine.Step]
// and one compare-and-swap.
type carrier struct {
	// snap is never nil once it has been set for the first time. The goroutine
	// that wins a swap owns the transitions between the two snapshots and delivers
	// them. A registry marks the last snapshot of an entry as evicted (see
	// [Registry]); nothing follows on it.
	snap atomic.Pointer[machine.Snapshot]
	// events puts the transitions in order. It is nil until the first one and set
	// once, by the first goroutine to deliver.
	events atomic.Pointer[hooks.Ordered[Transition]]
}

// apply runs one event to its end and puts the answer into a. It reports false if
// the entry has left its registry; then nothing happened. stats are the tool's,
// nil if it has none; what Step needs of them is put into ev.
func (c *carrier) apply(ev *machine.Event, now int64, stats *toolStats, a *machine.Answer) bool {
	ev.Draw = rand.Float64
	for {
		old := c.snap.Load()
		if old.Evicted {
			return false
		}
		if ev.Op == machine.OpSettle && old.Params.CountsEnded() { // never without stats: see NewBreaker
			ev.Ended = stats.ended()
		}
		next, answer := machine.Step(old, ev, now)
		if next == old || c.snap.CompareAndSwap(old, next) {
			*a = answer
			return true
		}
	}
}

// owner says whose breaker changes: a tool's, a group's, or that of a Breaker by itself.
type owner struct{ tool, group string }

// configure puts the breaker under other params. The caller holds Registry.mu, so that
// the params are those of the latest configuration. stats are those of apply.
func (c *carrier) configure(p *machine.Params, now int64, stats *toolStats) machine.Answer {
	s := c.snap.Load()
	if s == s.Params.Initial && c.snap.CompareAndSwap(s, p.Initial) {
		return machine.Answer{} // most tools have never changed; they share one snapshot
	}
	var a machine.Answer
	c.apply(&machine.Event{Op: machine.OpConfigure, Params: p}, now, stats, &a)
	return a
}

// evictedUnder returns the last snapshot of a breaker.
func evictedUnder(p *machine.Params) *machine.Snapshot {
	s := *p.Initial
	s.Evicted = true
	return &s
}

// deliver hands the answer's transitions to the hooks, after all earlier ones of
// this breaker. When it returns they have been delivered, or another goroutine,
// or a hook further up this one's stack, will deliver them. by is the operator whose
// act caused them, "" if no operator did.
func (c *carrier) deliver(a *machine.Answer, of owner, by string, base time.Time, list *hooks.List[Transition]) {
	if len(a.Changes) == 0 {
		return
	}
	events := make([]Transition, len(a.Changes), 2)
	for i, ch := range a.Changes {
		events[i] = Transition{
			Tool: of.tool, Group: of.group, From: State(ch.From), To: State(ch.To), Epoch: ch.Epoch, Cause: Cause(ch.Cause),
			When: base.Add(time.Duration(ch.When)), Streak: ch.Streak, Kind: Kind(ch.Kind), Wait: time.Duration(ch.Wait),
		}
		if ch.Cause == machine.CauseReset || ch.Cause == machine.CauseIsolated {
			events[i].By = by
		}
	}
	ordered := c.events.Load()
	if ordered == nil {
		c.events.CompareAndSwap(nil, hooks.NewOrdered[Transition](2)) // a new breaker is in epoch 1
		ordered = c.events.Load()
	}
	ordered.Deliver(events[0].Epoch, events, list)
}

// isolator is the operator of the last Isolate of a breaker.
type isolator struct {
	// last is nil until an Isolate. Each replaces it as a whole, unless it has that of a
	// later epoch.
	last atomic.Pointer[isolation]
}

// isolation is one Isolate: the epoch that it began, and who asked for it. It says
// nothing about another epoch.
type isolation struct {
	epoch uint64
	by    string
}

// note notes an Isolate; of two the later one counts.
func (i *isolator) note(next isolation) {
	for old := i.last.Load(); old == nil || old.epoch < next.epoch; old = i.last.Load() {
		if i.last.CompareAndSwap(old, &next) {
			return
		}
	}
}

// of returns who isolated the breaker in this epoch; "" if no operator did.
func (i *isolator) of(epoch uint64) string {
	if last := i.last.Load(); last != nil && last.epoch == epoch {
		return last.by
	}
	return ""
}

// delivering reports whether a hook is being called for this breaker.
func (c *carrier) delivering() bool {
	ordered := c.events.Load()
	return ordered != nil && ordered.Delivering()
}

// A Breaker is a single circuit breaker for use without a [Registry]: the
// three-state machine with the probe lease, without permits. FailureRate needs
// statistics and has no effect here.
//
// All methods may be called from any goroutine; none blocks, except for hooks,
// which run on the goroutine whose call caused the transition. While closed,
// AllowRequest and RecordSuccess write nothing and read no clock. The zero
// Breaker admits everything and records nothing, as a nil one does.
type Breaker struct {
	carrier carrier
	base    time.Time
	hooks   hooks.List[Transition]
}

// NewBreaker returns a closed breaker, or what is wrong with the configuration.
func NewBreaker(c BreakerConfig) (*Breaker, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b := &Breaker{base: time.Now()}
	c.FailureRate = 0 // it needs counters
	b.carrier.snap.Store(newParams(c).Initial)
	return b, nil
}

// load returns the snapshot; nil if b is nil or zero.
func (b *Breaker) load() *machine.Snapshot {
	if b == nil {
		return nil
	}
	return b.carrier.snap.Load()
}

func (b *Breaker) apply(ev machine.Event) {
	if b.load() == nil {
		return
	}
	var a machine.Answer
	b.carrier.apply(&ev, since(b.base), nil, &a)
	b.carrier.deliver(&a, owner{}, "", b.base, &b.hooks)
}

// AllowRequest reports whether a call may go ahead. It may hand out the one
// probe: then the next RecordSuccess or RecordFailure is taken for its verdict.
func (b *Breaker) AllowRequest() bool {
	if s := b.load(); s == nil || s.AdmitsAll() {
		return true
	}
	var a machine.Answer
	b.carrier.apply(&machine.Event{Op: machine.OpAdmit, Hooked: b.hooks.Any()}, since(b.base), nil, &a)
	b.notifyAdmission(&a)
	return a.Reason == machine.Admitted || b.load().Params.ObserveOnly
}

// notifyAdmission delivers what a call that asked has changed. Then the probe begins;
// if a hook ends the goroutine, the caller never gets the probe, so it is given back.
func (b *Breaker) notifyAdmission(a *machine.Answer) {
	op := machine.OpRelease
	defer func() {
		if a.Probe {
			b.apply(machine.Event{Op: op, Epoch: a.Epoch, Probe: true})
		}
	}()
	b.carrier.deliver(a, owner{}, "", b.base, &b.hooks)
	op = machine.OpBegin
}

// Available reports what AllowRequest would answer. It changes nothing.
func (b *Breaker) Available() bool { return b.RetryAfter() == 0 }

// RetryAfter returns how long asking is pointless: 0 exactly if a call would be
// admitted now.
func (b *Breaker) RetryAfter() time.Duration {
	s := b.load()
	if s == nil || s.AdmitsAll() || s.Params.ObserveOnly {
		return 0
	}
	_, wait, _ := s.Refusal(since(b.base))
	return time.Duration(wait)
}

// State returns the state at this moment; an expired lease is open.
func (b *Breaker) State() State {
	s := b.load()
	if s == nil {
		return StateClosed
	}
	now := s.AsOf(since(b.base))
	return State(now.State)
}

// RecordSuccess says that a call succeeded and how long it took.
func (b *Breaker) RecordSuccess(took time.Duration) {
	if s := b.load(); s == nil || s.UnmovedBy(int64(took)) {
		return
	}
	b.apply(machine.Event{Op: machine.OpSettle, ByName: true, Outcome: machine.Success, Took: int64(took)})
}

// RecordFailure says that a call failed.
func (b *Breaker) RecordFailure(kind Kind) {
	b.apply(machine.Event{
		Op: machine.OpSettle, ByName: true, Outcome: machine.Failure, Kind: machine.Kind(kindOfError(kind)),
	})
}

// Reset closes the breaker and forgets the streak, the growth and the learned
// lease.
func (b *Breaker) Reset() { b.apply(machine.Event{Op: machine.OpReset}) }

// Isolate holds the breaker open until Reset.
func (b *Breaker) Isolate() { b.apply(machine.Event{Op: machine.OpIsolate}) }

// OnTransition calls fn after each transition; see [Registry.OnTransition].
func (b *Breaker) OnTransition(fn func(Transition)) (stop func()) {
	if b == nil {
		return func() {}
	}
	return b.hooks.Add(fn)
}

// since returns the nanoseconds since base on the monotonic clock, never less
// than 0.
func since(base time.Time) int64 { return max(int64(time.Since(base)), 0) }

// LogValue returns tool or group, from, to, cause, epoch and by; and, if the breaker does
// not close, streak, kind and, if it opens, wait.
func (t Transition) LogValue() slog.Value {
	var a attributes
	a.text("tool", t.Tool)
	a.text("group", t.Group)
	a = append(a, slog.String("from", t.From.String()), slog.String("to", t.To.String()),
		slog.String("cause", t.Cause.String()), slog.Uint64("epoch", t.Epoch))
	a.text("by", t.By)
	if t.To != StateClosed {
		a.number("streak", uint64(max(t.Streak, 0)))
		a.kind("kind", t.Kind)
	}
	if t.To == StateOpen { // in half-open it is the lease and the cooldown after it
		a.wait("wait", t.Wait)
	}
	return slog.GroupValue(a...)
}
