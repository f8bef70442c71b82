package toolhealth

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth/internal/flight"
	"github.com/toolhealth/toolhealth/internal/histogram"
	"github.com/toolhealth/toolhealth/internal/retry"
)

// ewmaOne is an EWMA of 1.0: averages are integers scaled by this.
const ewmaOne = 1_000_000

// toolStats are the all-time counters of one tool: lock-free, written by every call
// that ends, read by dashboards. The zero value is ready for use.
//
// A success costs two atomic additions, and one more through a permit. It allocates
// nothing but the histogram, at the first. toolStats must not be copied; read returns a
// copy of the figures.
type toolStats struct {
	// Every field is written by the call that ends and read by read.
	//
	// Order: a call first raises longest, then counts itself, then adds to a
	// sum; read goes the other way. So a duration that a reader sees in a sum
	// belongs to a call that it sees counted, and no average or quantile exceeds the
	// maximum.

	// ok counts the successes by how long they took: their number is the sum of its
	// lanes, so the two cannot disagree. It is nil until the first success and set once.
	// What calls write of it lies in other cache lines.
	ok      atomic.Pointer[histogram.Dense]
	sumOK   atomic.Int64 // ns of all successes; see addSaturating
	longest atomic.Int64 // ns of the longest success or failure
	missing atomic.Int64 // ewmaOne - EWMA, so that the zero value is full health
	// admitted is how many permits were given out, settled how many of them were settled,
	// in whatever way, or released: their difference is how many are out, and needs no
	// look at ok. A call that ended counts its outcome first and then settled, so a
	// reader that sees a permit settled sees its outcome.
	admitted atomic.Uint64
	settled  atomic.Uint64
	// rejectedInRow is [ToolHealth.RejectedInRow]. A success reads it, and writes it
	// only to end a row.
	rejectedInRow atomic.Uint64

	throttled atomic.Uint64

	// Each is nil until the first call of it, and set once. The sums are the totals, so
	// that the two cannot disagree.
	failures   atomic.Pointer[failureCounts]
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

// failureCounts are the failures.
type failureCounts struct {
	last atomic.Int64     // as in datedCounts
	took histogram.Sparse // by kind and by how long they took: their number is the sum
	sum  atomic.Int64     // ns of all; see addSaturating
}

// byKind returns the failures by kind, nil without any, and their sum.
func (c *failureCounts) byKind() (by map[Kind]uint64, total uint64) {
	for k, n := range c.took.Counts {
		if by == nil {
			by = make(map[Kind]uint64)
		}
		by[Kind(k)] = saturatingSum(by[Kind(k)], n)
		total = saturatingSum(total, n)
	}
	return by, total
}

// total returns the ns of all failures; zero if c is nil.
func (c *failureCounts) total() int64 {
	if c == nil {
		return 0
	}
	return c.sum.Load()
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

// success counts a success. Negative durations count as 0.
func (s *toolStats) success(took int64) {
	took = max(took, 0)
	if took > s.longest.Load() {
		raise(&s.longest, took)
	}
	if s.missing.Load() != 0 {
		s.sample(ewmaOne)
	}
	s.endRejections()
	ok := s.ok.Load()
	if ok == nil {
		ok = madeOnce(&s.ok)
	}
	ok.Add(took)
	addSaturating(&s.sumOK, took)
}

func (s *toolStats) failure(kind Kind, took, now int64) {
	took = max(took, 0)
	raise(&s.longest, took)
	s.sample(0)
	s.endRejections()
	c := madeOnce(&s.failures)
	raise(&c.last, now)
	c.took.Add(uint8(kindOfError(kind)), took)
	addSaturating(&c.sum, took)
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

// ended returns the number of successes and failures. It looks at every lane of the
// histogram, seven cache lines, so it is called under a FailureRate only.
func (s *toolStats) ended() (n uint64) {
	if ok := s.ok.Load(); ok != nil {
		n = ok.Total()
	}
	if c := s.failures.Load(); c != nil {
		for _, failed := range c.took.Counts {
			n = saturatingSum(n, failed)
		}
	}
	return n
}

// admitBelow counts a permit as given out if fewer than limit are out. The number of
// those that are settled only grows, so an old one never lets too many out.
func (s *toolStats) admitBelow(limit uint64) bool {
	for {
		done := s.settled.Load()
		admitted := s.admitted.Load()
		switch {
		case admitted-min(done, admitted) < limit: // fewer than none are out if a copied permit was settled twice
			if s.admitted.CompareAndSwap(admitted, admitted+1) {
				return true
			}
		case done == s.settled.Load():
			return false
		}
	}
}

// inUse reports whether a permit is out. The settled ones are read first: a
// permit that is given out in between can only make the answer true.
func (s *toolStats) inUse() bool { return s.inFlight() > 0 }

// inFlight returns the number of permits that are out.
func (s *toolStats) inFlight() uint64 {
	done := s.settled.Load()
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
// which has the durations as "average_seconds", "average_success_seconds",
// "max_seconds", "p50_seconds", "p90_seconds" and "p99_seconds".
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

	// P50, P90 and P99 are the quantiles of how long successes took: half, nine in ten and
	// 99 in 100 took no longer. Each lies in the bucket of the exact one (see [Latency]),
	// which is 19 % wide, and is at most Max. They are of all time and zero without a
	// success. Those of the last minutes are in the difference of two readings of
	// [Registry.Latency].
	P50 time.Duration `json:"-"`
	P90 time.Duration `json:"-"`
	P99 time.Duration `json:"-"`

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
func (s *toolStats) read() (c Counts) {
	s.readTo(&c)
	return c
}

// readTo is read into a c that is zero.
func (s *toolStats) readTo(c *Counts) {
	sumOK, sumBad := s.sumOK.Load(), s.failures.Load().total()
	c.Throttled = s.throttled.Load()
	var lanes histogram.Reading
	if ok := s.ok.Load(); ok != nil {
		c.Successes = ok.Read(&lanes)
	}
	if f := s.failures.Load(); f != nil {
		c.ByKind, c.Failures = f.byKind()
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
	if n := c.Successes; n > 0 {
		offset, counts := lanes.Trim()
		at := func(q float64) time.Duration {
			return min(inNanoseconds(histogram.Quantile(q, n, lanes[0], offset, counts)), c.Max)
		}
		c.P50, c.P90, c.P99 = at(0.5), at(0.9), at(0.99)
	}
	c.AverageSuccess = mean(sumOK, c.Successes)
	c.Average = mean(saturatingAdd(wrapped(sumOK), wrapped(sumBad)), c.TotalCalls())
	c.EWMA = float64(s.ewma()) / ewmaOne
}

// Latency is how long the calls of one tool took, of all time. Successes and failures
// have a histogram each: a time-out shows in Failures, and not in Counts.P99.
//
// The zero Latency is that of a tool that has not been called. It is a copy: what calls
// do later does not change it.
type Latency struct {
	Successes Histogram
	Failures  Histogram
}

// Histogram is how often durations were counted in exponential buckets, each 2^(1/4)
// times as long as the one before it. It is exported without loss as a Prometheus native
// histogram of schema Scale and as an OpenTelemetry exponential histogram of scale Scale.
// The unit of what is counted is the second.
//
// Counts[i] is the number of durations above 2^((Offset+i)/4) and up to
// 2^((Offset+i+1)/4) seconds. Offset is that of OpenTelemetry; in Prometheus, Counts[i]
// is the bucket Offset+i+1. Empty buckets at both ends are left out. What took longer
// than 1,024 seconds counts in the bucket that ends there; Sum has it in full.
//
// The zero Histogram has counted nothing.
type Histogram struct {
	Scale         int           // 2 if anything was counted
	ZeroThreshold float64       // seconds: what was no longer counts in ZeroCount; 2^-17 if anything was counted
	ZeroCount     uint64        // durations that were too short for the buckets
	Offset        int           // of the first bucket; 0 without any
	Counts        []uint64      // from the first to the last bucket that is not empty; nil without any
	Count         uint64        // ZeroCount + the sum of Counts
	Sum           time.Duration // of all durations; it stays at its maximum instead of overflowing
}

// Quantile returns the q-quantile, 0 <= q <= 1, and 0 of an empty histogram. It lies in
// the bucket of the exact one; within it, durations are taken to lie evenly on a
// logarithmic scale.
func (h Histogram) Quantile(q float64) time.Duration {
	return inNanoseconds(histogram.Quantile(q, h.Count, h.ZeroCount, h.Offset, h.Counts))
}

// Sub returns what was counted between two readings of one tool, of which earlier is the
// first. No count is below zero, also if the tool was removed and came back in between.
func (h Histogram) Sub(earlier Histogram) Histogram {
	var lanes histogram.Reading
	h.addTo(&lanes)
	var before histogram.Reading
	earlier.addTo(&before)
	n := uint64(0)
	for i := range lanes {
		lanes[i] -= min(lanes[i], before[i])
		n += lanes[i]
	}
	return histogramOf(&lanes, n, int64(max(h.Sum-earlier.Sum, 0)))
}

// addTo adds the counts to lanes, but for buckets that no registry has.
func (h Histogram) addTo(lanes *histogram.Reading) {
	lanes[0] += h.ZeroCount
	for i, n := range h.Counts {
		if lane := h.Offset + i - histogram.Offset + 1; lane > 0 && lane < len(lanes) {
			lanes[lane] += n
		}
	}
}

// histogramOf returns a Histogram of n durations.
func histogramOf(lanes *histogram.Reading, n uint64, sum int64) Histogram {
	if n == 0 {
		return Histogram{}
	}
	h := Histogram{
		Scale: histogram.Scale, ZeroThreshold: histogram.Bound(0), ZeroCount: lanes[0], Count: n, Sum: time.Duration(sum),
	}
	offset, counts := lanes.Trim()
	h.Offset, h.Counts = offset, slices.Clone(counts)
	return h
}

// inNanoseconds returns the duration of s seconds, the maximum if it is longer.
func inNanoseconds(s float64) time.Duration {
	if ns := math.Round(s * 1e9); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

// latency returns the histograms. The sums are read first: see toolStats.
func (s *toolStats) latency() (l Latency) {
	bad := s.failures.Load()
	sumOK, sumBad := wrapped(s.sumOK.Load()), wrapped(bad.total())
	var lanes histogram.Reading
	if ok := s.ok.Load(); ok != nil {
		l.Successes = histogramOf(&lanes, ok.Read(&lanes), sumOK)
	}
	if bad != nil {
		lanes = histogram.Reading{}
		l.Failures = histogramOf(&lanes, bad.took.Read(&lanes), sumBad)
	}
	return l
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
func (s *toolStats) outcome(v Verdict, took, now int64) {
	switch v.Outcome {
	case OutcomeSuccess:
		s.success(took)
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
