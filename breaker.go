package toolhealth

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/enum"
	"github.com/toolhealth/toolhealth/internal/hooks"
)

// State is the state of a breaker. Its zero value is StateClosed.
type State uint8

// The states. Their texts are "closed", "open" and "half-open".
const (
	StateClosed   State = iota // calls go through
	StateOpen                  // calls are refused until the cooldown is over
	StateHalfOpen              // one probe is out, under a lease; all other calls are refused
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
	CauseNone             Cause = iota
	CauseFailureThreshold       // closed to open: FailureThreshold consecutive failures
	CauseTripScore              // closed to open: the EWMA fell below TripScore
	CauseProbeAdmitted          // open to half-open: the cooldown was over and a caller came
	CauseProbeSucceeded         // half-open to closed, or to open if ProbeSuccesses wants more
	CauseProbeFailed            // half-open to open, with a fresh cooldown
	CauseProbeThrottled         // half-open to open: the tool stated a wait
	CauseProbeReturned          // half-open to open, the next probe due at once: no verdict
	CauseLeaseExpired           // half-open to open: the probe did not report in time
	CauseReset                  // any to closed: an operator's Reset
	CauseIsolated               // any to open: an operator's Isolate
	CauseReconfigured           // any to closed: SetConfig set FailureThreshold to 0
)

var causeTexts = []string{
	"none", "failure_threshold", "trip_score", "probe_admitted", "probe_succeeded", "probe_failed",
	"probe_throttled", "probe_returned", "lease_expired", "reset", "isolated", "reconfigured",
}

// String returns the text of c, or "Cause(n)" for a value that is no cause.
func (c Cause) String() string { return enum.Text("Cause", causeTexts, c) }

// MarshalText returns the text of c, and an error for a value that is no cause.
func (c Cause) MarshalText() ([]byte, error) { return enum.Marshal("Cause", causeTexts, c) }

// UnmarshalText is the inverse of MarshalText.
func (c *Cause) UnmarshalText(text []byte) error {
	return enum.Unmarshal("Cause", causeTexts, text, c)
}

// forever is a time that does not come.
const forever = math.MaxInt64

// snapshot is everything that a breaker remembers. It never changes: each change
// of a breaker is a new snapshot and one compare-and-swap (see machine). Times
// are nanoseconds since the owner's base.
type snapshot struct {
	cfg      *params
	state    State
	kind     Kind // of the last failure that this breaker took notice of
	isolated bool // open: held by Isolate, until Reset
	limited  bool // open: until comes from a stated wait
	lost     bool // open: began because a lease ran out
	gone     bool // the entry has left its registry; nothing is recorded here any more

	epoch  uint64 // grows by one with every transition; a permit carries the one that admitted it
	streak int    // consecutive failures; frozen while open, a failed probe adds one
	trips  uint64 // transitions from closed to open
	since  int64  // when this state began
	// until: closed, refuse everyone until then (0: nobody). Open, the next probe
	// is due then. Half-open, the lease ends then (forever: there is none).
	until int64

	lease    int64  // half-open: how long a KeepAlive extends it for
	cooldown int64  // half-open: the cooldown that follows if the lease runs out
	learned  int64  // the least lease of the next probe, from late successes
	failed   int    // failed probes in a row: the exponent of growth
	passed   int    // successful probes in a row
	ended    uint64 // calls that had ended when it last closed: TripMinCalls counts from here
	operated uint64 // epoch that the last Reset or Isolate began: probes from before teach nothing
}

// op is what happens to a breaker.
type op uint8

const (
	opAdmit     op = iota // a caller asks to run the tool
	opSettle              // a call ended
	opKeepAlive           // a probe says that it is alive
	opReset               // an operator closes the breaker
	opIsolate             // an operator holds it open
	opConfigure           // the configuration changed
)

// event is one op with its circumstances. What step needs to know and cannot
// derive is in here, so that step is a function.
type event struct {
	op op

	// opSettle and opKeepAlive. byName: there is no permit, so the outcome is
	// taken for the current epoch's, and for the probe's in half-open.
	byName bool
	probe  bool   // the permit is a probe's
	epoch  uint64 // the permit's

	outcome    Outcome // opSettle
	kind       Kind
	took       int64
	retryAfter int64
	ewma       int64  // of the tool, this call included
	ended      uint64 // calls of the tool that have ended, this one included

	leaseFloor int64   // opAdmit: the least lease, if a probe is given out
	draw       float64 // in [0,1): where a cooldown falls within its jitter
	cfg        *params // opConfigure
}

// change is one transition.
type change struct {
	from, to State
	cause    Cause
	when     int64
	epoch    uint64 // the new state's
	streak   int
	kind     Kind
	wait     int64 // until the next probe; 0 when closed
}

// answer is what step says beside the next snapshot. Changed means that the next
// snapshot differs and has to be stored; the transitions are those from the old
// one to it, oldest first: an expired lease may come before another change.
type answer struct {
	changed bool
	probe   bool   // opAdmit: the caller got the probe
	epoch   uint64 // of the next snapshot: what the caller is admitted in

	reason  StopReason // opAdmit: why it is refused; StopNone if it is admitted
	wait    int64      // opAdmit: how long asking again is pointless; 0 if admitted
	n       int
	changes [2]change
}

// expired reports whether the snapshot is half-open with a lease that ran out:
// then it IS an open one whose cooldown began when the lease ended. There is no
// timer; whoever looks, looks through this rule.
func (s *snapshot) expired(now int64) bool {
	return s.state == StateHalfOpen && now >= s.until
}

// plain reports whether everyone is admitted, whatever the time.
func (s *snapshot) plain() bool { return s.state == StateClosed && s.until == 0 && !s.gone }

// clean reports whether the snapshot holds nothing against its tool: closed, no
// streak, not throttled.
func (s *snapshot) clean(now int64) bool {
	return s.state == StateClosed && s.streak == 0 && s.until <= now
}

// at returns the snapshot as it has to be read at now: with an expired lease
// turned into the open state that it is.
func (s snapshot) at(now int64) snapshot {
	if s.expired(now) {
		end, wait := s.until, s.cooldown
		s.open(end, 0)
		s.until = saturatingAdd(end, wait) // as it was promised, whatever the config says now
		s.lost, s.passed = true, 0
		s.epoch++
	}
	return s
}

// admission says whether a caller is let in at now: StopNone and 0, or why not
// and how long to wait. It is the one rule behind the gate, Available and Health,
// so they cannot differ. It changes nothing; step gives out the probe.
func (s *snapshot) admission(now int64) (reason StopReason, wait int64) {
	now = max(now, s.since)
	switch s.state {
	case StateClosed:
		if now < s.until {
			return StopRateLimited, s.until - now
		}
		return StopNone, 0
	case StateHalfOpen:
		due := saturatingAdd(s.until, s.cooldown)
		switch {
		case now >= due:
			return StopNone, 0
		case now >= s.until:
			return StopCircuitOpen, due - now
		case s.until == forever: // no lease: nobody knows, so say one cooldown
			return StopProbeInFlight, s.cooldown
		}
		return StopProbeInFlight, due - now
	}
	switch {
	case s.isolated:
		return StopIsolated, s.cfg.hint()
	case now >= s.until:
		return StopNone, 0
	case s.limited:
		return StopRateLimited, s.until - now
	}
	return StopCircuitOpen, s.until - now
}

// refuses reports whether a caller is refused at now and the snapshot stays as it
// is. The first refusal after a lease has run out is not of this kind: it makes
// the expiry known to hooks.
func (s *snapshot) refuses(now int64) bool {
	reason, _ := s.admission(now)
	return reason != StopNone && !s.expired(max(now, s.since))
}

// hint is the wait that is named where nobody knows one.
func (p *params) hint() int64 {
	if p.recovery > 0 {
		return p.recovery
	}
	return int64(30 * time.Second)
}

// cooldownFor returns the cooldown after this many failed probes in a row.
func (p *params) cooldownFor(failed int, draw float64) int64 {
	bound := float64(maxDuration)
	if p.maxOpen > 0 {
		bound = float64(p.maxOpen)
	}
	d := min(float64(p.recovery)*math.Pow(p.growth, float64(failed)), bound)
	return int64(min(d*(1+p.jitter*draw), bound))
}

// cap returns d, at most MaxOpenDuration.
func (p *params) cap(d int64) int64 {
	if p.maxOpen > 0 {
		return min(d, p.maxOpen)
	}
	return d
}

// open makes s open from now on, with the next probe after wait.
func (s *snapshot) open(now, wait int64) {
	s.state, s.since = StateOpen, now
	s.until = saturatingAdd(now, s.cfg.cap(wait))
	s.isolated, s.limited, s.lost = false, false, false
	s.lease, s.cooldown = 0, 0
}

// closeAt makes s closed from now on, with nothing held against the tool.
func (s *snapshot) closeAt(now int64, ended uint64) {
	s.state, s.since, s.until = StateClosed, now, 0
	s.isolated, s.limited, s.lost = false, false, false
	s.lease, s.cooldown = 0, 0
	s.streak, s.failed, s.passed = 0, 0, 0
	s.ended = ended
}

// postpone moves the next probe of an open breaker to now+d if that is later,
// but never past MaxOpenDuration after it opened. It reports whether it moved.
func (s *snapshot) postpone(now, d int64) bool {
	t := saturatingAdd(now, d)
	if s.cfg.maxOpen > 0 {
		t = min(t, saturatingAdd(s.since, s.cfg.maxOpen))
	}
	if t <= s.until {
		return false
	}
	s.until = t
	return true
}

// learn makes the next lease long enough for a call that took this long.
func (s *snapshot) learn(took int64) {
	s.learned = max(s.learned, s.cfg.cap(min(saturatingAdd(took, took), int64(maxDuration))))
}

// step is the whole machine: what a breaker is after an event, and what the
// answer to the event is. It reads no clock and touches nothing but its result.
//
// A clock that goes back counts as standing still.
func step(s snapshot, ev event, now int64) (snapshot, answer) {
	var a answer
	s.advance(&ev, now, &a)
	return s, a
}

// advance is step in place, for the carrier, which has a copy already. ev stays
// as it is.
func (s *snapshot) advance(ev *event, now int64, a *answer) {
	now = max(now, s.since)
	old := *s
	if s.expired(now) {
		from := s.state
		*s = s.at(now)
		a.record(s, from, CauseLeaseExpired)
	}
	from := s.state
	var cause Cause
	switch ev.op {
	case opAdmit:
		cause = s.admit(ev, now, a)
	case opSettle:
		cause = s.settle(ev, now)
	case opKeepAlive:
		if s.state == StateHalfOpen && ev.probe && ev.epoch == s.epoch {
			s.until = max(s.until, saturatingAdd(now, s.lease))
		}
	case opReset:
		s.closeAt(now, ev.ended)
		s.learned = 0
		cause = CauseReset
	case opIsolate:
		s.open(now, 0)
		s.isolated = true
		cause = CauseIsolated
	case opConfigure:
		s.cfg = ev.cfg
		if ev.cfg.threshold == 0 && from != StateClosed && !s.isolated {
			s.closeAt(now, ev.ended)
			cause = CauseReconfigured
		}
	}
	if cause != CauseNone {
		s.epoch++
		if from == StateClosed && s.state == StateOpen {
			s.trips++
		}
		if cause == CauseReset || cause == CauseIsolated {
			s.operated = s.epoch
		}
		a.record(s, from, cause)
	}
	a.changed, a.epoch = *s != old, s.epoch
}

// record notes that s came from another state.
func (a *answer) record(s *snapshot, from State, cause Cause) {
	c := change{from: from, to: s.state, cause: cause, when: s.since, epoch: s.epoch, streak: s.streak, kind: s.kind}
	switch {
	case s.isolated:
		c.wait = s.cfg.hint()
	case s.state == StateOpen:
		c.wait = s.until - s.since
	case s.state == StateHalfOpen && s.until != forever:
		c.wait = saturatingAdd(s.until, s.cooldown) - s.since
	}
	a.changes[a.n] = c
	a.n++
}

// admit lets the caller in, or says why not. The lease of s has not run out.
func (s *snapshot) admit(ev *event, now int64, a *answer) Cause {
	a.reason, a.wait = s.admission(now)
	if a.reason != StopNone {
		return CauseNone
	}
	if s.state == StateClosed {
		s.until = 0 // a throttle that is over
		return CauseNone
	}
	a.probe = true
	lease := int64(forever)
	if s.cfg.lease > 0 {
		lease = max(s.cfg.lease, s.learned, ev.leaseFloor)
	}
	s.state, s.since, s.limited, s.lost = StateHalfOpen, now, false, false
	s.until = saturatingAdd(now, lease)
	s.lease, s.cooldown = lease, s.cfg.cooldownFor(s.failed, ev.draw)
	return CauseProbeAdmitted
}

// settle applies the outcome of one call; the table in the README, row by row.
// It returns the cause if the state changed. The lease of s has not run out.
func (s *snapshot) settle(ev *event, now int64) Cause {
	if ev.outcome == OutcomeSuccess && ev.took > s.cfg.slow {
		slow := *ev
		slow.outcome, slow.kind = OutcomeFailure, KindTimeout
		ev = &slow
	}
	current := ev.byName || ev.epoch == s.epoch
	outlived := s.cfg.lease > 0 && ev.took > s.cfg.lease
	if ev.outcome == OutcomeSuccess && ev.probe && !current && outlived && ev.epoch >= s.operated {
		s.learn(ev.took) // the probe lives, its lease was too short for it
	}
	switch s.state {
	case StateClosed:
		return s.settleClosed(ev, now, current)
	case StateOpen:
		s.settleOpen(ev, now)
		return CauseNone
	}
	if current && (ev.byName || ev.probe) {
		return s.settleProbe(ev, now)
	}
	return CauseNone
}

func (s *snapshot) settleClosed(ev *event, now int64, current bool) Cause {
	switch {
	case ev.outcome == OutcomeThrottled: // whoever brings it: the wait is the tool's
		s.until = max(s.until, saturatingAdd(now, s.cfg.cap(max(ev.retryAfter, 0))))
		if s.until == now {
			s.until = 0
		}
	case !current:
	case ev.outcome == OutcomeSuccess, ev.outcome == OutcomeRejected:
		s.streak = 0
	case ev.outcome == OutcomeFailure:
		return s.fail(ev, now)
	}
	return CauseNone
}

// fail counts a failure of the current closed period and opens if it is one too
// many. Only a failure opens: a success does not, however low the score.
func (s *snapshot) fail(ev *event, now int64) Cause {
	s.countFailure(ev)
	switch {
	case s.cfg.threshold == 0:
		return CauseNone
	case s.streak >= s.cfg.threshold:
		s.openAfterFailure(ev, now)
		return CauseFailureThreshold
	case ev.ewma < s.cfg.tripBelow && ev.ended >= saturatingSum(s.ended, s.cfg.tripCalls):
		s.openAfterFailure(ev, now)
		return CauseTripScore
	}
	return CauseNone
}

func (s *snapshot) countFailure(ev *event) {
	if s.streak < math.MaxInt {
		s.streak++
	}
	s.kind = ev.kind
}

// openAfterFailure opens s for one cooldown, or for what is left of a throttle
// if that is longer.
func (s *snapshot) openAfterFailure(ev *event, now int64) {
	var throttled int64
	if s.state == StateClosed {
		throttled = s.until
	}
	s.open(now, s.cfg.cooldownFor(s.failed, ev.draw))
	s.limited = s.postpone(now, throttled-now)
}

func (s *snapshot) settleOpen(ev *event, now int64) {
	if s.isolated {
		return // only Reset ends it, and no cooldown runs
	}
	switch ev.outcome {
	case OutcomeSuccess: // describes the world before the trip
		if ev.byName && s.lost && ev.took > s.cfg.lease {
			s.learn(ev.took)
		}
	case OutcomeFailure:
		s.kind, s.passed = ev.kind, 0
		if s.postpone(now, s.cfg.cooldownFor(s.failed, ev.draw)) {
			s.limited = false
		}
	case OutcomeThrottled:
		if s.postpone(now, max(ev.retryAfter, 0)) {
			s.limited = true
		}
	}
}

// settleProbe applies the verdict of the probe that is out.
func (s *snapshot) settleProbe(ev *event, now int64) Cause {
	switch ev.outcome {
	case OutcomeSuccess, OutcomeRejected:
		if s.passed++; s.passed >= s.cfg.successes {
			s.closeAt(now, ev.ended)
		} else {
			s.open(now, 0)
		}
		return CauseProbeSucceeded
	case OutcomeFailure:
		s.countFailure(ev)
		s.failed, s.passed = s.failed+1, 0
		s.openAfterFailure(ev, now)
		return CauseProbeFailed
	case OutcomeThrottled:
		s.open(now, max(ev.retryAfter, 0))
		s.limited = ev.retryAfter > 0
		return CauseProbeThrottled
	}
	s.open(now, 0)
	return CauseProbeReturned
}

// indifferent reports whether the event's ewma and ended make no difference: they
// do where the score may trip, and where a breaker may close.
func (s *snapshot) indifferent(o op) bool {
	return s.state == StateClosed && s.cfg.tripBelow == 0 && (o == opSettle || o == opAdmit)
}

// machine carries a snapshot: every change is one step and one compare-and-swap.
type machine struct {
	// snap is never nil once init has run. Whoever wins the swap owns the
	// transitions between the two snapshots and delivers them.
	snap  atomic.Pointer[snapshot]
	queue atomic.Pointer[eventQueue] // nil until the first transition; set once
}

// apply runs one event to its end and puts the answer into a. It reports false if
// the machine's entry has left its registry; then nothing happened. stats are the
// tool's, nil if it has none; what step needs of them is put into ev.
func (m *machine) apply(ev *event, now int64, stats *Stats, a *answer) bool {
	for {
		*a = answer{}
		old := m.snap.Load()
		if old.gone {
			return false
		}
		if stats != nil && !old.indifferent(ev.op) {
			ev.ewma, ev.ended = stats.ewma(), stats.ended()
		}
		if old.cfg.jitter > 0 {
			ev.draw = rand.Float64()
		}
		next := *old
		next.advance(ev, now, a)
		if !a.changed {
			return true
		}
		p := new(snapshot)
		*p = next
		if m.snap.CompareAndSwap(old, p) {
			return true
		}
	}
}

// Transition is one change of one tool's breaker. For one tool they form a
// chain: each From is the To before it and each Epoch one more than the last.
type Transition struct {
	Tool   string
	From   State
	To     State
	Epoch  uint64 // of the new state; a new tool starts closed in epoch 1
	Cause  Cause
	When   time.Time     // when it took effect: for CauseLeaseExpired, when the lease ended
	Streak int           // consecutive failures, this one included
	Kind   Kind          // of the last failure that counted; KindNone if none has
	Wait   time.Duration // until the next probe may go; 0 when closed, one cooldown when isolated
}

// eventQueue puts the transitions of one tool in order. The winners of two swaps
// may arrive here in either order; epochs tell the right one. One goroutine at a
// time delivers, the others leave their events to it.
type eventQueue struct {
	mu   sync.Mutex
	next uint64 // epoch of the next event to deliver
	// busy: somebody delivers. Written under mu; whoever may evict the entry looks
	// without it.
	busy atomic.Bool
	// pending are events that came too early, or while somebody was busy; nil
	// if there are none, which is nearly always.
	pending map[uint64]Transition
}

// deliver hands the answer's transitions to the hooks, after all earlier ones of
// this machine. It returns when they are delivered, or when another goroutine
// (or a hook further up this one's stack) will deliver them.
func (m *machine) deliver(a *answer, tool string, base time.Time, hooks *hooks.List[Transition]) {
	if a.n == 0 {
		return
	}
	var events [len(a.changes)]Transition
	for i, c := range a.changes[:a.n] {
		events[i] = Transition{
			Tool: tool, From: c.from, To: c.to, Epoch: c.epoch, Cause: c.cause,
			When: base.Add(time.Duration(c.when)), Streak: c.streak, Kind: c.kind, Wait: time.Duration(c.wait),
		}
	}
	q := m.queue.Load()
	if q == nil {
		m.queue.CompareAndSwap(nil, &eventQueue{next: 2})
		q = m.queue.Load()
	}
	if q.begin(events[:a.n]) {
		q.drain(events[:a.n], hooks)
	}
}

// telling reports whether a hook is being told of this machine's events.
func (m *machine) telling() bool {
	q := m.queue.Load()
	return q != nil && q.busy.Load()
}

// begin reports whether the events are the next ones and nobody is busy: then the
// caller has to drain. Else they are left to whoever is, or will be.
func (q *eventQueue) begin(events []Transition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy.Load() && events[0].Epoch == q.next {
		q.busy.Store(true)
		q.next += uint64(len(events))
		return true
	}
	if q.pending == nil {
		q.pending = make(map[uint64]Transition)
	}
	for _, t := range events {
		q.pending[t.Epoch] = t
	}
	return false
}

// drain delivers events and then what has been left, until nothing is, or the
// next event's winner has not arrived yet: that one will go on.
func (q *eventQueue) drain(events []Transition, hooks *hooks.List[Transition]) {
	done := false
	defer func() {
		if !done { // a hook called runtime.Goexit: the rest must not wait for ever
			q.drain(events, hooks)
		}
	}()
	for {
		for len(events) > 0 {
			t := events[0]
			events = events[1:]
			hooks.Call(t)
		}
		t, ok := q.take()
		if !ok {
			done = true
			return
		}
		hooks.Call(t)
	}
}

// take takes the next event out; false, and nobody is busy, if it is not there.
func (q *eventQueue) take() (t Transition, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, ok = q.pending[q.next]; !ok {
		q.busy.Store(false)
		return Transition{}, false
	}
	q.next++
	if delete(q.pending, t.Epoch); len(q.pending) == 0 {
		q.pending = nil
	}
	return t, true
}

// Breaker is one circuit breaker, for who wants it without a registry: the
// three-state machine with the probe lease, asked and told without permits.
// TripScore needs statistics and has no effect here.
//
// All methods may be called from any goroutine; none blocks, except for hooks,
// which run on the goroutine whose call caused the transition. While closed,
// AllowRequest and RecordSuccess write nothing and read no clock. The zero
// Breaker admits everything and records nothing, as a nil one does.
type Breaker struct {
	machine machine
	base    time.Time
	hooks   hooks.List[Transition]
}

// NewBreaker returns a closed breaker, or what is wrong with the configuration.
func NewBreaker(c BreakerConfig) (*Breaker, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b := &Breaker{base: time.Now()}
	b.machine.snap.Store(newParams(c).initial)
	return b, nil
}

func (b *Breaker) load() *snapshot {
	if b == nil {
		return nil
	}
	return b.machine.snap.Load()
}

func (b *Breaker) apply(ev event) (a answer) {
	if b.load() == nil {
		return answer{}
	}
	b.machine.apply(&ev, since(b.base), nil, &a)
	b.machine.deliver(&a, "", b.base, &b.hooks)
	return a
}

// AllowRequest reports whether a call may go ahead. It may hand out the one
// probe: then the next RecordSuccess or RecordFailure is taken for its verdict.
func (b *Breaker) AllowRequest() bool {
	if s := b.load(); s == nil || s.plain() {
		return true
	}
	return b.apply(event{op: opAdmit}).reason == StopNone
}

// Available reports what AllowRequest would answer. It changes nothing.
func (b *Breaker) Available() bool { return b.RetryAfter() == 0 }

// RetryAfter returns how long asking is pointless: 0 exactly if a call would be
// admitted now.
func (b *Breaker) RetryAfter() time.Duration {
	s := b.load()
	if s == nil || s.plain() {
		return 0
	}
	_, wait := s.admission(since(b.base))
	return time.Duration(wait)
}

// State returns the state at this moment; an expired lease is open.
func (b *Breaker) State() State {
	s := b.load()
	if s == nil {
		return StateClosed
	}
	return s.at(since(b.base)).state
}

// RecordSuccess says that a call succeeded and how long it took.
func (b *Breaker) RecordSuccess(took time.Duration) {
	if s := b.load(); s == nil || s.plain() && s.streak == 0 && int64(took) <= s.cfg.slow {
		return
	}
	b.apply(event{op: opSettle, byName: true, outcome: OutcomeSuccess, took: int64(took)})
}

// RecordFailure says that a call failed.
func (b *Breaker) RecordFailure(kind Kind) {
	b.apply(event{op: opSettle, byName: true, outcome: OutcomeFailure, kind: kindOfFailure(kind), ewma: ewmaOne})
}

// Reset closes the breaker and forgets the streak, the growth and the learned
// lease.
func (b *Breaker) Reset() { b.apply(event{op: opReset}) }

// Isolate holds the breaker open until Reset.
func (b *Breaker) Isolate() { b.apply(event{op: opIsolate}) }

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
