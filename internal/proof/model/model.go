// Package model is a second implementation of the breaker and the statistics of one
// tool. Tests give the real machine and this one the same story and compare the
// answers.
//
// It was written from the rules in words, not from the machine: one mutable struct,
// the time as a parameter that never decreases, no concurrency, no cleverness. It uses
// nothing of the library, not even the texts of states and reasons.
package model

import (
	"math"
	"math/big"
	"time"
)

// Config has the rules of one breaker. Zero means that a rule is off. There is no
// jitter, because the answers to compare have to be certain.
type Config struct {
	Threshold      int
	Recovery       time.Duration
	Lease          time.Duration
	MaxOpen        time.Duration
	MaxStated      time.Duration // zero means that no stated wait binds other calls
	Growth         int
	ProbeSuccesses int
	Slow           time.Duration
	Window         time.Duration // between two failures of a streak
	Rate           int           // of failures, in millionths
	RateWindow     time.Duration
	RateMinCalls   int
	MaxHint        time.Duration // zero means that hints are not listened to
}

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Longest bounds a cooldown and a learned lease where the configuration does not.
const Longest = 10 * 365 * 24 * time.Hour

// Breaker is the breaker of one tool. All times count from the same start. It is
// comparable, so that a checker can tell whether two are the same.
type Breaker struct {
	Config Config
	State  string // "closed", "open", "half-open"
	Epoch  int
	Since  time.Duration
	Streak int
	Kind   string // kind of the last failure that counted
	Trips  int

	DownSince time.Duration // open or half-open: when it was last closed

	Throttled time.Duration // closed: end of the wait that the tool stated; zero means none

	Due      time.Duration // open: when the next probe is admitted
	Isolated bool          // open: an operator isolated the tool
	Stated   bool          // open: Due is the end of a wait that the tool stated
	Lost     bool          // open: the lease of the last probe ran out

	LeaseEnd time.Duration // half-open: when the probe's lease ends
	LeaseFor time.Duration // half-open: length of the lease that KeepAlive renews
	Untold   bool          // half-open: hooks are being told of the probe; LeaseEnd is when that has taken too long
	Cooldown time.Duration // half-open: cooldown after the lease, if it runs out

	LeastLease   time.Duration // least lease of the next probe
	Operated     int           // epoch of the last Reset or Isolate; older permits change nothing
	FailedProbes int           // failed probes in a row
	GoodProbes   int           // successful probes in a row
	Undecided    int           // probes in a row whose outcome was no verdict
	LastFailure  time.Duration // closed: when the last failure of the streak came

	WindowBegan  time.Duration // beginning of the rate's window
	WindowBefore int           // calls that had ended before it began
	WindowFailed int           // failures in it; zero if there is no window

	// Of a group, whose tools are numbered from one:
	Repeated  int           // closed: the tool whose time-out was counted last, zero if another failure was
	Prober    int           // half-open: the tool that took the probe
	Suspected time.Duration // closed: until then one failure opens, because others suspect the tool
	Hearsay   bool          // open, or throttled while closed: known from others only
	Hurried   bool          // others have brought a probe forward since it was last closed
	Proven    bool          // closed: by a probe
}

// New returns the breaker of a tool that was never called.
func New(c Config) Breaker { return Breaker{Config: c, State: "closed", Epoch: 1, Kind: "none"} }

// Event is a transition.
type Event struct {
	From, To, Cause string
	Epoch           int
	When            time.Duration
	Streak          int
	Kind            string
	Wait            time.Duration
}

// Report is the end of a call.
type Report struct {
	ByName     bool // reported without a permit
	Probe      bool // the permit is the probe's
	Epoch      int  // epoch of the permit
	Outcome    string
	Kind       string
	Took       time.Duration
	RetryAfter time.Duration
	Ended      int // ended calls of the tool, this one included

	Source int  // of a group: the tool
	Once   bool // of a group: such failures of one tool in a row count as one
}

// Answer is the answer to a caller.
type Answer struct {
	Reason string // "none" if the caller is admitted
	Wait   time.Duration
	Probe  bool
	Epoch  int
}

// later adds two durations. A sum that overflows is Never.
func later(t, d time.Duration) time.Duration {
	if sum := t + d; sum >= t {
		return sum
	}
	return Never
}

// bounded returns d, or MaxOpen if that is set and smaller.
func (b *Breaker) bounded(d time.Duration) time.Duration {
	if b.Config.MaxOpen > 0 && d > b.Config.MaxOpen {
		return b.Config.MaxOpen
	}
	return d
}

// stated returns how long a wait that the tool stated binds everyone.
func (b *Breaker) stated(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return 0
	case d > b.Config.MaxStated:
		d = b.Config.MaxStated
	}
	return b.bounded(d)
}

// asks makes everyone wait as long as the tool stated.
func (b *Breaker) asks(now, d time.Duration) {
	if wait := b.stated(d); wait > 0 {
		b.Throttled = max(b.Throttled, later(now, wait))
		b.Hearsay = false
	}
}

// cooldownNow returns the cooldown after the failed probes in a row so far.
func (b *Breaker) cooldownNow() time.Duration {
	d := big.NewInt(int64(b.Config.Recovery))
	for range b.FailedProbes {
		if b.Config.Growth > 1 {
			d.Mul(d, big.NewInt(int64(b.Config.Growth)))
		}
	}
	if d.Cmp(big.NewInt(int64(Longest))) > 0 {
		return b.bounded(Longest)
	}
	return b.bounded(time.Duration(d.Int64()))
}

// unknownWait returns the wait that is reported when the real one is unknown.
func (b *Breaker) unknownWait() time.Duration {
	if b.Config.Recovery > 0 {
		return b.Config.Recovery
	}
	return 30 * time.Second
}

// enter begins another state period and returns its event.
func (b *Breaker) enter(state, cause string, when time.Duration) *Event {
	e := &Event{From: b.State, To: state, Cause: cause}
	switch {
	case state == "closed":
		b.DownSince = 0
	case b.State == "closed":
		b.DownSince = when
	}
	b.State, b.Since = state, when
	b.Epoch++
	b.Throttled = 0
	b.Suspected, b.Hearsay, b.Proven = 0, false, false
	if state == "closed" {
		b.Hurried = false
	}
	if state != "half-open" {
		b.Undecided = 0
	}
	if state != "open" {
		b.Due, b.Isolated, b.Stated, b.Lost = 0, false, false, false
	}
	b.Repeated = 0
	if state != "half-open" {
		b.Prober = 0
		b.LeaseEnd, b.LeaseFor, b.Cooldown, b.Untold = 0, 0, 0, false
	}
	return e
}

// finish fills in the event that enter began.
func (b *Breaker) finish(e *Event) Event {
	e.Epoch, e.When, e.Streak, e.Kind = b.Epoch, b.Since, b.Streak, b.Kind
	switch {
	case b.Isolated:
		e.Wait = b.unknownWait()
	case b.State == "open":
		e.Wait = b.Due - b.Since
	case b.Untold:
		e.Wait = later(b.LeaseFor, b.Cooldown)
	case b.State == "half-open" && b.LeaseEnd != Never:
		e.Wait = later(b.LeaseEnd, b.Cooldown) - b.Since
	}
	return *e
}

// open opens the breaker now, with the next probe after a wait. stated means that
// the tool stated the wait, as with a Retry-After.
func (b *Breaker) open(cause string, now, wait time.Duration, stated bool) Event {
	if b.State == "closed" {
		b.Trips++
	}
	e := b.enter("open", cause, now)
	b.Due = later(now, b.bounded(wait))
	b.Isolated, b.Stated, b.Lost = false, stated, false
	return b.finish(e)
}

func (b *Breaker) close(cause string, now time.Duration) Event {
	e := b.enter("closed", cause, now)
	b.Streak, b.FailedProbes, b.GoodProbes = 0, 0, 0
	b.LastFailure, b.WindowBegan, b.WindowBefore, b.WindowFailed = 0, 0, 0, 0
	return b.finish(e)
}

// Tick lets time pass. If the lease has run out, the breaker has been open since then.
func (b *Breaker) Tick(now time.Duration) []Event {
	if b.State != "half-open" || now < b.LeaseEnd {
		return nil
	}
	end, wait := b.LeaseEnd, b.Cooldown
	e := b.enter("open", "lease_expired", end)
	b.Due = later(end, wait)
	b.Lost = true
	b.GoodProbes = 0
	return []Event{b.finish(e)}
}

// Look returns what Ask would answer now, and changes nothing.
func (b Breaker) Look(now time.Duration) Answer {
	b.Tick(now)
	refuse := func(reason string, wait time.Duration) Answer {
		return Answer{Reason: reason, Wait: wait, Epoch: b.Epoch}
	}
	switch {
	case b.State == "closed" && now < b.Throttled:
		return refuse("rate_limited", b.Throttled-now)
	case b.State == "half-open" && b.LeaseEnd == Never:
		return refuse("probe_in_flight", b.Cooldown)
	case b.Untold:
		return refuse("probe_in_flight", later(b.LeaseFor, b.Cooldown))
	case b.State == "half-open":
		return refuse("probe_in_flight", later(b.LeaseEnd, b.Cooldown)-now)
	case b.State == "open" && b.Isolated:
		return refuse("isolated", b.unknownWait())
	case b.State == "open" && now < b.Due && b.Stated:
		return refuse("rate_limited", b.Due-now)
	case b.State == "open" && now < b.Due:
		return refuse("circuit_open", b.Due-now)
	}
	return Answer{Reason: "none", Probe: b.State == "open", Epoch: b.Epoch}
}

// Ask asks for the admission of one caller. No hook is told of it.
func (b *Breaker) Ask(now time.Duration) (Answer, []Event) { return b.ask(now, false) }

// AskAs is Ask on behalf of a tool of a group.
func (b *Breaker) AskAs(now time.Duration, tool int) (Answer, []Event) {
	a, events := b.ask(now, false)
	if a.Probe {
		b.Prober = tool
	}
	return a, events
}

// AskHooked asks for the admission of one caller. Hooks are told of a probe, and then
// Begin is called.
func (b *Breaker) AskHooked(now time.Duration) (Answer, []Event) { return b.ask(now, true) }

func (b *Breaker) ask(now time.Duration, hooked bool) (Answer, []Event) {
	events := b.Tick(now)
	a := b.Look(now)
	if a.Reason != "none" {
		return a, events
	}
	if !a.Probe {
		b.Throttled, b.Hearsay = 0, false
		return a, events
	}
	lease := Never
	if b.Config.Lease > 0 {
		lease = max(b.Config.Lease, b.LeastLease)
	}
	cooldown := b.cooldownNow()
	e := b.enter("half-open", "probe_admitted", now)
	b.LeaseEnd, b.LeaseFor, b.Cooldown = later(now, lease), lease, cooldown
	if hooked && lease != Never {
		tooLong := 10 * time.Minute
		if b.Config.MaxOpen > 0 {
			tooLong = b.Config.MaxOpen
		}
		b.Untold, b.LeaseEnd = true, later(now, max(lease, tooLong))
	}
	a.Epoch = b.Epoch
	return a, append(events, b.finish(e))
}

// Begin begins the lease of a probe: the hooks have been told of it.
func (b *Breaker) Begin(now time.Duration, epoch int) []Event {
	events := b.Tick(now)
	if b.State == "half-open" && b.Epoch == epoch && b.Untold {
		b.Untold, b.LeaseEnd = false, later(now, b.LeaseFor)
	}
	return events
}

// KeepAlive renews the lease of the probe of this epoch.
func (b *Breaker) KeepAlive(now time.Duration, epoch int) []Event {
	events := b.Tick(now)
	if b.State == "half-open" && b.Epoch == epoch {
		b.LeaseEnd = max(b.LeaseEnd, later(now, b.LeaseFor))
	}
	return events
}

// Pause lets the lease of the probe of this epoch last as long as a breaker may be open.
func (b *Breaker) Pause(now time.Duration, epoch int) []Event {
	events := b.Tick(now)
	if b.State == "half-open" && b.Epoch == epoch {
		most := 10 * time.Minute
		if b.Config.MaxOpen > 0 {
			most = b.Config.MaxOpen
		}
		b.LeaseEnd = max(b.LeaseEnd, later(now, most))
	}
	return events
}

// Resume begins the lease of the probe of this epoch anew, after a pause.
func (b *Breaker) Resume(now time.Duration, epoch int) []Event {
	events := b.Tick(now)
	if b.State == "half-open" && b.Epoch == epoch && !b.Untold {
		b.LeaseEnd = later(now, b.LeaseFor)
	}
	return events
}

// Reset closes the breaker, as an operator does.
func (b *Breaker) Reset(now time.Duration) []Event {
	events := b.Tick(now)
	b.LeastLease = 0
	events = append(events, b.close("reset", now))
	b.Operated = b.Epoch
	return events
}

// Isolate opens the breaker until a Reset, as an operator does.
func (b *Breaker) Isolate(now time.Duration) []Event {
	events := b.Tick(now)
	if b.State == "closed" {
		b.Trips++
	}
	e := b.enter("open", "isolated", now)
	b.Due, b.Isolated, b.Stated, b.Lost = now, true, false, false
	events = append(events, b.finish(e))
	b.Operated = b.Epoch
	return events
}

// Configure changes the rules.
func (b *Breaker) Configure(now time.Duration, c Config) []Event {
	events := b.Tick(now)
	b.Config = c
	if b.State == "half-open" && b.LeaseEnd == Never && c.Lease > 0 {
		b.LeaseFor = max(c.Lease, b.LeastLease)
		b.LeaseEnd = later(now, b.LeaseFor)
	}
	if c.MaxHint == 0 || c.Threshold == 0 && c.Rate == 0 {
		b.Suspected = 0
	}
	if c.Threshold == 0 && c.Rate == 0 && b.State != "closed" && !b.Isolated {
		events = append(events, b.close("reconfigured", now))
	}
	return events
}

// Report records the end of a call.
func (b *Breaker) Report(now time.Duration, r Report) []Event {
	events := b.Tick(now)
	if r.Outcome == "success" && b.Config.Slow > 0 && r.Took > b.Config.Slow {
		r.Outcome, r.Kind = "failure", "timeout"
	}
	if !r.ByName && r.Epoch < b.Operated {
		return events // the operator's word is the last
	}
	mine := r.ByName || r.Epoch == b.Epoch
	if r.Outcome == "success" {
		// A probe outlived its period, or a report by name can only be that of
		// such a probe: the next probe gets more time.
		lateByName := r.ByName && b.State == "open" && !b.Isolated && b.Lost && r.Took > b.Config.Lease
		lateProbe := r.Probe && !mine && b.Config.Lease > 0 && r.Took > b.Config.Lease
		if lateProbe || lateByName {
			b.LeastLease = max(b.LeastLease, b.bounded(min(later(r.Took, r.Took), Longest)))
		}
	}
	switch b.State {
	case "closed":
		return append(events, b.reportClosed(now, r, mine)...)
	case "open":
		b.reportOpen(now, r)
		return events
	}
	if mine && (r.Probe || r.ByName && r.Source == b.Prober) {
		events = append(events, b.reportProbe(now, r))
	}
	return events
}

func (b *Breaker) reportClosed(now time.Duration, r Report, mine bool) []Event {
	switch {
	case r.Outcome == "throttled":
		b.asks(now, r.RetryAfter)
	case !mine:
	case r.Outcome == "success", r.Outcome == "rejected":
		b.Streak, b.Suspected = 0, 0
	case r.Outcome == "failure":
		if b.Config.Window > 0 && now > later(b.LastFailure, b.Config.Window) {
			b.Streak = 0
		}
		if r.Once && b.Streak > 0 && r.Source == b.Repeated {
			return nil
		}
		b.Repeated = 0
		if r.Once {
			b.Repeated = r.Source
		}
		b.Streak++
		b.Kind, b.LastFailure = r.Kind, now
		cause := ""
		b.asks(now, r.RetryAfter)
		often := b.failsOften(now, r.Ended)
		switch {
		case b.Config.Threshold > 0 && b.Streak >= b.Config.Threshold:
			cause = "failure_threshold"
		case often:
			cause = "failure_rate"
		case b.Suspected > now && (r.Kind == "connection" || r.Kind == "timeout" || r.Kind == "server_error"):
			cause = "suspected"
		default:
			return nil
		}
		wait, stated := b.cooldownNow(), false
		if left := b.bounded(b.Throttled - now); left > wait { // the tool has stated a longer wait
			wait, stated = left, true
		}
		return []Event{b.open(cause, now, wait, stated)}
	}
	return nil
}

// failsOften counts a failure and says whether the share of failures in the window is
// too large.
func (b *Breaker) failsOften(now time.Duration, ended int) bool {
	if b.Config.Rate == 0 {
		return false
	}
	if b.WindowFailed == 0 || now >= later(b.WindowBegan, b.Config.RateWindow) {
		b.WindowBegan, b.WindowBefore, b.WindowFailed = now, ended-1, 0
	}
	b.WindowFailed++
	calls := max(ended-b.WindowBefore, b.WindowFailed)
	return calls >= b.Config.RateMinCalls && 1_000_000*b.WindowFailed >= b.Config.Rate*calls
}

func (b *Breaker) reportOpen(now time.Duration, r Report) {
	if b.Isolated {
		return
	}
	if r.Outcome == "failure" {
		b.Kind, b.GoodProbes, b.Hearsay = r.Kind, 0, false
		b.putOff(later(now, b.cooldownNow()), false)
	}
	if r.Outcome == "failure" || r.Outcome == "throttled" {
		wait := b.stated(r.RetryAfter)
		b.Hearsay = b.Hearsay && wait == 0
		b.putOff(later(now, wait), true)
	}
}

// putOff makes the next probe wait until then at least. That is never past the bound
// from when it opened.
func (b *Breaker) putOff(due time.Duration, stated bool) {
	if b.Config.MaxOpen > 0 {
		due = min(due, later(b.Since, b.Config.MaxOpen))
	}
	if due > b.Due {
		b.Due, b.Stated = due, stated
	}
}

func (b *Breaker) reportProbe(now time.Duration, r Report) Event {
	switch r.Outcome {
	case "success", "rejected":
		b.GoodProbes++
		if b.GoodProbes >= max(b.Config.ProbeSuccesses, 1) {
			e := b.close("probe_succeeded", now)
			b.Proven = true
			return e
		}
		return b.open("probe_succeeded", now, 0, false)
	case "failure":
		b.Streak++
		b.Kind = r.Kind
		b.FailedProbes++
		b.GoodProbes = 0
		wait, asked := b.cooldownNow(), b.stated(r.RetryAfter)
		return b.open("probe_failed", now, max(wait, asked), asked > wait)
	case "throttled":
		if wait := b.stated(r.RetryAfter); wait > 0 {
			return b.open("probe_throttled", now, wait, true)
		}
		return b.noVerdict("probe_throttled", now)
	}
	return b.noVerdict("probe_returned", now)
}

// noVerdict is the end of a probe that says nothing about the tool. After the third in
// a row the next one has to wait.
func (b *Breaker) noVerdict(cause string, now time.Duration) Event {
	if row := b.Undecided + 1; row < 3 {
		e := b.open(cause, now, 0, false)
		b.Undecided = row
		return e
	}
	return b.open(cause, now, b.cooldownNow(), false)
}

// Release is a probe's permit that is given back unused. It neither ends nor lengthens
// a row of probes without a verdict.
func (b *Breaker) Release(now time.Duration, epoch int) []Event {
	events := b.Tick(now)
	if b.State == "half-open" && b.Epoch == epoch {
		row := b.Undecided
		events = append(events, b.open("probe_returned", now, 0, false))
		b.Undecided = row
	}
	return events
}

// Hear is what another replica says of the tool, and the wait that it asks for.
func (b *Breaker) Hear(now time.Duration, hint string, wait time.Duration) []Event {
	events := b.Tick(now)
	neverOpens := b.Config.Threshold == 0 && b.Config.Rate == 0
	if b.Config.MaxHint == 0 || b.State == "half-open" || b.Isolated || neverOpens && hint != "throttled" {
		return events
	}
	wait = min(max(wait, 0), b.Config.MaxHint)
	if hint == "throttled" {
		wait = b.stated(wait)
	}
	if b.State == "open" {
		b.hearOpen(now, hint, wait)
		return events
	}
	proof := b.Proven && now < later(b.Since, b.Config.MaxHint)
	end := later(now, b.bounded(wait))
	switch {
	case hint == "recovered":
		b.Suspected = 0
	case wait == 0:
	case hint == "suspect":
		b.Suspected = max(b.Suspected, later(now, wait))
	case hint == "throttled" && end > b.Throttled:
		b.Hearsay = b.Hearsay || b.Throttled <= now
		b.Throttled = end
	case hint == "down" && end > b.Throttled && !proof:
		events = append(events, b.open("reported", now, wait, false))
		b.Hearsay = true
	}
	return events
}

// hearOpen is Hear while open.
func (b *Breaker) hearOpen(now time.Duration, hint string, wait time.Duration) {
	end := later(now, wait)
	switch hint {
	case "recovered":
		if !b.Stated && !b.Hurried && end < b.Due {
			b.Due, b.Hurried = end, true
		}
	case "down", "defer", "throttled":
		end = min(end, later(b.Since, b.Config.MaxHint))
		if b.Config.MaxOpen > 0 {
			end = min(end, later(b.Since, b.Config.MaxOpen))
		}
		if end > now && end > b.Due {
			b.Due = end
			b.Stated = b.Stated || hint == "throttled"
		}
	}
}

// Stats are the counters of one tool. They keep every recorded duration and compute
// each sum when it is asked for.
type Stats struct {
	Good, Bad []time.Duration
	ByKind    map[string]int
	Throttled int
	InRow     int // refused calls since the last admission
	EWMA      int // in millionths

	Rejections map[string]int // by kind
	Neutrals   map[string]int // by kind
	Refusals   map[string]int // by reason
	LastBad    time.Duration
	LastReject time.Duration
	UselessRow int // calls in a row that show a dead key, a tool that is gone or another format
}

// NewStats returns the counters of a tool that was never called.
func NewStats() *Stats {
	return &Stats{
		ByKind: map[string]int{}, Rejections: map[string]int{}, Neutrals: map[string]int{}, Refusals: map[string]int{}, EWMA: 1_000_000,
	}
}

// Ended returns the number of calls that succeeded or failed.
func (s *Stats) Ended() int { return len(s.Good) + len(s.Bad) }

// Admit counts an admission.
func (s *Stats) Admit() { s.InRow = 0 }

// Refuse counts a refusal.
func (s *Stats) Refuse(reason string) {
	s.Refusals[reason]++
	s.InRow++
}

// End records the end of a call.
func (s *Stats) End(now time.Duration, outcome, kind string, took time.Duration) {
	if kind == "none" && outcome != "success" {
		kind = "unknown"
	}
	switch outcome + " " + kind {
	case "rejected unauthorized", "rejected gone", "neutral contract":
		s.UselessRow++
	default:
		if outcome != "neutral" && outcome != "throttled" {
			s.UselessRow = 0
		}
	}
	switch outcome {
	case "success":
		s.Good = append(s.Good, max(took, 0))
		s.EWMA = (7*s.EWMA + 3*1_000_000) / 10
	case "failure":
		s.Bad = append(s.Bad, max(took, 0))
		s.ByKind[kind]++
		s.LastBad = now
		s.EWMA = 7 * s.EWMA / 10
	case "rejected":
		s.Rejections[kind]++
		s.LastReject = now
	case "throttled":
		s.Throttled++
	case "neutral":
		s.Neutrals[kind]++
	}
}

func average(lists ...[]time.Duration) time.Duration {
	sum, n := new(big.Int), int64(0)
	for _, list := range lists {
		for _, d := range list {
			sum.Add(sum, big.NewInt(int64(d)))
			n++
		}
	}
	if n == 0 {
		return 0
	}
	if !sum.IsInt64() { // sums stop at the largest value
		sum.SetInt64(math.MaxInt64)
	}
	return time.Duration(sum.Int64() / n)
}

// Average returns the mean duration of all calls.
func (s *Stats) Average() time.Duration { return average(s.Good, s.Bad) }

// AverageGood returns the mean duration of the successes.
func (s *Stats) AverageGood() time.Duration { return average(s.Good) }

// Max returns the longest duration.
func (s *Stats) Max() time.Duration {
	longest := time.Duration(0)
	for _, list := range [][]time.Duration{s.Good, s.Bad} {
		for _, d := range list {
			longest = max(longest, d)
		}
	}
	return longest
}

// Rate returns the share of successes.
func (s *Stats) Rate() float64 {
	if s.Ended() == 0 {
		return 1
	}
	return float64(len(s.Good)) / float64(s.Ended())
}

// Score returns 0.3 of the rate plus 0.7 of the EWMA.
func (s *Stats) Score() float64 { return 0.3*s.Rate() + 0.7*float64(s.EWMA)/1e6 }

// Status returns the status of a tool in this state that admits calls or not.
func (s *Stats) Status(state string, admits bool) string {
	score := s.Score()
	switch {
	case state == "open", score < 0.5:
		return "unhealthy"
	case score >= 0.8 && admits && s.UselessRow < 10:
		return "healthy"
	}
	return "degraded"
}
