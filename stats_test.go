package toolhealth

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStats_EWMAInIntegers(t *testing.T) {
	s := new(toolStats)
	assert.Equal(t, int64(1_000_000), s.ewma())
	s.success(0)
	assert.Equal(t, int64(1_000_000), s.ewma())
	s.failure(KindTimeout, 0, 0)
	assert.Equal(t, int64(700_000), s.ewma())
	s.failure(KindTimeout, 0, 0)
	assert.Equal(t, int64(490_000), s.ewma())
	s.success(0)
	assert.Equal(t, int64(643_000), s.ewma())
	assert.Equal(t, 0.643, s.read().EWMA)
	for range 200 {
		s.failure(KindTimeout, 0, 0)
	}
	assert.Equal(t, int64(0), s.ewma(), "repeated failures reach zero")
	for range 200 {
		s.success(0)
	}
	assert.Equal(t, int64(999_997), s.ewma(), "integer division stops below one")
}

func TestStats_Score(t *testing.T) {
	s := new(toolStats)
	c := s.read()
	assert.Equal(t, Counts{EWMA: 1}, c)
	assert.Equal(t, 1.0, c.SuccessRate(), "without calls the rate is 1")
	assert.Equal(t, 1.0, c.Score())
	for range 3 {
		s.success(0)
	}
	s.failure(KindTimeout, 0, 0)
	c = s.read()
	assert.Equal(t, 0.75, c.SuccessRate())
	assert.InDelta(t, 0.3*0.75+0.7*0.7, c.Score(), 1e-12)
	assert.Equal(t, uint64(4), c.TotalCalls())
}

func TestStats_Durations(t *testing.T) {
	s := new(toolStats)
	s.success(int64(10 * time.Millisecond))
	s.success(int64(20 * time.Millisecond))
	s.failure(KindTimeout, int64(90*time.Millisecond), 0)
	c := s.read()
	assert.Equal(t, 40*time.Millisecond, c.Average, "a timeout is tail latency")
	assert.Equal(t, 15*time.Millisecond, c.AverageSuccess)
	assert.Equal(t, 90*time.Millisecond, c.Max)
	s.success(int64(100 * time.Millisecond))
	assert.Equal(t, 100*time.Millisecond, s.read().Max)

	bad := new(toolStats)
	bad.failure(KindTimeout, int64(time.Second), 0)
	assert.Equal(t, time.Duration(0), bad.read().AverageSuccess)
	assert.Equal(t, time.Second, bad.read().Average)
}

func TestStats_QuantilesOfSuccesses(t *testing.T) {
	s := new(toolStats)
	assert.Equal(t, [3]time.Duration{}, quantiles(s.read()))
	s.failure(KindTimeout, int64(time.Hour), 0)
	assert.Equal(t, [3]time.Duration{}, quantiles(s.read()), "failures do not count")
	for i := range 100 {
		s.success(int64(i+1) * int64(time.Millisecond))
	}
	for i, exact := range []float64{50, 90, 99} {
		got := quantiles(s.read())[i]
		assert.InEpsilon(t, exact, got.Seconds()*1000, 0.19)
	}
	for i := range 100 { // all of one bucket, whose quantiles lie on both sides of its middle
		one := new(toolStats)
		one.success(int64(time.Millisecond) + int64(i))
		assert.Equal(t, int64(time.Millisecond)+int64(i), one.longest.Load())
		got := quantiles(one.read())
		assert.Equal(t, [3]time.Duration{got[0], got[0], got[0]}, got)
		assert.LessOrEqual(t, got[0], time.Millisecond+time.Duration(i), "at most Max")
		assert.InEpsilon(t, 1e6, int64(got[0]), 0.19)
	}
	zero := new(toolStats)
	zero.success(0)
	assert.Equal(t, [3]time.Duration{}, quantiles(zero.read()))
	long := new(toolStats)
	long.success(math.MaxInt64)
	assert.InEpsilon(t, 1024, quantiles(long.read())[2].Seconds(), 0.19, "the last bucket has all that is longer")
}

func quantiles(c Counts) [3]time.Duration { return [3]time.Duration{c.P50, c.P90, c.P99} }

func TestHistogram_LayoutIsThatOfExporters(t *testing.T) {
	s := new(toolStats)
	assert.Equal(t, Latency{}, s.latency())
	for _, d := range []time.Duration{0, 7629, 250 * time.Millisecond, 250*time.Millisecond + 1, time.Second, time.Second} {
		s.success(int64(d))
	}
	h := s.latency().Successes
	assert.Equal(t, Histogram{
		Scale: 2, ZeroThreshold: math.Ldexp(1, -17), ZeroCount: 2, Offset: -9, // 0.25 s ends the bucket of 2^(-9/4) to 2^(-8/4) s
		Counts: []uint64{1, 1, 0, 0, 0, 0, 0, 0, 2}, Count: 6, Sum: 2500*time.Millisecond + 7629 + 1,
	}, h)
	assert.Equal(t, Histogram{}, s.latency().Failures)
	assert.InEpsilon(t, 0.25, h.Quantile(0.5).Seconds(), 0.19)
	assert.InEpsilon(t, 1, h.Quantile(1).Seconds(), 0.19)
	assert.Less(t, h.Quantile(0), 7630*time.Nanosecond)
	assert.Zero(t, Histogram{}.Quantile(0.5))
	assert.Equal(t, time.Duration(math.MaxInt64), Histogram{Offset: 500, Counts: []uint64{1}, Count: 1}.Quantile(0.5))

	short := new(toolStats)
	short.failure(KindTimeout, 1, 0)
	assert.Equal(t, Histogram{Scale: 2, ZeroThreshold: math.Ldexp(1, -17), ZeroCount: 1, Count: 1, Sum: 1}, short.latency().Failures)
	short.failure(KindTimeout, math.MaxInt64, 0)
	l := short.latency().Failures
	assert.Equal(t, [2]any{39, []uint64{1}}, [2]any{l.Offset, l.Counts}, "the last bucket")
	assert.Equal(t, time.Duration(math.MaxInt64), l.Sum)
	h.Counts[0] = 7
	assert.Equal(t, uint64(1), s.latency().Successes.Counts[0], "a copy")
}

func TestHistogram_SubIsWhatCameBetween(t *testing.T) {
	s, between := new(toolStats), new(toolStats)
	for _, d := range []int64{0, 1e6, 1e9} {
		s.success(d)
	}
	earlier := s.latency().Successes
	assert.Equal(t, earlier, earlier.Sub(Histogram{}))
	assert.Equal(t, Histogram{}, earlier.Sub(earlier))
	for _, d := range []int64{5, 1e6, 3e6, 1e12, math.MaxInt64 / 2} {
		s.success(d)
		between.success(d)
	}
	assert.Equal(t, between.latency().Successes, s.latency().Successes.Sub(earlier))
	assert.Equal(t, Histogram{}, earlier.Sub(s.latency().Successes), "never below zero")
	odd := Histogram{Offset: -1000, Counts: make([]uint64, 2000), Count: 1}
	odd.Counts[0], odd.Counts[1999] = 1, 1
	assert.Equal(t, Histogram{}, odd.Sub(Histogram{}), "buckets that no registry has are left out")
}

func TestStats_NegativeDurationIsZero(t *testing.T) {
	s := new(toolStats)
	s.success(int64(-time.Hour))
	s.failure(KindTimeout, math.MinInt64, 0)
	assert.Equal(t, time.Duration(0), s.read().Average)
	assert.Equal(t, time.Duration(0), s.read().Max)
	assert.Equal(t, uint64(2), s.read().TotalCalls())
	s.success(3)
	assert.Equal(t, time.Duration(1), s.read().Average)
}

func TestStats_SumOfDurationsSaturates(t *testing.T) {
	s := new(toolStats)
	s.success(math.MaxInt64)
	assert.Equal(t, time.Duration(math.MaxInt64), s.read().Average)
	s.success(1)
	c := s.read()
	assert.Equal(t, int64(math.MaxInt64), s.sumOK.Load())
	assert.Equal(t, time.Duration(math.MaxInt64/2), c.Average)
	assert.Equal(t, time.Duration(math.MaxInt64/2), c.AverageSuccess)
	s.failure(KindTimeout, math.MaxInt64, 0)
	assert.Equal(t, time.Duration(math.MaxInt64/3), s.read().Average, "the sum of both sums saturates too")
	s.failure(KindTimeout, math.MaxInt64, 0)
	assert.Equal(t, int64(math.MaxInt64), s.failures.Load().total())

	// A reader comes between the overflow of the sum and its correction.
	var torn toolStats
	torn.success(math.MaxInt64)
	torn.success(math.MaxInt64)
	torn.sumOK.Store(math.MinInt64)
	assert.Equal(t, time.Duration(math.MaxInt64/2), torn.read().AverageSuccess)
	assert.Equal(t, time.Duration(math.MaxInt64/2), torn.read().Average)
}

func TestStats_SumsOfCountersSaturate(t *testing.T) {
	var s toolStats
	s.failure(KindTimeout, 0, 0)
	s.failures.Load().took.AddN(uint8(KindTimeout), 0, math.MaxUint64-1) // and the one above
	s.success(0)
	assert.Equal(t, uint64(math.MaxUint64), s.read().TotalCalls())
	assert.Equal(t, uint64(math.MaxUint64), s.ended())
	assert.Equal(t, uint64(math.MaxUint64), Counts{Successes: math.MaxUint64, Failures: 1}.TotalCalls())
	assert.Equal(t, uint64(math.MaxUint64), saturatingSum(math.MaxUint64-1, 1))
	assert.Equal(t, uint64(math.MaxUint64), saturatingSum(2, math.MaxUint64-1))
	assert.Equal(t, int64(math.MaxInt64), saturatingAdd(math.MaxInt64-1, 1))
	assert.Equal(t, int64(math.MaxInt64), saturatingAdd(math.MaxInt64-1, 2))
	assert.Equal(t, int64(math.MaxInt64-1), saturatingAdd(math.MaxInt64-2, 1))
}

func TestStats_FailuresByKind(t *testing.T) {
	s := new(toolStats)
	assert.Nil(t, s.read().ByKind)
	for k := range numKinds {
		for range int(k) + 1 {
			s.failure(k, 0, 0)
		}
	}
	s.failure(numKinds, 0, 0)
	s.failure(255, 0, 0)
	c := s.read()
	want := map[Kind]uint64{}
	for k := KindTimeout; k < KindUnknown; k++ {
		want[k] = uint64(k) + 1
	}
	want[KindUnknown] = uint64(KindUnknown) + 1 + 1 + 2 // unknown itself, KindNone, and the two invalid kinds
	assert.Equal(t, want, c.ByKind)
	sum := uint64(0)
	for _, n := range want {
		sum += n
	}
	assert.Equal(t, sum, c.Failures)
	assert.Equal(t, sum, s.ended())
	s.success(0)
	assert.Equal(t, sum+1, s.ended())
}

func TestStats_OtherOutcomesTouchNothingElse(t *testing.T) {
	s := new(toolStats)
	s.rejection(KindNotFound, 0)
	s.throttled.Add(1)
	s.throttled.Add(1)
	for range 3 {
		s.neutral(KindDenied, 0)
	}
	for range 4 {
		s.refused(StopIsolated)
	}
	assert.Equal(t, Counts{
		Rejected: 1, RejectedByKind: map[Kind]uint64{KindNotFound: 1}, Throttled: 2,
		Neutral: 3, NeutralByKind: map[Kind]uint64{KindDenied: 3},
		Refused: 4, RefusedByReason: map[StopReason]uint64{StopIsolated: 4}, EWMA: 1,
	}, s.read())
	assert.Zero(t, s.ended())
}

func TestStats_RejectionsNeutralsAndRefusalsAddUp(t *testing.T) {
	s := new(toolStats)
	empty := s.read()
	assert.Nil(t, empty.RejectedByKind)
	assert.Nil(t, empty.NeutralByKind)
	assert.Nil(t, empty.RefusedByReason)
	for k := range numKinds + 2 {
		for range int(k) + 1 {
			s.rejection(k, 0)
			s.neutral(k, 0)
			s.neutral(k, 0)
		}
	}
	for r := range RetryAllowed + 2 {
		for range int(r) + 1 {
			s.refused(r)
		}
	}
	c := s.read()
	rejected, neutral := map[Kind]uint64{}, map[Kind]uint64{}
	for k := KindTimeout; k < KindUnknown; k++ {
		rejected[k], neutral[k] = uint64(k)+1, 2*uint64(k)+2
	}
	odd := uint64(KindUnknown) + 1 + 1 + uint64(numKinds) + 1 + uint64(numKinds) + 2 // unknown, none and two that are no kinds
	rejected[KindUnknown], neutral[KindUnknown] = odd, 2*odd
	assert.Equal(t, rejected, c.RejectedByKind)
	assert.Equal(t, neutral, c.NeutralByKind)
	refused := map[StopReason]uint64{StopNone: 1}
	for r := StopCircuitOpen; r < RetryAllowed+2; r++ {
		if r > StopUnknownTool {
			refused[StopNone] += uint64(r) + 1
		} else {
			refused[r] = uint64(r) + 1
		}
	}
	assert.Equal(t, refused, c.RefusedByReason)
	assert.Equal(t, [3]uint64{sumOf(rejected), sumOf(neutral), sumOf(refused)}, [3]uint64{c.Rejected, c.Neutral, c.Refused})
	assert.Zero(t, c.Failures)
}

func sumOf[K comparable](by map[K]uint64) (sum uint64) {
	for _, n := range by {
		sum += n
	}
	return sum
}

func TestStats_RejectedInRow(t *testing.T) {
	var s toolStats
	row := func(v Verdict) uint64 { s.outcome(v, 0, 0); return s.rejectedInRow.Load() }
	begin := func() {
		for s.rejectedInRow.Load() < 5 {
			row(Verdict{Outcome: OutcomeRejected, Kind: KindUnauthorized})
		}
	}
	for outcome := range OutcomeNeutral + 2 {
		for k := range numKinds + 1 {
			begin()
			want := uint64(0)
			switch {
			case outcome == OutcomeRejected && (k == KindUnauthorized || k == KindGone), outcome >= OutcomeNeutral && k == KindContract:
				want = 6
			case outcome == OutcomeThrottled, outcome >= OutcomeNeutral:
				want = 5
			}
			assert.Equal(t, want, row(Verdict{Outcome: outcome, Kind: k}), "%v %v", outcome, k)
			s.success(0)
			assert.Zero(t, s.rejectedInRow.Load())
		}
	}
	begin()
	s.failure(KindGone, 0, 0)
	assert.Zero(t, s.rejectedInRow.Load())
	s.rejection(KindGone, 0)
	s.neutral(KindContract, 0)
	assert.EqualValues(t, 2, s.rejectedInRow.Load())
	s.rejection(KindInvalidRequest, 0)
	assert.Zero(t, s.rejectedInRow.Load())
}

func TestStats_RefusalsInRowEndWithAdmission(t *testing.T) {
	var s toolStats
	s.endRefusals()
	assert.Equal(t, uint64(0), s.refusedInRow())
	s.refused(StopCircuitOpen)
	s.refused(StopProbeInFlight)
	assert.Equal(t, uint64(2), s.refusedInRow())
	s.endRefusals()
	assert.Equal(t, uint64(0), s.refusedInRow())
	s.refused(StopCircuitOpen)
	assert.Equal(t, uint64(1), s.refusedInRow())
	assert.Equal(t, uint64(3), s.read().Refused)
}

func TestStats_InFlightIsAdmittedMinusSettled(t *testing.T) {
	var s toolStats
	assert.False(t, s.inUse())
	s.admitted.Add(3)
	assert.Equal(t, uint64(3), s.inFlight())
	s.settled.Add(2)
	assert.Equal(t, uint64(1), s.inFlight())
	assert.True(t, s.inUse())
	s.success(0) // a report by name settles no permit
	assert.True(t, s.inUse())
	s.settled.Add(1)
	assert.False(t, s.inUse())
}

func TestStats_OutcomesGoToTheirCounters(t *testing.T) {
	var s toolStats
	for outcome, times := range map[Outcome]int{
		OutcomeSuccess: 1, OutcomeFailure: 2, OutcomeRejected: 3, OutcomeThrottled: 4, OutcomeNeutral: 5,
	} {
		for range times {
			s.outcome(Verdict{Outcome: outcome, Kind: KindServerError}, int64(time.Second), 0)
		}
	}
	s.outcome(Verdict{Outcome: 99}, 0, 0) // an invalid outcome is neutral
	c := s.read()
	assert.Equal(t, uint64(1), c.Successes)
	assert.Equal(t, map[Kind]uint64{KindServerError: 2}, c.ByKind)
	assert.Equal(t, [3]uint64{3, 4, 6}, [3]uint64{c.Rejected, c.Throttled, c.Neutral})
	assert.Equal(t, time.Second, c.Average)
}

// Readers run beside writers: the figures of one Read must agree with each other.
func TestStats_ReadIsConsistentDuringWrites(t *testing.T) {
	s := new(toolStats)
	const writers, calls = 4, 3000
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range calls {
				d := time.Duration(i*writers + w + 1)
				if i%3 == 0 {
					s.failure(Kind(1+i%5), int64(d), 0)
				} else {
					s.success(int64(d))
				}
			}
		})
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for range 2 {
		reading.Go(func() {
			last := Counts{}
			for {
				c := s.read()
				kinds := uint64(0)
				for _, n := range c.ByKind {
					kinds += n
				}
				ok := assert.Equal(t, c.Failures, kinds) &&
					assert.LessOrEqual(t, c.Average, c.Max) &&
					assert.LessOrEqual(t, c.AverageSuccess, c.Max) &&
					assert.Equal(t, c.Successes+c.Failures, c.TotalCalls()) &&
					assert.GreaterOrEqual(t, c.TotalCalls(), last.TotalCalls()) &&
					assert.GreaterOrEqual(t, c.Successes, last.Successes) &&
					assert.GreaterOrEqual(t, c.Max, last.Max) &&
					assert.True(t, c.P50 <= c.P90 && c.P90 <= c.P99 && c.P99 <= c.Max) &&
					assert.True(t, c.EWMA >= 0 && c.EWMA <= 1)
				if !ok {
					return
				}
				last = c
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	c := s.read()
	require.Equal(t, uint64(writers*calls), c.TotalCalls())
	assert.Equal(t, uint64(writers*calls/3), c.Failures)
	assert.Equal(t, time.Duration(writers*calls), c.Max)
	assert.Equal(t, time.Duration((writers*calls+1)/2), c.Average)
}

// No reader who sums the histograms sees a total go back, by name or through permits, and
// what is out is never less than what is.
func TestStats_TotalsNeverGoBackBesideWriters(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	const writers, calls = 4, 2000
	r.AllowRequest("search")
	s := &r.table.Get("search").Value.stats
	var writing, reading sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range calls {
				permit, err := g.Allow(t.Context(), "search")
				if err != nil {
					t.Error(err)
					return
				}
				r.RecordSuccess("search", time.Duration(i)<<20)
				if s.inFlight() == 0 {
					t.Error("a permit is out")
				}
				permit.Done(t.Context(), nil)
			}
		})
	}
	stop := make(chan struct{})
	for range 2 {
		reading.Go(func() {
			var last Latency
			lastEnded := uint64(0)
			for {
				settled := s.settled.Load()
				ended := s.ended()
				l, _ := r.Latency("search")
				ok := assert.GreaterOrEqual(t, ended, settled, "an outcome counts before its permit is settled") &&
					assert.GreaterOrEqual(t, ended, lastEnded) &&
					assert.GreaterOrEqual(t, l.Successes.Count, ended) &&
					assert.GreaterOrEqual(t, l.Successes.Sum, last.Successes.Sum) &&
					assert.Equal(t, l.Successes.Count-last.Successes.Count, l.Successes.Sub(last.Successes).Count, "no bucket goes back")
				if !ok {
					return
				}
				last, lastEnded = l, ended
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	l, _ := r.Latency("search")
	assert.Equal(t, [3]uint64{2 * writers * calls, 2 * writers * calls, 0}, [3]uint64{l.Successes.Count, s.ended(), s.inFlight()})
}

func TestStats_FirstConcurrentSuccessesAreCounted(t *testing.T) {
	const calls = 3
	for range 5000 {
		var s toolStats
		atOnce(calls, func(i int) { s.success(int64(i)) })
		require.Equal(t, uint64(calls), s.ended())
	}
}

// Each call finds no counters by kind, an EWMA of one and a maximum of zero.
func TestStats_FirstConcurrentFailuresAreCounted(t *testing.T) {
	const calls = 3
	var one toolStats
	for i := range calls {
		one.failure(KindTimeout, int64(time.Duration(i+1)), 0)
	}
	want := one.read()
	for range 5000 {
		var s toolStats
		atOnce(calls, func(i int) { s.failure(KindTimeout, int64(time.Duration(i+1)), 0) })
		require.Equal(t, want, s.read())
	}
}

func TestStats_FirstConcurrentRejectionsAreCounted(t *testing.T) {
	const calls = 3
	for range 2000 {
		var s toolStats
		atOnce(calls, func(i int) {
			s.outcome(Verdict{Outcome: OutcomeRejected, Kind: KindGone}, 0, int64(i))
			s.neutral(KindContract, 0)
			s.refused(StopCircuitOpen)
		})
		c := s.read()
		require.Equal(t, [3]uint64{calls, calls, calls}, [3]uint64{c.Rejected, c.Neutral, c.Refused})
		require.EqualValues(t, 2*calls, s.rejectedInRow.Load())
		require.EqualValues(t, calls-1, s.rejections.Load().last.Load(), "the latest time")
	}
}

func TestStats_MaximumNeverFalls(t *testing.T) {
	var v atomic.Int64
	atOnce(3, func(i int) {
		for range 2_000_000 {
			x := v.Load() + 1 + int64(i)
			raise(&v, x)
			if got := v.Load(); got < x {
				t.Errorf("%d after %d", got, x)
				return
			}
		}
	})
}

// go vet reports a copied permit; settled twice, it must not make the others countless.
func TestStats_PermitsThatAreOutSaturate(t *testing.T) {
	r := NewRegistry()
	permit, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
	require.NoError(t, err)
	duplicate := Permit{node: permit.node, gate: permit.gate, start: permit.start}
	duplicate.Done(t.Context(), nil)
	permit.Done(t.Context(), nil)
	assert.Zero(t, healthOf(t, r, "search").InFlight)
	assert.False(t, r.table.Get("search").Value.stats.inUse())
	next, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
	require.NoError(t, err)
	next.Release()
	assert.Zero(t, healthOf(t, r, "search").InFlight)
}
