// Package machine is the state machine of a breaker: what a breaker is after an
// event, as a pure function of what it was, the event and the time.
//
// [Step] is all of it. It reads no clock, draws no random number and writes
// nothing but its results, so any interleaving can be played by a test. Carrying
// a [Snapshot] from one goroutine to another, atomically, is the caller's part.
//
// Times and durations are integers: nanoseconds since a base that the caller
// chooses. A clock that goes back counts as standing still.
package machine

import "math"

// State is the state of a breaker.
type State uint8

// The states.
const (
	Closed   State = iota // calls go through
	Open                  // calls are refused until the cooldown is over
	HalfOpen              // one probe is out, under a lease; all other calls are refused
)

// Outcome is what the end of a call says about the tool. Any value that is not
// listed is taken for Neutral.
type Outcome uint8

// The outcomes.
const (
	Success Outcome = iota
	Failure
	Rejected  // the tool is alive and refused the request
	Throttled // the tool stated a wait
	Neutral   // no evidence
)

// Kind is the kind of a failure. The machine keeps the last one. It reads one only while
// others suspect the tool.
type Kind uint8

// The kinds that confirm a suspicion: a tool that others report down fails like this.
const (
	Timeout     Kind = 1 // also the kind of a success that was slow, which counts as a failure
	ServerError Kind = 2
	Connection  Kind = 5
)

// Reason says why a caller is refused.
type Reason uint8

// The reasons.
const (
	Admitted Reason = iota // not refused
	CircuitOpen
	ProbeInFlight
	RateLimited
	Isolated
)

// Cause says why a breaker changed its state.
type Cause uint8

// The causes.
const (
	CauseNone             Cause = iota
	CauseFailureThreshold       // closed to open: consecutive failures
	CauseFailureRate            // closed to open: the share of failures
	CauseProbeAdmitted          // open to half-open
	CauseProbeSucceeded         // half-open to closed, or to open if more successes are wanted
	CauseProbeFailed            // half-open to open, with a fresh cooldown
	CauseProbeThrottled         // half-open to open, until the stated wait is over
	CauseProbeReturned          // half-open to open without a verdict: the next probe is due at once, or after a cooldown
	CauseLeaseExpired           // half-open to open, since the end of the lease
	CauseReset                  // any to closed
	CauseIsolated               // any to open
	CauseReconfigured           // any to closed: no rule opens it any more
	CauseSuspected              // closed to open: one failure, while others suspect the tool
	CauseReported               // closed to open: others report the tool down
	CauseRestored               // closed to open: it was open before a restart
)

// Op is what happens to a breaker.
type Op uint8

// The ops.
const (
	OpAdmit     Op = iota // a caller asks to run the tool
	OpSettle              // a call ended
	OpRelease             // a permit is given back unused: that is no verdict
	OpBegin               // the hooks were told of a probe, which begins now
	OpKeepAlive           // a probe reports that it is alive
	OpPause               // a probe waits for a person, and cannot report
	OpResume              // it goes on
	OpReset               // an operator closes the breaker
	OpIsolate             // an operator holds it open
	OpConfigure           // the configuration changed
	OpHint                // another replica knows something of the tool
	OpRestore             // what was known before a restart
)

// Event is the input of [Step]. It carries everything that Step cannot derive
// from the snapshot.
type Event struct {
	Op Op

	ByName bool   // OpSettle without a permit: of the current epoch, and the probe's in half-open
	Probe  bool   // OpSettle to OpResume: the permit is a probe's
	Epoch  uint64 // OpSettle to OpResume: the epoch that admitted the permit

	Outcome    Outcome // OpSettle
	Kind       Kind    // OpSettle: of a failure
	Took       int64   // OpSettle: the duration of the call
	RetryAfter int64   // OpSettle: the wait that a throttle or a failure stated; OpHint: the wait that it asks for; zero or less means none
	Ended      uint64  // OpSettle: successes and failures of the tool, this call included

	// Source tells the tools of a group apart; zero in the breaker of a tool. By name, an
	// outcome is the probe's verdict only if it is of the source that took the probe.
	Source uint64 // OpAdmit, OpSettle
	// Once says that failures in a row of this source, each Once, count as one.
	Once bool // OpSettle

	LeaseFloor int64   // OpAdmit: the shortest lease of a probe
	Hooked     bool    // OpAdmit: hooks will be told of a probe before it begins, and OpBegin will follow
	NoProbe    bool    // OpAdmit: the caller must not be the probe
	Params     *Params // OpConfigure
	Hint       Hint    // OpHint
	Saved      *Saved  // OpRestore

	// Draw says where a cooldown falls within its jitter: in [0,1). Only an event that
	// begins a cooldown calls it, once; without it a cooldown has no jitter.
	Draw func() float64
}

// Change is one transition.
type Change struct {
	From, To State
	Cause    Cause
	Kind     Kind   // of the last failure that counted
	When     int64  // the time at which it took effect
	Epoch    uint64 // of the new state
	Streak   int    // consecutive failures, this one included
	Wait     int64  // until the next probe may go; zero when closed or unknown
}

// Answer is the output of [Step], apart from the next snapshot.
type Answer struct {
	Probe  bool   // OpAdmit: the caller got the probe
	Reason Reason // OpAdmit: why the caller is refused
	Epoch  uint64 // of the next snapshot, which admits the caller
	Wait   int64  // OpAdmit: how long the tool will keep refusing; zero if it does not
	Stated int64  // OpSettle: how long every caller waits from now on, because this call was told so; zero if it changes no wait
	// Changes are the transitions from the old snapshot to the next one, oldest first:
	// at most two, as the end of a lease may come before another one.
	Changes []Change
}

// Snapshot is everything that a breaker remembers. It never changes: each change
// of a breaker is a new snapshot. What a failure changes lies in it, and the rest in
// past: a failure that does not open makes 64 bytes of garbage.
type Snapshot struct {
	Params *Params
	*past
	State    State
	Kind     Kind // of the last failure that counted
	isolated bool // open: held until Reset
	limited  bool // open: Until comes from a stated wait
	lost     bool // open: began at the end of a lease
	untold   bool // half-open: hooks are being told, so the lease has not begun; until then Until is a bound
	// doubted says that doubt is not zero. It lies here so that a success finds it beside
	// what it reads anyway.
	doubted bool
	// Evicted marks the last snapshot of a breaker whose owner has dropped it. Step
	// neither reads nor sets it, and must not be asked about such a snapshot.
	Evicted bool

	Epoch uint64 // grows by one with each transition; a permit carries the one that admitted it
	Since int64  // the beginning of this state
	// Until is, closed, the end of a throttle; open, when the next probe is due;
	// half-open, the end of the lease. Zero means no throttle, Forever no lease.
	Until int64

	Streak       int32  // consecutive failures; frozen while open, a failed probe adds one
	windowFailed uint32 // failures in the window that counted
	failedAt     int64  // closed with a streak: when its last failure came
}

// past is what few events change. Snapshots share it, so it is never written: amend
// gives a snapshot one of its own.
type past struct {
	Trips uint64 // transitions from closed to open
	// DownSince is when the breaker left closed, whatever has been tried since. Zero
	// while closed.
	DownSince int64

	operated uint64 // epoch of the last Reset or Isolate; permits from before it change nothing
	learned  int64  // the shortest lease of the next probe, from late successes
	lease    int64  // half-open: how long a KeepAlive extends the lease for
	cooldown int64  // half-open: the cooldown that follows if the lease runs out
	failed   uint32 // failed probes in a row: the exponent of growth
	passed   uint32 // successful probes in a row

	// The window of FailureRate. It begins with a failure; without one in it there is no
	// window.
	windowSince int64
	windowEnded uint64 // calls that had ended before it began

	// source is, closed with a streak, the source of the last failure that counted, if
	// that was Once, else zero; half-open, the source of the probe.
	source uint64
	// undecided counts the probes in a row whose outcome was no verdict. Every period
	// that begins for another reason begins at zero.
	undecided uint8
	hearsay   bool  // open, or closed with a throttle: only a hint says so
	hurried   bool  // a hint has shortened a wait since the breaker left closed
	proven    bool  // closed: by a probe
	doubt     int64 // closed: until then a failure opens, as others suspect the tool; zero means that none does
}

// amend puts s before a past of its own, changed by change.
func (s *Snapshot) amend(change func(*past)) {
	next := *s.past
	change(&next)
	s.past = &next
}

// AdmitsAll reports whether every caller is admitted, at any time.
func (s *Snapshot) AdmitsAll() bool { return s.State == Closed && s.Until == 0 && !s.Evicted }

// UnmovedBy reports whether a success that took this long changes nothing, if it
// is no probe's.
func (s *Snapshot) UnmovedBy(took int64) bool {
	return s.AdmitsAll() && s.Streak == 0 && !s.doubted && took <= s.Params.slow
}

// Forgettable reports whether s holds nothing against its tool: closed, no
// streak, not throttled. What only a hint says is nothing.
func (s *Snapshot) Forgettable(now int64) bool {
	return s.Streak == 0 && (s.hearsay || s.State == Closed && s.Until <= now)
}

// FadesAt returns when s may be forgotten although it holds something against its
// tool, of which nothing was asked or reported since seen: Patience after that, and
// after the last cooldown or throttle. It is Forever while an operator holds s open.
func (s *Snapshot) FadesAt(seen int64) int64 {
	switch {
	case s.isolated:
		return Forever
	case s.State != HalfOpen:
		seen = max(seen, s.Until)
	case s.Until != Forever:
		seen = max(seen, later(s.Until, s.cooldown))
	}
	return later(seen, s.Params.Patience())
}

// FailedWithinCooldown reports whether s is closed, and the last call that counted has
// failed less than a cooldown ago.
func (s *Snapshot) FailedWithinCooldown(now int64) bool {
	return s.State == Closed && s.Streak > 0 && max(now, s.Since)-s.failedAt < s.Params.recovery
}

// expired reports whether s is half-open under a lease that has run out. Then it
// IS open, with a cooldown that began at the end of the lease. No timer stores
// that: every reader derives it by this rule.
func (s *Snapshot) expired(now int64) bool { return s.State == HalfOpen && now >= s.Until }

// ProbeIsOut reports whether a probe is out, under a lease that has not run out.
func (s *Snapshot) ProbeIsOut(now int64) bool { return s.State == HalfOpen && now < s.Until }

// AsOf returns the snapshot as it reads at now: half-open under an expired lease
// is open.
func (s *Snapshot) AsOf(now int64) Snapshot {
	seen := *s
	if s.expired(now) {
		seen.begin(Open, s.Until, later(s.Until, s.cooldown)) // as promised, whatever the config is now
		seen.lost = true
		seen.endPasses()
		seen.Epoch++
	}
	return seen
}

// Refusal says why a caller is refused at now and for how long; Admitted and 0
// if it is not. It is the one rule behind the gate and everything that predicts
// the gate, so the two cannot differ. It changes nothing; Step gives out the
// probe.
//
// quiet means that the caller is refused and that Step would leave the snapshot
// as it is, so there is no need for it. The first refusal after the end of a
// lease is not quiet: Step reports that end.
func (s *Snapshot) Refusal(now int64) (reason Reason, wait int64, quiet bool) {
	now = max(now, s.Since)
	switch {
	case s.State == Closed && now < s.Until:
		return RateLimited, s.Until - now, true
	case s.State == Closed:
		return Admitted, 0, false
	case s.State == HalfOpen:
		return s.refusalBesideProbe(now)
	case s.isolated:
		return Isolated, s.Params.Hint(), true
	case now >= s.Until:
		return Admitted, 0, false
	case s.limited:
		return RateLimited, s.Until - now, true
	}
	return CircuitOpen, s.Until - now, true
}

// refusalBesideProbe is Refusal while half-open.
func (s *Snapshot) refusalBesideProbe(now int64) (reason Reason, wait int64, quiet bool) {
	due := later(s.Until, s.cooldown)
	switch {
	case now >= due:
		return Admitted, 0, false
	case now >= s.Until:
		return CircuitOpen, due - now, false
	case s.Until == Forever: // no lease, so the wait is unknown: say one cooldown
		return ProbeInFlight, s.cooldown, true
	case s.untold: // as if the lease began now
		return ProbeInFlight, later(s.lease, s.cooldown), true
	}
	return ProbeInFlight, due - now, true
}

// Step returns what a breaker is after an event, and the answer to the event. If
// the event changes nothing, next is s itself. Step is pure: it reads s and ev and
// writes nothing but its results.
func Step(s *Snapshot, ev *Event, now int64) (next *Snapshot, a Answer) {
	now = max(now, s.Since)
	n := *s
	if s.expired(now) {
		n = s.AsOf(now)
		a.record(&n, s.State, CauseLeaseExpired)
	}
	from, until := n.State, n.Until
	if cause := n.apply(ev, now, &a); cause != CauseNone {
		n.Epoch++
		if from == Closed && n.State == Open {
			n.amend(func(p *past) { p.Trips, p.DownSince = p.Trips+1, n.Since-ev.Saved.downBefore() })
		}
		if cause == CauseReset || cause == CauseIsolated {
			n.amend(func(p *past) { p.operated = n.Epoch })
		}
		a.record(&n, from, cause)
	}
	if ev.states() && (n.limited || n.State == Closed) && (n.Until != until || from == HalfOpen && n.State == Open) {
		a.Stated = n.Until - now
	}
	a.Epoch = n.Epoch
	if n == *s {
		return s, a
	}
	next = new(Snapshot) // here, so that n itself stays on the stack
	*next = n
	return next, a
}

// states reports whether ev is the end of a call that was told to wait.
func (ev *Event) states() bool {
	return ev.Op == OpSettle && ev.RetryAfter > 0 && (ev.Outcome == Throttled || ev.Outcome == Failure)
}

// record notes that s came from another state.
func (a *Answer) record(s *Snapshot, from State, cause Cause) {
	c := Change{From: from, To: s.State, Cause: cause, When: s.Since, Epoch: s.Epoch, Streak: int(s.Streak), Kind: s.Kind}
	switch {
	case s.isolated:
		c.Wait = s.Params.Hint()
	case s.State == Open:
		c.Wait = s.Until - s.Since
	case s.untold:
		c.Wait = later(s.lease, s.cooldown)
	case s.State == HalfOpen && s.Until != Forever:
		c.Wait = later(s.Until, s.cooldown) - s.Since
	}
	a.Changes = append(a.Changes, c)
}

// apply applies one event to s, whose lease has not run out, and returns the
// cause if the state changed.
func (s *Snapshot) apply(ev *Event, now int64, a *Answer) Cause {
	switch ev.Op {
	case OpAdmit:
		return s.admit(ev, now, a)
	case OpSettle:
		return s.settle(ev, now)
	case OpRelease:
		if s.isProbe(ev) {
			undecided := s.undecided
			s.open(now, 0)
			s.amend(func(p *past) { p.undecided = undecided })
			return CauseProbeReturned
		}
	case OpBegin:
		if s.isProbe(ev) && s.untold {
			s.untold, s.Until = false, later(now, s.lease)
		}
	case OpKeepAlive:
		if s.isProbe(ev) {
			s.Until = max(s.Until, later(now, s.lease))
		}
	case OpPause:
		if s.isProbe(ev) { // what never goes on must not keep the probe forever
			s.Until = max(s.Until, later(now, s.Params.Patience()))
		}
	case OpResume:
		if s.isProbe(ev) && !s.untold {
			s.Until = later(now, s.lease)
		}
	case OpReset:
		s.closeAt(now)
		s.amend(func(p *past) { p.learned = 0 })
		return CauseReset
	case OpIsolate:
		s.open(now, 0)
		s.isolated = true
		return CauseIsolated
	case OpConfigure:
		return s.configure(ev.Params, now)
	case OpHint:
		return s.heed(ev, now)
	case OpRestore:
		return s.restore(ev.Saved, now)
	}
	return CauseNone
}

// configure puts s under other params.
func (s *Snapshot) configure(p *Params, now int64) Cause {
	s.Params = p
	if s.State == HalfOpen && s.Until == Forever && p.lease > 0 { // a lost probe must not stay lost
		s.amend(func(past *past) { past.lease = max(p.lease, past.learned) })
		s.Until = later(now, s.lease)
	}
	if !p.opens() || p.maxHint == 0 {
		s.endDoubt()
	}
	if !p.opens() && s.State != Closed && !s.isolated {
		s.closeAt(now)
		return CauseReconfigured
	}
	return CauseNone
}

// isProbe reports whether the permit of ev is that of the probe that is out.
func (s *Snapshot) isProbe(ev *Event) bool {
	return s.State == HalfOpen && ev.Probe && ev.Epoch == s.Epoch
}

// admit admits the caller, as the probe if s is not closed, or refuses.
func (s *Snapshot) admit(ev *Event, now int64, a *Answer) Cause {
	a.Reason, a.Wait, _ = s.Refusal(now)
	if a.Reason != Admitted {
		return CauseNone
	}
	if s.State == Closed {
		s.Until = 0 // a throttle that is over
		s.endHearsay()
		return CauseNone
	}
	if ev.NoProbe {
		a.Reason, a.Wait = CircuitOpen, s.Params.Hint()
		return CauseNone
	}
	a.Probe = true
	lease := int64(Forever)
	if s.Params.lease > 0 {
		lease = max(s.Params.lease, s.learned, ev.LeaseFloor)
	}
	s.State, s.Since, s.limited, s.lost = HalfOpen, now, false, false
	s.Until = later(now, lease)
	if ev.Hooked && lease != Forever { // a hook that hangs must not keep the probe forever
		s.untold, s.Until = true, later(now, max(lease, s.Params.Patience()))
	}
	s.amend(func(p *past) {
		p.lease, p.cooldown, p.source = lease, s.Params.cooldown(p.failed, ev.Draw), ev.Source
		p.hearsay = false // from here on a probe of its own speaks
	})
	return CauseProbeAdmitted
}

// settle applies the outcome of one call. An operator's word is the last: a call
// that was admitted before it changes nothing.
func (s *Snapshot) settle(ev *Event, now int64) Cause {
	if !ev.ByName && ev.Epoch < s.operated {
		return CauseNone
	}
	if ev.Outcome == Success && ev.Took > s.Params.slow {
		slow := *ev
		slow.Outcome, slow.Kind, slow.RetryAfter = Failure, Timeout, 0
		ev = &slow
	}
	current := ev.ByName || ev.Epoch == s.Epoch
	outlived := s.Params.lease > 0 && ev.Took > s.Params.lease
	if ev.Outcome == Success && ev.Probe && !current && outlived {
		s.learn(ev.Took) // the probe lives, its lease was too short for it
	}
	switch s.State {
	case Closed:
		return s.settleClosed(ev, now, current)
	case Open:
		s.settleOpen(ev, now)
		return CauseNone
	}
	if current && (ev.Probe || ev.ByName && ev.Source == s.source) {
		return s.settleProbe(ev, now)
	}
	return CauseNone
}

func (s *Snapshot) settleClosed(ev *Event, now int64, current bool) Cause {
	switch {
	case ev.Outcome == Throttled: // also of an older epoch: the wait is the tool's
		s.throttle(ev, now)
	case !current:
	case ev.Outcome == Success, ev.Outcome == Rejected:
		s.Streak = 0
		s.endDoubt()
	case ev.Outcome == Failure:
		return s.fail(ev, now)
	}
	return CauseNone
}

// throttle makes every caller wait as long as the tool stated, if it stated a wait.
func (s *Snapshot) throttle(ev *Event, now int64) {
	if wait := s.Params.stated(ev.RetryAfter); wait > 0 {
		s.Until = max(s.Until, later(now, wait))
		s.endHearsay()
	}
}

// fail counts a failure of the current closed period and opens s if it is one
// too many. Only a failure opens: a success does not.
func (s *Snapshot) fail(ev *Event, now int64) Cause {
	if s.Params.window > 0 && now-s.failedAt > s.Params.window {
		s.Streak = 0
	}
	if s.countedOnce(ev) {
		return CauseNone
	}
	s.countFailure(ev)
	s.failedAt = now
	tooMany := s.Params.rate > 0 && s.countInWindow(ev, now)
	switch {
	case s.Params.threshold > 0 && int(s.Streak) >= s.Params.threshold:
		s.openAfterFailure(ev, now)
		return CauseFailureThreshold
	case tooMany:
		s.openAfterFailure(ev, now)
		return CauseFailureRate
	case s.doubt > now && ev.Kind.confirms():
		s.openAfterFailure(ev, now)
		return CauseSuspected
	}
	s.throttle(ev, now)
	return CauseNone
}

// countedOnce reports whether the failure counts as one with the last. If not, it is
// the one that the next may count with.
func (s *Snapshot) countedOnce(ev *Event) bool {
	var source uint64
	if ev.Once {
		source = ev.Source
	}
	if s.Streak > 0 && source != 0 && source == s.source {
		return true
	}
	if source != s.source {
		s.amend(func(p *past) { p.source = source })
	}
	return false
}

// countInWindow counts a failure in the window of FailureRate, or begins the next
// window with it, and reports whether the share of failures has reached the rate.
// Successes are not counted here: how many calls have ended is in the event.
func (s *Snapshot) countInWindow(ev *Event, now int64) bool {
	if s.windowFailed == 0 || now-s.windowSince >= s.Params.rateWindow {
		s.amend(func(p *past) { p.windowSince, p.windowEnded = now, max(ev.Ended, 1)-1 })
		s.windowFailed = 0
	}
	s.windowFailed = saturatingNext(s.windowFailed)
	calls := uint64(s.windowFailed)
	if ev.Ended > s.windowEnded {
		calls = max(calls, ev.Ended-s.windowEnded)
	}
	return calls >= s.Params.rateCalls && float64(s.windowFailed)*rateOne >= float64(s.Params.rate)*float64(calls)
}

func (s *Snapshot) countFailure(ev *Event) {
	if s.Streak < math.MaxInt32 {
		s.Streak++
	}
	s.Kind = ev.Kind
}

// settleOpen applies an outcome while open: of a call that was admitted before.
func (s *Snapshot) settleOpen(ev *Event, now int64) {
	if s.isolated {
		return // only Reset ends it, and no cooldown runs
	}
	switch ev.Outcome {
	case Success: // tells of the time before the trip
		if ev.ByName && s.lost && ev.Took > s.Params.lease {
			s.learn(ev.Took)
		}
	case Failure:
		s.Kind = ev.Kind
		s.endPasses()
		s.endHearsay()
		if s.postpone(now, s.Params.cooldown(s.failed, ev.Draw)) {
			s.limited = false
		}
		s.postponeAsStated(ev, now)
	case Throttled:
		s.postponeAsStated(ev, now)
	}
}

// settleProbe applies the verdict of the probe that is out.
func (s *Snapshot) settleProbe(ev *Event, now int64) Cause {
	switch ev.Outcome {
	case Success, Rejected:
		if s.passed+1 >= s.Params.successes {
			s.closeAt(now)
			s.amend(func(p *past) { p.proven = true })
		} else {
			s.amend(func(p *past) { p.passed++ })
			s.open(now, 0)
		}
		return CauseProbeSucceeded
	case Failure:
		s.countFailure(ev)
		s.amend(func(p *past) { p.failed, p.passed = saturatingNext(p.failed), 0 })
		s.openAfterFailure(ev, now)
		return CauseProbeFailed
	case Throttled:
		if wait := s.Params.stated(ev.RetryAfter); wait > 0 {
			s.open(now, wait)
			s.limited = true
		} else {
			s.returnUndecided(ev, now)
		}
		return CauseProbeThrottled
	}
	s.returnUndecided(ev, now)
	return CauseProbeReturned
}

// maxUndecided is how many probes in a row may end without a verdict until the next
// one has to wait for a cooldown: a tool about which nothing is learned is not probed
// by every call.
const maxUndecided = 3

// returnUndecided opens s after a probe whose outcome was no verdict: for the next
// caller at once, or for a cooldown after maxUndecided of them. That is no failure, so
// the cooldown does not grow.
func (s *Snapshot) returnUndecided(ev *Event, now int64) {
	undecided := s.undecided + 1
	if undecided >= maxUndecided {
		s.open(now, s.Params.cooldown(s.failed, ev.Draw))
		return
	}
	s.open(now, 0)
	s.amend(func(p *past) { p.undecided = undecided })
}

// openAfterFailure opens s for one cooldown, or for the longest stated wait that
// binds if that is longer: the failure's own, or the rest of a throttle.
func (s *Snapshot) openAfterFailure(ev *Event, now int64) {
	var throttled int64
	if s.State == Closed {
		throttled = s.Until
	}
	s.open(now, s.Params.cooldown(s.failed, ev.Draw))
	s.limited = s.postpone(now, max(throttled-now, s.Params.stated(ev.RetryAfter)))
}

// open makes s open from now on, with the next probe after wait.
func (s *Snapshot) open(now, wait int64) {
	s.begin(Open, now, later(now, s.Params.Cap(wait)))
}

// closeAt makes s closed from now on, with nothing held against the tool.
func (s *Snapshot) closeAt(now int64) {
	s.begin(Closed, now, 0)
	s.Streak, s.failedAt, s.windowFailed = 0, 0, 0
	s.amend(func(p *past) { *p = past{Trips: p.Trips, operated: p.operated, learned: p.learned} })
}

// begin begins a state that is not half-open.
func (s *Snapshot) begin(state State, since, until int64) {
	s.State, s.Since, s.Until = state, since, until
	s.isolated, s.limited, s.lost, s.untold, s.doubted = false, false, false, false, false
	s.amend(func(p *past) {
		p.lease, p.cooldown, p.source, p.undecided = 0, 0, 0, 0
		p.hearsay, p.proven, p.doubt = false, false, 0
	})
}

// endPasses ends a row of successful probes.
func (s *Snapshot) endPasses() {
	if s.passed > 0 {
		s.amend(func(p *past) { p.passed = 0 })
	}
}

// postpone moves the next probe of an open breaker to now+d if that is later,
// but never past MaxOpenDuration after it opened. It reports whether it moved.
func (s *Snapshot) postpone(now, d int64) bool {
	t := later(now, d)
	if s.Params.maxOpen > 0 {
		t = min(t, later(s.Since, s.Params.maxOpen))
	}
	if t <= s.Until {
		return false
	}
	s.Until = t
	return true
}

// postponeAsStated moves the next probe of an open breaker to the end of the wait
// that the tool stated, if that is later.
func (s *Snapshot) postponeAsStated(ev *Event, now int64) {
	wait := s.Params.stated(ev.RetryAfter)
	if wait > 0 {
		s.endHearsay()
	}
	if s.postpone(now, wait) {
		s.limited = true
	}
}

// learn makes the next lease long enough for a call that took this long.
func (s *Snapshot) learn(took int64) {
	if lease := s.Params.learnable(later(took, took)); lease > s.learned {
		s.amend(func(p *past) { p.learned = lease })
	}
}
