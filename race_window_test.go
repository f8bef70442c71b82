package toolhealth

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/machine"
)

// What happens between two instructions of another goroutine: most of these
// tests try the moment very often, the others set up by hand what it leaves.

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

func TestASubstitutesProbeIsGivenToOneOfTwoCallersAtOnce(t *testing.T) {
	router, err := NewHealthRouter(map[string][]string{"a": {"b"}})
	require.NoError(t, err)
	for round := range 1000 {
		r := registryWith(t, func(c *Config) {
			c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 1, 1 // due as soon as it has opened
		})
		require.NoError(t, r.Register("a"))
		r.Isolate("a")
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

func TestPermitsThatRaceWithAnOperatorAreAllGivenBack(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.Register("a"))
	g := &Gate{Registry: r}
	var done atomic.Int64
	atOnce(3, func(i int) {
		if i == 0 {
			for done.Load() < 2 {
				r.Isolate("a")
				r.Reset("a")
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

func TestTheFirstGuardedCallsOfAToolAreAllCounted(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, nil)
	for round := range 2000 {
		tool := fmt.Sprint("t", round)
		require.NoError(t, r.Register(tool))
		atOnce(2, func(int) {
			_, _ = Call(context.Background(), g, tool, plays().run)
		})
		counts := healthOf(t, r, tool).Guard
		require.Equal(t, uint64(2), counts.Calls, "round %d", round)
		require.Zero(t, counts.InFlight)
	}
}

func TestNoTokenIsTakenOrGivenBackTwice(t *testing.T) {
	const size = 100_000
	var stats guardStats
	var taken atomic.Int64
	atOnce(4, func(int) {
		n := int64(0)
		for stats.takeToken(size) {
			n++
		}
		taken.Add(n)
	})
	assert.Equal(t, int64(size), taken.Load())
	assert.Equal(t, int64(10*size), stats.spent.Load())
	atOnce(4, func(int) {
		for range 10 * size / 4 {
			stats.refund(1)
		}
	})
	assert.Zero(t, stats.spent.Load())
}

// lateContext is a context that ends while its Done is being asked for, and not
// before the tool function and all that runs after it have ended.
type lateContext struct {
	context.Context
	over atomic.Bool
}

func (c *lateContext) Done() <-chan struct{} {
	time.Sleep(time.Second)
	c.over.Store(true)
	done := make(chan struct{})
	close(done)
	return done
}

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// The guard finds an answer and the end of its patience at once, and takes one of
// the two at random: the answer counts.
func TestADetachedAnswerThatMeetsTheEndOfTheContextIsNotLost(t *testing.T) {
	for range 50 {
		for _, tracked := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var r *Registry
				if tracked {
					r = patient(t)
				}
				g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{Detach: true} })
				answer, err := Call(&lateContext{Context: t.Context()}, g, "a", func(context.Context, string) (string, error) {
					return "just in time", nil
				})
				assert.NoError(t, err)
				assert.Equal(t, "just in time", answer)
				if tracked {
					assert.Zero(t, healthOf(t, r, "a").Guard.Abandoned)
				}
			})
		}
	}
}

// A caller that is refused counts as one that is in for a moment. An entry whose
// throttle ends in this moment is parked for that, and nothing but a call can
// bring it back.
func TestACallBringsBackAnEntryThatWasParkedForARefusedCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
		r.Record("held", Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
		stats := &r.table.Get("held").Value.stats
		r.AllowRequest("first")
		time.Sleep(10 * time.Second)
		stats.admitted.Add(1)
		r.AllowRequest("second")
		stats.settled.Add(1)
		require.Equal(t, []string{"held"}, namesOf(r))
		assert.True(t, r.AllowRequest("held"))
		assert.False(t, r.table.Get("held").Value.parked.Load(), "it is in the queue again")
		r.AllowRequest("third")
		assert.Equal(t, []string{"third"}, namesOf(r))
	})
}

func TestAnOperatorHearsThatAToolHasJustLeft(t *testing.T) {
	r := NewRegistry()
	r.AllowRequest("search")
	n := r.table.Get("search")
	r.mu.Lock()
	n.Value.snap.Store(goneUnder(n.Value.snap.Load().Params))
	var done sync.WaitGroup
	done.Go(func() { assert.False(t, r.Reset("search"), "there is no such tool any more") })
	time.Sleep(5 * time.Millisecond)
	r.drop(n)
	r.mu.Unlock()
	done.Wait()
	assert.Zero(t, r.Len())
}

func TestAnUnknownToolThatIsLeavingIsNotAvailable(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	require.NoError(t, r.Register("search"))
	assert.True(t, r.Available("search"))
	n := r.table.Get("search")
	n.Value.snap.Store(goneUnder(n.Value.snap.Load().Params))
	assert.False(t, r.Available("search"))
}

var failureByName = machine.Event{Op: machine.OpSettle, ByName: true, Outcome: machine.Failure, Kind: machine.Timeout}

func TestAnEntryIsEvictedOrHearsOfAFailureAndNeverBoth(t *testing.T) {
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

func TestAFailureThatMeetsNewConfigsIsNotLost(t *testing.T) {
	one, other := newParams(DefaultBreakerConfig()), newParams(BreakerConfig{})
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
				e.configure(other, 1)
				e.configure(one, 1)
			}
			e.configure(other, 1)
		})
		s := e.snap.Load()
		require.Equal(t, 1, s.Streak, "round %d", round)
		require.Same(t, other, s.Params)
	}
}

// A call that could bring an entry back into the queue waits for the lock; if the
// tool is registered meanwhile, it has to stay out.
func TestAnEntryThatIsRegisteredInTheLastMomentStaysPinned(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(r, "a", 1)
	r.AllowRequest("b") // parks a
	n := r.table.Get("a")
	require.True(t, n.Value.parked.Load())
	r.mu.Lock()
	var done sync.WaitGroup
	done.Go(func() { r.RecordSuccess("a", 0) })
	time.Sleep(5 * time.Millisecond)
	r.unqueue(n) // as Register does
	r.mu.Unlock()
	done.Wait()
	require.Equal(t, 0, healthOf(t, r, "a").ConsecutiveFailures)
	for _, name := range []string{"b", "c", "d"} {
		r.AllowRequest(name)
	}
	assert.Equal(t, []string{"a"}, namesOf(r))
}
