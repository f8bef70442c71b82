package toolhealth

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/flight"
	"github.com/toolhealth/toolhealth/internal/retry"
)

// ewmaOne is an EWMA of 1.0: averages are integers scaled by this.
const ewmaOne = 1_000_000

// toolStats are the all-time counters of one tool: lock-free, written by every call
// that ends, read by dashboards. The zero value is ready for use.
//
// A success costs two atomic additions and allocates nothing. toolStats must not be
// copied; read returns a copy of the figures.
type toolStats struct {
	// Every field is written by the call that ends and read by read. Successes of
	// permits and of calls by name are counted apart: with admitted and settled
	// the former tell how many permits are out (see inUse), at no extra write.
	//
	// Order: a call first raises longest, then counts itself, then adds to a
	// sum; read goes the other way. So a duration that a reader sees in a sum
	// belongs to a call that it sees counted, and no average exceeds the maximum.
	permitOK atomic.Uint64 // successes settled through a permit
	nameOK   atomic.Uint64 // successes recorded by name
	sumOK    atomic.Int64  // ns of all successes; see addSaturating
	longest  atomic.Int64  // ns of the longest success or failure
	missing  atomic.Int64  // ewmaOne - EWMA, so that the zero value is full health
	admitted atomic.Uint64 // permits given out
	settled  atomic.Uint64 // permits settled otherwise than by a success, or released
	// rejectedInRow is [ToolHealth.RejectedInRow]. A success reads it, and writes it
	// only to end a row.
	rejectedInRow atomic.Uint64

	sumBad    atomic.Int64 // ns of all failures
	throttled atomic.Uint64

	// Each is nil until the first call of it, and set once. The sums are the totals, so
	// that the two cannot disagree.
	failures   atomic.Pointer[datedCounts]
	rejections atomic.Pointer[datedCounts]
	neutrals   atomic.Pointer[kindCounts]
	refusals   atomic.Pointer[refusalCounts]
}

// kindCounts are the calls of one outcome, by kind.
type kindCounts [numKinds]atomic.Uint64

func (c *kindCounts) add(kind Kind) { c[kindOfError(kind)].Add(1) }

// datedCounts are kindCounts with the time of the last call.
type datedCounts struct {
	kindCounts
	// last is when the last call ended in the registry's time, 0 without a registry. A
	// call raises it and then counts itself, so a reader that sees a call counted sees
	// its time or a later one.
	last atomic.Int64
}

func (c *datedCounts) add(kind Kind, now int64) {
	raise(&c.last, now)
	c.kindCounts.add(kind)
}

// refusalCounts are the calls that the gate refused, by reason.
type refusalCounts struct {
	byReason [StopUnknownTool + 1]atomic.Uint64
	// before is what total was at the last admission: the difference is the number of
	// refusals in a row. Written by admitted calls.
	before atomic.Uint64
}

// total returns the number of refusals. It wraps around, so that differences are right.
func (c *refusalCounts) total() (n uint64) {
	for i := range c.byReason {
		n += c.byReason[i].Load()
	}
	return n
}

// madeOnce returns *p, made if it is nil.
func madeOnce[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// tally returns the counters that are not zero by their index, nil without any, and
// their sum.
func tally[K Kind | StopReason](counters []atomic.Uint64) (by map[K]uint64, total uint64) {
	for i := range counters {
		if n := counters[i].Load(); n > 0 {
			if by == nil {
				by = make(map[K]uint64)
			}
			by[K(i)] = n
			total = saturatingSum(total, n)
		}
	}
	return by, total
}

// refused counts a call that was not made because the gate refused it for this
// reason. One that is no reason of a gate counts as StopNone.
func (s *toolStats) refused(reason StopReason) {
	if reason > StopUnknownTool {
		reason = StopNone
	}
	madeOnce(&s.refusals).byReason[reason].Add(1)
}

// success counts into total, which is permitOK or nameOK. Negative durations
// count as 0.
func (s *toolStats) success(total *atomic.Uint64, took int64) {
	took = max(took, 0)
	if took > s.longest.Load() {
		raise(&s.longest, took)
	}
	if s.missing.Load() != 0 {
		s.sample(ewmaOne)
	}
	s.endRejections()
	total.Add(1)
	addSaturating(&s.sumOK, took)
}

func (s *toolStats) failure(kind Kind, took, now int64) {
	took = max(took, 0)
	raise(&s.longest, took)
	s.sample(0)
	s.endRejections()
	madeOnce(&s.failures).add(kind, now)
	addSaturating(&s.sumBad, took)
}

func (s *toolStats) rejection(kind Kind, now int64) {
	if kind == KindUnauthorized || kind == KindGone {
		s.rejectedInRow.Add(1)
	} else {
		s.endRejections()
	}
	madeOnce(&s.rejections).add(kind, now)
}

func (s *toolStats) neutral(kind Kind, now int64) {
	if kind == KindContract {
		s.rejectedInRow.Add(1)
	}
	madeOnce(&s.neutrals).add(kind)
}

// endRejections ends a row of rejections.
func (s *toolStats) endRejections() {
	if s.rejectedInRow.Load() != 0 {
		s.rejectedInRow.Store(0)
	}
}

// kindOfError returns kind, or KindUnknown if a call that did not succeed cannot have
// it: a user's classifier may say anything.
func kindOfError(kind Kind) Kind {
	if kind == KindNone || kind >= numKinds {
		return KindUnknown
	}
	return kind
}

// sample puts one outcome, ewmaOne or 0, into the EWMA with a weight of 30 %.
// A value that would not change is not written: a healthy tool's EWMA costs a
// load.
func (s *toolStats) sample(outcome int64) {
	for {
		old := s.missing.Load()
		next := ewmaOne - (7*(ewmaOne-old)+3*outcome)/10
		if next == old || s.missing.CompareAndSwap(old, next) {
			return
		}
	}
}

// raise makes v at least x.
func raise(v *atomic.Int64, x int64) {
	for old := v.Load(); x > old; old = v.Load() {
		if v.CompareAndSwap(old, x) {
			return
		}
	}
}

// addSaturating adds d >= 0 to a sum that stays at the maximum once it is
// there. It is one addition instead of a compare-and-swap loop. A writer that
// overflows the sum sees it negative and stores the maximum; until then readers treat
// a negative sum as the maximum.
func addSaturating(sum *atomic.Int64, d int64) {
	if sum.Add(d) < 0 {
		sum.Store(math.MaxInt64)
	}
}

// ewma returns the EWMA scaled by ewmaOne.
func (s *toolStats) ewma() int64 { return ewmaOne - s.missing.Load() }

// ended returns the number of successes and failures.
func (s *toolStats) ended() uint64 {
	n := saturatingSum(s.permitOK.Load(), s.nameOK.Load())
	if c := s.failures.Load(); c != nil {
		for i := range c.kindCounts {
			n = saturatingSum(n, c.kindCounts[i].Load())
		}
	}
	return n
}

// admitBelow counts a permit as given out if fewer than limit are out. The number of
// those that are settled only grows, so an old one never lets too many out.
func (s *toolStats) admitBelow(limit uint64) bool {
	for {
		done := s.permitOK.Load() + s.settled.Load()
		admitted := s.admitted.Load()
		switch {
		case admitted-min(done, admitted) < limit: // fewer than none are out if a copied permit was settled twice
			if s.admitted.CompareAndSwap(admitted, admitted+1) {
				return true
			}
		case done == s.permitOK.Load()+s.settled.Load():
			return false
		}
	}
}

// inUse reports whether a permit is out. The settled ones are read first: a
// permit that is given out in between can only make the answer true.
func (s *toolStats) inUse() bool { return s.inFlight() > 0 }

// inFlight returns the number of permits that are out.
func (s *toolStats) inFlight() uint64 {
	done := s.permitOK.Load() + s.settled.Load()
	admitted := s.admitted.Load()
	if done > admitted { // a copied permit was settled twice
		return 0
	}
	return admitted - done
}

// refusedInRow returns the number of refusals since the last admission.
func (s *toolStats) refusedInRow() uint64 {
	c := s.refusals.Load()
	if c == nil {
		return 0
	}
	before := c.before.Load()
	return c.total() - before
}

// endRefusals notes that a call was admitted after some were refused.
func (s *toolStats) endRefusals() {
	if c := s.refusals.Load(); c != nil {
		c.before.Store(c.total())
	}
}

// Counts are the figures of one tool at one moment. Attempts are counted, each
// for the tool that ran. Sums of durations stay at their maximum instead of
// overflowing.
//
// Counts have no JSON of their own: the tags are the keys in that of [ToolHealth],
// which has the durations as "average_seconds", "average_success_seconds" and
// "max_seconds".
type Counts struct {
	Successes uint64          `json:"successes"`                  // attempts that worked
	Failures  uint64          `json:"failures"`                   // attempts whose failure counts against the tool
	ByKind    map[Kind]uint64 `json:"failures_by_kind,omitempty"` // failures by kind; nil without any
	Rejected  uint64          `json:"rejected"`                   // attempts whose request the tool rejected
	Throttled uint64          `json:"throttled"`                  // attempts that the tool asked to repeat later
	Neutral   uint64          `json:"neutral"`                    // attempts that say nothing about the tool
	Refused   uint64          `json:"refused"`                    // calls that were not made

	// Rejected and Neutral by kind, Refused by reason; nil without any. They add up to
	// the totals.
	RejectedByKind  map[Kind]uint64       `json:"rejections_by_kind,omitempty"`
	NeutralByKind   map[Kind]uint64       `json:"neutrals_by_kind,omitempty"`
	RefusedByReason map[StopReason]uint64 `json:"refusals_by_reason,omitempty"`

	// Average and Max include failures: a timeout is part of how slow a tool is.
	// All three are zero without any.
	Average        time.Duration `json:"-"`
	AverageSuccess time.Duration `json:"-"`
	Max            time.Duration `json:"-"`

	// EWMA is the moving average of success, 0 to 1: each call weighs 30 %.
	EWMA float64 `json:"ewma"`
}

// TotalCalls returns Successes + Failures.
func (c Counts) TotalCalls() uint64 { return saturatingSum(c.Successes, c.Failures) }

// SuccessRate returns Successes / TotalCalls, and 1 with no calls.
func (c Counts) SuccessRate() float64 {
	total := c.TotalCalls()
	if total == 0 {
		return 1
	}
	return float64(c.Successes) / float64(total)
}

// Score returns the health score, 0 to 1: 0.3 x SuccessRate + 0.7 x EWMA.
func (c Counts) Score() float64 { return 0.3*c.SuccessRate() + 0.7*c.EWMA }

// read returns the figures. Calls that end meanwhile may be in or out; the
// totals of what is returned always add up.
func (s *toolStats) read() Counts {
	sumOK, sumBad := s.sumOK.Load(), s.sumBad.Load()
	c := Counts{
		Successes: saturatingSum(s.permitOK.Load(), s.nameOK.Load()),
		Throttled: s.throttled.Load(),
	}
	if f := s.failures.Load(); f != nil {
		c.ByKind, c.Failures = tally[Kind](f.kindCounts[:])
	}
	if r := s.rejections.Load(); r != nil {
		c.RejectedByKind, c.Rejected = tally[Kind](r.kindCounts[:])
	}
	if n := s.neutrals.Load(); n != nil {
		c.NeutralByKind, c.Neutral = tally[Kind](n[:])
	}
	if r := s.refusals.Load(); r != nil {
		c.RefusedByReason, c.Refused = tally[StopReason](r.byReason[:])
	}
	c.Max = time.Duration(s.longest.Load())
	c.AverageSuccess = mean(sumOK, c.Successes)
	c.Average = mean(saturatingAdd(wrapped(sumOK), wrapped(sumBad)), c.TotalCalls())
	c.EWMA = float64(s.ewma()) / ewmaOne
	return c
}

// mean returns sum / n in nanoseconds, and 0 for n = 0.
func mean(sum int64, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	return time.Duration(uint64(wrapped(sum)) / n)
}

// wrapped returns the sum that addSaturating keeps in an integer.
func wrapped(sum int64) int64 {
	if sum < 0 {
		return math.MaxInt64
	}
	return sum
}

func saturatingSum(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// saturatingAdd adds two durations or times that are not negative.
func saturatingAdd(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// outcome counts one call that ended at now.
func (s *toolStats) outcome(okTotal *atomic.Uint64, v Verdict, took, now int64) {
	switch v.Outcome {
	case OutcomeSuccess:
		s.success(okTotal, took)
	case OutcomeFailure:
		s.failure(v.Kind, took, now)
	case OutcomeRejected:
		s.rejection(v.Kind, now)
	case OutcomeThrottled:
		s.throttled.Add(1)
	default:
		s.neutral(v.Kind, now)
	}
}

// GuardCounts are the figures of a tool's guarded calls. The share of calls that
// went wrong is Failed/Calls, the retries for each call are Retries/Calls. Old
// credentials do not show in Failed: watch Rejected. In JSON, durations are numbers
// of seconds.
type GuardCounts struct {
	Calls           uint64        `json:"calls"`            // calls that asked for this tool, running ones included
	Failed          uint64        `json:"failed"`           // calls that no tool answered, including those answered by a Partial handler
	Rejected        uint64        `json:"rejected"`         // calls that ended because a tool rejected the request; not in Failed
	Canceled        uint64        `json:"canceled"`         // calls that ended because the caller gave up, or left open what Begin opened; not in Failed
	Attempts        uint64        `json:"attempts"`         // runs of this tool, whichever tool the call asked for
	Retries         uint64        `json:"retries"`          // attempts that were not the first of their call
	Refusals        uint64        `json:"refusals"`         // attempts that the breaker refused
	Fallbacks       uint64        `json:"fallbacks"`        // calls of this tool that a substitute served
	BudgetExhausted uint64        `json:"budget_exhausted"` // retries that the budget forbade
	Abandoned       int64         `json:"abandoned"`        // detached attempts that are still running
	InFlight        int           `json:"in_flight"`        // calls that are running, waiting ones included
	Oldest          time.Duration `json:"oldest_seconds"`   // age of the oldest call in InFlight
}

// guardStats are the counters of one tool's guarded calls.
type guardStats struct {
	// Each is written by the call that it counts. Attempts are not counted: they are
	// admitted calls plus retries plus runs as a substitute. What every call touches
	// comes first and fills one cache line.
	running      flight.Table
	calls        atomic.Uint64
	tokens       retry.Bucket  // retries that are left
	neverRan     atomic.Uint64 // calls whose tool never ran
	asSubstitute atomic.Uint64 // runs as a substitute
	retries      atomic.Uint64
	failed       atomic.Uint64
	rejected     atomic.Uint64
	canceled     atomic.Uint64
	refusals     atomic.Uint64
	fallbacks    atomic.Uint64
	exhausted    atomic.Uint64
	abandoned    atomic.Int64
}

// begin counts a call and returns its place among the running ones.
func (g *guardStats) begin(now int64) *flight.Slot {
	g.calls.Add(1)
	return g.running.Start(now)
}

// inUse reports whether a guarded call or a detached attempt is running.
func (g *guardStats) inUse() bool {
	running, _ := g.running.Read()
	return running > 0 || g.abandoned.Load() > 0
}

func (g *guardStats) read(now int64) GuardCounts {
	neverRan := g.neverRan.Load()
	c := GuardCounts{
		Calls: g.calls.Load(), Failed: g.failed.Load(),
		Rejected: g.rejected.Load(), Canceled: g.canceled.Load(), Retries: g.retries.Load(),
		Refusals: g.refusals.Load(), Fallbacks: g.fallbacks.Load(),
		BudgetExhausted: g.exhausted.Load(), Abandoned: g.abandoned.Load(),
	}
	c.Attempts = c.Calls - min(neverRan, c.Calls) + c.Retries + g.asSubstitute.Load()
	n, oldest := g.running.Read()
	c.InFlight = n
	if n > 0 {
		c.Oldest = time.Duration(max(now-oldest, 0))
	}
	return c
}
