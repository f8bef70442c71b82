package toolhealth

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/histogram"
	"github.com/toolhealth/toolhealth/internal/machine"
)

// stressFor returns how long to try a race: long enough for each interleaving to come
// up many times.
func stressFor() time.Duration {
	if testing.Short() {
		return 20 * time.Millisecond
	}
	return 200 * time.Millisecond
}

// An admission counts its permit and then looks at the snapshot; an eviction
// marks the snapshot and then looks for permits. One of the two sees the other.
func TestRegistry_EvictionAndAdmissionNeverBothSucceed(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	r.AllowRequest("search")
	n := r.table.Get("search")
	e := &n.Value
	var over atomic.Bool
	var out [2]atomic.Int32
	var callers sync.WaitGroup
	for i := range out {
		callers.Go(func() {
			for !over.Load() {
				permit, err := g.Allow(t.Context(), "search")
				out[i].Add(1)
				if !assert.NoError(t, err) || !assert.Same(t, n, permit.node) {
					return
				}
				out[i].Add(-1)
				permit.Release()
			}
		})
	}
	evicted := 0
	for start := time.Now(); time.Since(start) < stressFor() || evicted == 0 && time.Since(start) < 10*time.Second; {
		r.mu.Lock()
		before := e.snap.Load()
		if e.evict(r.now()) {
			evicted++
			for range 20 { // no caller is admitted during the eviction
				assert.Zero(t, out[0].Load()+out[1].Load())
			}
			e.snap.Store(before)
		} else {
			assert.False(t, e.snap.Load().Evicted, "an eviction that was called off leaves no trace")
		}
		r.mu.Unlock()
	}
	over.Store(true)
	callers.Wait()
	assert.Positive(t, evicted)
	assert.Equal(t, uint64(0), healthOf(t, r, "search").InFlight)
	assert.False(t, r.waitEvicted(n), "the node never left the table")
}

func TestRegistry_EvictionIsCalledOffForEarlierPermit(t *testing.T) {
	r := NewRegistry()
	r.AllowRequest("search")
	e := &r.table.Get("search").Value
	before := e.snap.Load()
	e.stats.admitted.Add(1)
	assert.False(t, e.evict(0), "in use from the start")
	assert.Same(t, before, e.snap.Load())

	e.snap.Store(evictedUnder(before.Params)) // marked, then looked for permits
	assert.False(t, e.confirm(before, 0))
	assert.Same(t, before, e.snap.Load())
	e.stats.settled.Add(1)
	assert.True(t, e.confirm(before, 0))
	assert.True(t, e.evict(0))
	assert.True(t, e.snap.Load().Evicted)
}

// A caller that finds its tool just evicted asks again, and gives back every permit
// that it counted meanwhile.
func TestRegistry_CallerRetriesUntilEvictionHasEnded(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	r.AllowRequest("search")
	e := &r.table.Get("search").Value
	before := e.snap.Load()
	e.snap.Store(evictedUnder(before.Params))
	_, ok := e.tryAdmit(0, &request{}, true, false, false)
	assert.False(t, ok)
	var caller sync.WaitGroup
	caller.Go(func() {
		permit, err := g.Allow(t.Context(), "search")
		assert.NoError(t, err)
		assert.True(t, permit.Tracked())
	})
	for e.stats.settled.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	e.snap.Store(before)
	caller.Wait()
	assert.Equal(t, uint64(1), healthOf(t, r, "search").InFlight)
}

// The fast admission counts a permit and then finds that the tool has changed. It must
// not leave the permit behind.
func TestRegistry_FastAdmissionLeavesNoPermitBehind(t *testing.T) {
	r := NewRegistry()
	r.AllowRequest("search")
	e := &r.table.Get("search").Value
	well := e.snap.Load()
	sick, _ := machine.Step(well, &machine.Event{Op: machine.OpIsolate}, 0)
	var over atomic.Bool
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for !over.Load() {
			e.snap.Store(sick)
			e.snap.Store(well)
		}
	})
	in, out := 0, 0
	for start := time.Now(); time.Since(start) < stressFor() || in*out == 0 && time.Since(start) < 10*time.Second; {
		for range 1000 {
			if n, epoch, _ := r.admitFast("search"); n != nil {
				in++
				require.Equal(t, uint64(1), epoch)
				e.stats.settled.Add(1)
			} else {
				out++
				require.Zero(t, epoch)
			}
			require.Equal(t, uint64(0), e.stats.inFlight())
		}
	}
	over.Store(true)
	flipping.Wait()
	assert.Positive(t, in)
	assert.Positive(t, out)
}

// A tool that has never changed shares its snapshot with others, and a new config
// gives it another one. An event at the same moment must not be lost.
func TestRegistry_ConcurrentConfigAndFirstFailureBothCount(t *testing.T) {
	p := [2]*machine.Params{newParams(DefaultBreakerConfig()), newParams(BreakerConfig{FailureThreshold: 9, RecoveryDuration: 1, MaxOpenDuration: Off})}
	shared := [2]machine.Snapshot{*p[0].Initial, *p[1].Initial}
	rounds := 0
	for start := time.Now(); time.Since(start) < stressFor(); rounds++ {
		var e entry
		e.snap.Store(p[0].Initial)
		var group sync.WaitGroup
		ready := make(chan struct{})
		group.Go(func() {
			<-ready
			tell(&e, machine.Event{Op: machine.OpSettle, ByName: true, Outcome: machine.Failure}, 0)
		})
		group.Go(func() {
			<-ready
			e.configure(p[1], 0, &e.stats)
		})
		close(ready)
		group.Wait()
		s := e.snap.Load()
		require.Same(t, p[1], s.Params)
		require.EqualValues(t, 1, s.Streak)
	}
	assert.Equal(t, shared, [2]machine.Snapshot{*p[0].Initial, *p[1].Initial}, "the shared snapshots never change")
}

// Every change is one swap, so that no concurrent change is lost.
func TestRegistry_NoConcurrentFailureIsLost(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 0 })
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { failTimes(r, "search", 500) })
	}
	group.Wait()
	h := healthOf(t, r, "search")
	assert.Equal(t, 4000, h.ConsecutiveFailures)
	assert.Equal(t, uint64(4000), h.Failures)
}

// Of many failures at once, exactly one is the third.
func TestRegistry_ConcurrentFailuresOpenOnce(t *testing.T) {
	for range 200 {
		r := NewRegistry()
		events := recordEvents(r)
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() { failTimes(r, "search", 1) })
		}
		group.Wait()
		require.Equal(t, []string{"closed>open failure_threshold 2"}, events.of("search"))
		require.Equal(t, 3, healthOf(t, r, "search").ConsecutiveFailures)
	}
}

// These tests are for events between two instructions of another goroutine. Most of
// them try the race very often; the others set up its result by hand.

// atOnce runs do on n goroutines that start together.
func atOnce(n int, do func(i int)) {
	var ready atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ready.Add(1); ready.Load() < int64(n); {
				runtime.Gosched()
			}
			do(i)
		})
	}
	all.Wait()
}

func TestGate_SubstituteProbeGoesToOneOfTwoCallers(t *testing.T) {
	router, err := NewHealthRouter(map[string][]string{"a": {"b"}})
	require.NoError(t, err)
	for round := range 1000 {
		r := registryWith(t, func(c *Config) {
			c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 1, 1 // due as soon as it has opened
		})
		require.NoError(t, r.Register("a", ToolOptions{}))
		r.Isolate("a", "")
		r.RecordFailure("b", 0)
		g := &Gate{Registry: r, Router: router}
		var admitted atomic.Int64
		atOnce(2, func(int) {
			if _, err := g.Allow(context.Background(), "a"); err == nil {
				admitted.Add(1)
			}
		})
		require.Equal(t, int64(1), admitted.Load(), "round %d", round)
	}
}

func TestGate_PermitsRacingWithOperatorAreGivenBack(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.Register("a", ToolOptions{}))
	g := &Gate{Registry: r}
	var done atomic.Int64
	atOnce(3, func(i int) {
		if i == 0 {
			for done.Load() < 2 {
				r.Isolate("a", "")
				r.Reset("a", "")
			}
			return
		}
		defer done.Add(1)
		for range 20_000 {
			if permit, err := g.Allow(context.Background(), "a"); err == nil {
				permit.Release()
			}
		}
	})
	assert.Zero(t, healthOf(t, r, "a").InFlight)
}

func TestGuard_FirstConcurrentCallsAreAllCounted(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, nil)
	for round := range 2000 {
		tool := fmt.Sprint("t", round)
		require.NoError(t, r.Register(tool, ToolOptions{}))
		atOnce(2, func(int) {
			_, _ = Call(context.Background(), g, tool, plays().Run)
		})
		counts := healthOf(t, r, tool).Guard
		require.Equal(t, uint64(2), counts.Calls, "round %d", round)
		require.Zero(t, counts.InFlight)
	}
}

func TestRegistry_ResetWaitsForEvictionAndFindsNoTool(t *testing.T) {
	r := NewRegistry()
	r.AllowRequest("search")
	n := r.table.Get("search")
	r.mu.Lock()
	n.Value.snap.Store(evictedUnder(n.Value.snap.Load().Params))
	var done sync.WaitGroup
	done.Go(func() { assert.False(t, r.Reset("search", ""), "the tool has been evicted") })
	time.Sleep(5 * time.Millisecond)
	r.drop(n, 0)
	r.mu.Unlock()
	done.Wait()
	assert.Zero(t, r.Len())
}

func TestRegistry_LeavingUnknownToolIsNotAvailable(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	require.NoError(t, r.Register("search", ToolOptions{}))
	assert.True(t, r.Available("search"))
	n := r.table.Get("search")
	n.Value.snap.Store(evictedUnder(n.Value.snap.Load().Params))
	assert.False(t, r.Available("search"))
}

var failureByName = machine.Event{Op: machine.OpSettle, ByName: true, Outcome: machine.Failure, Kind: machine.Timeout}

func TestRegistry_EntryIsEvictedOrRecordsFailureNeverBoth(t *testing.T) {
	p := newParams(DefaultBreakerConfig())
	e := new(entry)
	e.snap.Store(p.Initial)
	success := machine.Event{Op: machine.OpSettle, ByName: true}
	var over atomic.Bool
	atOnce(2, func(i int) {
		if i == 1 {
			for !over.Load() {
				if e.evict(1) {
					e.snap.Store(p.Initial) // the next one, in the same place
				}
			}
			return
		}
		defer over.Store(true)
		for range 100_000 {
			if _, counted := tell(e, failureByName, 1); !counted {
				continue // it had been evicted
			}
			if _, there := tell(e, success, 1); !assert.True(t, there, "evicted after a failure that counted") {
				return
			}
		}
	})
}

func TestRegistry_FailureDuringReconfigurationIsNotLost(t *testing.T) {
	one, other := newParams(DefaultBreakerConfig()), newParams(BreakerConfig{FailureThreshold: Off})
	for round := range 2000 {
		e := new(entry)
		e.snap.Store(one.Initial)
		var over atomic.Bool
		atOnce(2, func(i int) {
			if i == 0 {
				tell(e, failureByName, 1)
				over.Store(true)
				return
			}
			for !over.Load() {
				e.configure(other, 1, &e.stats)
				e.configure(one, 1, &e.stats)
			}
			e.configure(other, 1, &e.stats)
		})
		s := e.snap.Load()
		require.EqualValues(t, 1, s.Streak, "round %d", round)
		require.Same(t, other, s.Params)
	}
}

func TestRegistry_RegisteredEntryIsNeverEvicted(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(r, "a", 1)
	r.AllowRequest("b") // looks at a, and finds no room
	require.NoError(t, r.Register("a", ToolOptions{}))
	r.RecordSuccess("a", 0)
	require.Equal(t, 0, healthOf(t, r, "a").ConsecutiveFailures)
	for _, name := range []string{"b", "c", "d"} {
		r.AllowRequest(name)
	}
	assert.Equal(t, []string{"a"}, namesOf(r))
}

// These cases need private fields: clocks that a test cannot turn back, and counters
// that it cannot fill.

func TestC83_OnlyMonotonicTimeDecides(t *testing.T) {
	r := NewRegistry()
	assert.Contains(t, r.base.String(), " m=", "the base must keep its monotonic reading, so that differences are monotonic")
	b, err := NewBreaker(DefaultBreakerConfig())
	require.NoError(t, err)
	assert.Contains(t, b.base.String(), " m=")
}

func TestC83_ClockThatGoesBackStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		time.Sleep(time.Minute)
		failTimes(r, "search", 3)
		require.Equal(t, 30*time.Second, healthOf(t, r, "search").RetryAfter)

		r.base = r.base.Add(time.Hour) // an hour back
		assert.False(t, r.Available("search"))
		assert.False(t, r.AllowRequest("search"))
		assert.Equal(t, 30*time.Second, healthOf(t, r, "search").RetryAfter, "no more than from the trip")
		_, err := (&Gate{Registry: r}).Allow(t.Context(), "search")
		require.IsType(t, &Refusal{}, err)
		assert.Equal(t, 30*time.Second, err.(*Refusal).RetryAfter)

		r.base = r.base.Add(-time.Hour)
		time.Sleep(29 * time.Second)
		assert.False(t, r.Available("search"))
		time.Sleep(time.Second)
		assert.True(t, r.AllowRequest("search"))
	})
}

func TestC84_SuspendedHostCostsNothing(t *testing.T) {
	// On some systems monotonic time stands still while the host sleeps: calls have
	// taken the monotonic time, and a cooldown goes on where it stood.
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.SlowCallDuration = 10 * time.Second })
		gate := &Gate{Registry: r}
		var permits [3]Permit
		for i := range permits {
			var err error
			permits[i], err = gate.Allow(t.Context(), "search")
			require.NoError(t, err)
		}
		failTimes(r, "other", 3)
		time.Sleep(time.Second)
		for i := range permits {
			permits[i].Done(t.Context(), nil)
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, time.Second, h.Max)
		assert.Zero(t, h.ConsecutiveFailures)
		assert.Equal(t, 29*time.Second, healthOf(t, r, "other").RetryAfter)
	})
}

func TestC86_CountersNeitherWrapNorDisturbBreaker(t *testing.T) {
	for _, total := range []uint64{1<<31 - 2, 1<<32 - 2, 1<<63 - 2} {
		r := NewRegistry()
		r.Record("search", Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}, time.Second)
		r.Reset("search", "")
		stats := &r.table.Get("search").Value.stats
		var lanes histogram.Reading
		lanes[histogram.Index(int64(time.Second))] = total
		stats.ok.Store(histogram.NewDense(&lanes))
		r.Record("search", Verdict{Outcome: OutcomeRejected}, 0)
		r.Record("search", Verdict{Outcome: OutcomeNeutral}, 0)
		stats.refused(StopCircuitOpen)
		stats.failures.Load().took.AddN(uint8(KindTimeout), 0, total-1) // and the one above
		stats.rejections.Load().kindCounts[KindUnknown].Store(total)
		stats.throttled.Store(total)
		stats.neutrals.Load()[KindUnknown].Store(total)
		stats.refusals.Load().byReason[StopCircuitOpen].Store(total)
		for range 10 {
			r.Record("search", Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}, time.Second)
			r.Record("search", Verdict{}, time.Second)
			r.Record("search", Verdict{Outcome: OutcomeRejected}, 0)
			r.Record("search", Verdict{Outcome: OutcomeThrottled}, 0)
			r.Record("search", Verdict{Outcome: OutcomeNeutral}, 0)
		}
		require.Equal(t, StateClosed, healthOf(t, r, "search").State)
		failTimes(r, "search", 3)
		for range 10 {
			assert.False(t, r.AllowRequest("search"))
		}
		h := healthOf(t, r, "search")
		assert.Equal(t, StateOpen, h.State)
		assert.Equal(t, []uint64{total + 10, total + 13, total + 10, total + 10, total + 10, total + 10},
			[]uint64{h.Successes, h.Failures, h.Rejected, h.Throttled, h.Neutral, h.Refused})
		assert.GreaterOrEqual(t, h.TotalCalls(), h.Failures)
		assert.InDelta(t, 0.5, h.SuccessRate(), 0.001)
		assert.InDelta(t, 0.15+0.7*h.EWMA, h.Score, 0.001)
		data, err := json.Marshal(h)
		require.NoError(t, err)
		assert.False(t, strings.Contains(string(data), ":-"), "a negative number in %s", data)
	}
}

// A caller that finds the entry of a busy tool evicted gives the probe of its group back,
// also where the tool only observes.
func TestRegistry_EvictedBusyToolGivesProbeOfGroupBack(t *testing.T) {
	r := registryWith(t, func(c *Config) {
		c.Breaker.ObserveOnly, c.Breaker.MaxInFlight = true, 1
		c.Group = func(string) string { return "g" }
	})
	r.AllowRequest("a")
	r.AllowRequest("b")
	for range 3 {
		r.Record("b", Verdict{Outcome: OutcomeFailure, Kind: KindConnection, Retryable: true}, 0)
	}
	now := r.now() + int64(time.Hour)
	n := r.table.Get("a")
	require.True(t, n.Value.evict(now))
	a, ok := n.Value.tryAdmit(now, &request{permit: true, source: sourceOf(n)}, false, true, false)
	assert.False(t, ok)
	assert.False(t, a.group.Probe)
	assert.False(t, n.Value.group.snap.Load().ProbeIsOut(now))
}

// While a name comes or goes, an order of names is neither remembered nor believed.
func TestRegistry_OrderOfNamesIsNotRememberedDuringChange(t *testing.T) {
	r := NewRegistry()
	r.AllowRequest("a")
	require.Len(t, r.HealthSummary().Tools, 1)
	remembered := r.ranking.Load()
	r.version.Add(1) // a change is under way
	r.table.Put("b", func(e *entry) { e.snap.Store(r.conf.Load().breaker.Initial) })
	assert.Len(t, r.HealthSummary().Tools, 2)
	assert.Same(t, remembered, r.ranking.Load())
	r.version.Add(1)
	assert.Len(t, r.HealthSummary().Tools, 2)
	assert.NotSame(t, remembered, r.ranking.Load())
}
