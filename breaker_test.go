package toolhealth

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBreaker_GoesThroughItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, nil)
		start := time.Now()
		var events []Transition
		stop := b.OnTransition(func(e Transition) {
			e.When = e.When.Round(0)
			events = append(events, e)
		})
		fail := func(n int) {
			for range n {
				b.RecordFailure(KindServerError)
			}
		}
		fail(2)
		b.RecordSuccess(0)
		fail(2)
		assert.True(t, b.AllowRequest())
		assert.Equal(t, StateClosed, b.State())
		assert.Equal(t, time.Duration(0), b.RetryAfter())
		fail(1)
		assert.Equal(t, StateOpen, b.State())
		assert.False(t, b.AllowRequest())
		assert.False(t, b.Available())
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30*time.Second - 1)
		assert.False(t, b.AllowRequest())
		assert.Equal(t, time.Duration(1), b.RetryAfter())
		time.Sleep(time.Nanosecond)
		assert.True(t, b.Available())
		assert.True(t, b.Available(), "Available takes no probe")
		assert.True(t, b.AllowRequest())
		assert.Equal(t, StateHalfOpen, b.State())
		assert.False(t, b.AllowRequest())
		assert.False(t, b.Available())
		assert.Equal(t, time.Minute, b.RetryAfter())
		time.Sleep(30 * time.Second)
		assert.Equal(t, StateOpen, b.State(), "the lease has run out")
		assert.Len(t, events, 2, "no call has found the expired lease yet")
		assert.False(t, b.AllowRequest())
		assert.Len(t, events, 3)
		time.Sleep(30 * time.Second)
		assert.True(t, b.AllowRequest())
		fail(1)
		assert.Equal(t, 30*time.Second, b.RetryAfter())
		time.Sleep(30 * time.Second)
		assert.True(t, b.AllowRequest())
		b.RecordSuccess(time.Second)
		assert.Equal(t, StateClosed, b.State())
		at := func(s time.Duration) time.Time { return start.Add(s * time.Second).Round(0) }
		assert.Equal(t, []Transition{
			{From: StateClosed, To: StateOpen, Epoch: 2, Cause: CauseFailureThreshold, When: at(0), Streak: 3, Kind: KindServerError, Wait: 30 * time.Second},
			{From: StateOpen, To: StateHalfOpen, Epoch: 3, Cause: CauseProbeAdmitted, When: at(30), Streak: 3, Kind: KindServerError, Wait: 60 * time.Second},
			{From: StateHalfOpen, To: StateOpen, Epoch: 4, Cause: CauseLeaseExpired, When: at(60), Streak: 3, Kind: KindServerError, Wait: 30 * time.Second},
			{From: StateOpen, To: StateHalfOpen, Epoch: 5, Cause: CauseProbeAdmitted, When: at(90), Streak: 3, Kind: KindServerError, Wait: 60 * time.Second},
			{From: StateHalfOpen, To: StateOpen, Epoch: 6, Cause: CauseProbeFailed, When: at(90), Streak: 4, Kind: KindServerError, Wait: 30 * time.Second},
			{From: StateOpen, To: StateHalfOpen, Epoch: 7, Cause: CauseProbeAdmitted, When: at(120), Streak: 4, Kind: KindServerError, Wait: 60 * time.Second},
			{From: StateHalfOpen, To: StateClosed, Epoch: 8, Cause: CauseProbeSucceeded, When: at(120), Kind: KindServerError},
		}, events)
		stop()
		b.Isolate()
		assert.False(t, b.AllowRequest())
		b.RecordSuccess(0)
		assert.Equal(t, StateOpen, b.State())
		b.Reset()
		assert.True(t, b.AllowRequest())
		assert.Len(t, events, 7, "the hook has been stopped")
		fail(2)
		b.Reset()
		fail(2)
		assert.True(t, b.AllowRequest(), "a reset forgets the streak")
	})
}

func TestBreaker_SuccessEndsStreakOfOne(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold = 2 })
	b.RecordFailure(KindTimeout)
	b.RecordSuccess(0)
	b.RecordFailure(KindTimeout)
	assert.True(t, b.Available())
}

func TestBreaker_EventThatChangesNothingStoresNothing(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold = 1 })
	b.RecordFailure(KindTimeout)
	before := b.load()
	b.RecordSuccess(0) // of a call that began before it opened
	assert.False(t, b.AllowRequest())
	assert.Same(t, before, b.load())
}

func TestBreaker_SlowSuccessIsFailure(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.SlowCallDuration, c.FailureThreshold = time.Second, 1 })
	b.RecordSuccess(time.Second)
	assert.True(t, b.Available())
	b.RecordSuccess(time.Second + 1)
	assert.False(t, b.Available())
}

func TestBreaker_HasNoFailureRate(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.FailureRate, c.FailureRateMinCalls = 100, 0.1, 1 })
	for range 99 {
		b.RecordFailure(KindTimeout)
	}
	assert.True(t, b.AllowRequest())
}

func TestBreaker_HookThatEndsItsGoroutineGivesTheProbeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold = 1 })
		b.RecordFailure(KindTimeout)
		time.Sleep(30 * time.Second)
		stop := b.OnTransition(func(Transition) { runtime.Goexit() })
		var caller sync.WaitGroup
		caller.Go(func() {
			b.AllowRequest()
			t.Error("the hook has not ended the goroutine")
		})
		caller.Wait()
		stop()
		assert.True(t, b.AllowRequest(), "the next caller gets the probe")
	})
}

func TestBreaker_ObserveOnlyLetsEveryoneIn(t *testing.T) {
	b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.ObserveOnly = 1, true })
	var causes []Cause
	b.OnTransition(func(tr Transition) { causes = append(causes, tr.Cause) })
	b.RecordFailure(KindTimeout)
	assert.True(t, b.AllowRequest())
	assert.True(t, b.Available())
	assert.Zero(t, b.RetryAfter())
	assert.Equal(t, StateOpen, b.State())
	assert.Equal(t, []Cause{CauseFailureThreshold}, causes)
}

func TestBreaker_LeaseBeginsAfterHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.ProbeTimeout = 1, time.Second })
		b.RecordFailure(KindTimeout)
		time.Sleep(30 * time.Second)
		b.OnTransition(func(Transition) { time.Sleep(5 * time.Second) })
		require.True(t, b.AllowRequest())
		time.Sleep(time.Second - 1)
		b.RecordSuccess(0)
		assert.Equal(t, StateClosed, b.State())
	})
}

// The hook is still told of the probe when another caller is refused.
func TestBreaker_RefusedCallDoesNotBeginLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.ProbeTimeout = 1, time.Second })
		b.RecordFailure(KindTimeout)
		time.Sleep(30 * time.Second)
		b.OnTransition(func(Transition) { time.Sleep(5 * time.Second) })
		time.AfterFunc(time.Second, func() { assert.False(t, b.AllowRequest()) })
		require.True(t, b.AllowRequest())
		assert.Equal(t, StateHalfOpen, b.State())
	})
}

func TestBreaker_NilAndZeroAdmitAll(t *testing.T) {
	for _, b := range []*Breaker{nil, {}} {
		for range 5 {
			b.RecordFailure(KindTimeout)
		}
		b.RecordSuccess(0)
		b.Isolate()
		b.Reset()
		assert.True(t, b.AllowRequest())
		assert.True(t, b.Available())
		assert.Equal(t, time.Duration(0), b.RetryAfter())
		assert.Equal(t, StateClosed, b.State())
		b.OnTransition(func(Transition) { t.Error("an event") })()
	}
	b, err := NewBreaker(BreakerConfig{FailureThreshold: -2})
	assert.Nil(t, b)
	assert.Error(t, err)
}

// Each cooldown has its own jitter, within the bounds.
func TestBreaker_JitterSpreadsCooldowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, func(c *BreakerConfig) { c.FailureThreshold, c.RecoveryJitter = 1, 0.5 })
		seen := map[time.Duration]bool{}
		low, high := false, false
		for range 200 {
			b.RecordFailure(KindTimeout)
			wait := b.RetryAfter()
			seen[wait] = true
			require.True(t, wait >= 30*time.Second && wait <= 45*time.Second, "%v", wait)
			low, high = low || wait < 37*time.Second, high || wait > 38*time.Second
			b.Reset()
		}
		assert.Greater(t, len(seen), 100)
		assert.True(t, low && high)
	})
}

func TestSince_TimeBeforeBaseIsZero(t *testing.T) {
	assert.Equal(t, int64(0), since(time.Now().Add(time.Hour)))
	assert.Greater(t, since(time.Now().Add(-time.Hour)), int64(time.Hour-1))
}

// chain checks that the events of each tool follow each other, one at a time.
type chain struct {
	t      testing.TB
	mu     sync.Mutex
	last   map[string]Transition
	inside map[string]bool
	count  int
}

func watchChain(t testing.TB, r *Registry) *chain {
	c := &chain{t: t, last: map[string]Transition{}, inside: map[string]bool{}}
	r.OnTransition(func(e Transition) {
		c.enter(e)
		runtime.Gosched()
		c.mu.Lock()
		c.inside[e.Tool] = false
		c.mu.Unlock()
	})
	return c
}

func (c *chain) enter(e Transition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.False(c.t, c.inside[e.Tool], "two events of %s at once", e.Tool)
	c.inside[e.Tool] = true
	before, ok := c.last[e.Tool]
	if !ok {
		before = Transition{To: StateClosed, Epoch: 1}
	}
	assert.Equal(c.t, before.To, e.From, "%+v after %+v", e, before)
	assert.Equal(c.t, before.Epoch+1, e.Epoch, "%+v after %+v", e, before)
	assert.False(c.t, e.When.Before(before.When), "%+v after %+v", e, before)
	c.last[e.Tool] = e
	c.count++
}

func TestOnTransition_EventsOfOneToolFormChain(t *testing.T) {
	r := registryWith(t, func(c *Config) {
		c.Breaker.FailureThreshold = 1
		c.Breaker.RecoveryDuration, c.Breaker.ProbeTimeout = time.Nanosecond, time.Microsecond
	})
	c := watchChain(t, r)
	g := &Gate{Registry: r}
	var group sync.WaitGroup
	for w := range 32 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for range 100 {
				tool := fmt.Sprint("t", random.IntN(3))
				switch random.IntN(8) {
				case 0:
					r.Reset(tool, "")
				case 1:
					r.Isolate(tool, "")
				case 2:
					r.RecordFailure(tool, 0)
				case 3:
					r.RecordSuccess(tool, 0)
				default:
					permit, err := g.Allow(t.Context(), tool)
					if err != nil {
						continue
					}
					switch random.IntN(4) {
					case 0:
						permit.Done(t.Context(), nil)
					case 1:
						permit.Done(t.Context(), errBroken)
					case 2:
						permit.Release()
					default:
						permit.KeepAlive()
						permit.Settle(Verdict{Outcome: OutcomeThrottled, RetryAfter: 1})
					}
				}
			}
		})
	}
	group.Wait()
	assert.Greater(t, c.count, 300)
	for tool, h := range r.All() {
		last := c.last[tool]
		// A lease that has run out since is not noticed yet.
		expired := last.To == StateHalfOpen && h.State == StateOpen && h.Epoch == last.Epoch+1
		if !expired {
			assert.Equal(t, last.Epoch, h.Epoch, "every event was delivered: %s", tool)
			assert.Equal(t, last.To, h.State, tool)
		}
		assert.Zero(t, h.InFlight, tool)
	}
}

func TestOnTransition_NewStateIsVisibleAndNoLockIsHeld(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
	var log []string
	var stop func()
	stop = r.OnTransition(func(e Transition) {
		h, ok := r.Health(e.Tool)
		assert.True(t, ok)
		assert.Equal(t, e.To, h.State)
		assert.Equal(t, e.Epoch, h.Epoch)
		log = append(log, fmt.Sprintf("in %s %d", e.Tool, e.Epoch))
		if e.Epoch == 2 && e.Tool == "a" {
			r.AllowRequest("b")
			r.AllowRequest("c")
			r.Isolate("a", "")
			r.Isolate("c", "")
			assert.NoError(t, r.Register("b", ToolOptions{}))
			assert.NoError(t, r.SetConfig(r.Config()))
			r.HealthSummary()
			r.Remove("b")
			r.OnTransition(func(e Transition) { log = append(log, fmt.Sprintf("second %s %d", e.Tool, e.Epoch)) })
			stop()
		}
		log = append(log, fmt.Sprintf("out %s %d", e.Tool, e.Epoch))
	})
	failTimes(r, "a", 3)
	assert.Equal(t, []string{
		"in a 2", "in c 2", "out c 2", "out a 2", // c's events come at once,
		"second a 3", // and a's wait until its first one has been delivered
	}, log)
}

func TestOnTransition_PanicHarmsNeitherCallNorOtherHooks(t *testing.T) {
	r := NewRegistry()
	r.OnTransition(func(Transition) { panic("hook") })
	events := recordEvents(r)
	assert.NotPanics(t, func() { failTimes(r, "a", 3) })
	r.Reset("a", "")
	assert.Equal(t, []string{"closed>open failure_threshold 2", "open>closed reset 3"}, events.of("a"))
	assert.Equal(t, uint64(2), r.HealthSummary().HookPanics)
}

func TestOnTransition_GoexitLosesNoEvent(t *testing.T) {
	r := NewRegistry()
	r.OnTransition(func(e Transition) {
		if e.Epoch == 2 {
			r.Isolate("a", "") // queued behind this one
			runtime.Goexit()
		}
	})
	events := recordEvents(r)
	var group sync.WaitGroup
	group.Go(func() {
		failTimes(r, "a", 3)
		t.Error("the goroutine goes on")
	})
	group.Wait()
	assert.Equal(t, []string{"closed>open failure_threshold 2", "open>open isolated 3"}, events.of("a"))
	r.Reset("a", "")
	assert.Len(t, events.of("a"), 3, "the queue is not stuck")
}

// While one goroutine delivers, the others leave their events to it and go on.
func TestOnTransition_SlowHookDelaysOnlyItsOwnTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		var log []string
		var mu sync.Mutex
		r.OnTransition(func(e Transition) {
			if e.Tool == "slow" && e.Epoch == 2 {
				time.Sleep(time.Minute)
			}
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprint(e.Tool, " ", e.Epoch))
		})
		start := time.Now()
		done := make(chan struct{})
		go func() {
			failTimes(r, "slow", 3)
			close(done)
		}()
		synctest.Wait()
		r.Reset("slow", "")
		r.Isolate("slow", "")
		failTimes(r, "quick", 3)
		assert.Equal(t, time.Duration(0), time.Since(start), "no caller waits for the slow hook")
		mu.Lock()
		assert.Equal(t, []string{"quick 2"}, log)
		mu.Unlock()
		<-done
		assert.Equal(t, []string{"quick 2", "slow 2", "slow 3", "slow 4"}, log)
	})
}

func TestOnTransition_NoEventAfterStopHasReturned(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
	var over atomic.Bool
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for !over.Load() {
				r.RecordFailure(fmt.Sprint("t", w%2), 0)
				r.Reset(fmt.Sprint("t", w%2), "")
				runtime.Gosched() // on one processor the others wait for this one
			}
		})
	}
	for range 200 {
		var stopped atomic.Bool
		stop := r.OnTransition(func(Transition) {
			runtime.Gosched()
			assert.False(t, stopped.Load())
		})
		runtime.Gosched()
		stop()
		stopped.Store(true)
	}
	over.Store(true)
	group.Wait()
}

func TestOnTransition_LeaseExpiredCarriesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		start := time.Now()
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		var events []Transition
		r.OnTransition(func(e Transition) { events = append(events, e) })
		require.True(t, r.AllowRequest("a"))
		time.Sleep(time.Hour)
		r.Available("a")
		r.HealthSummary()
		assert.Len(t, events, 1, "reads cause no events")
		require.True(t, r.AllowRequest("a"))
		require.Len(t, events, 3)
		assert.Equal(t, CauseLeaseExpired, events[1].Cause)
		assert.True(t, events[1].When.Equal(start.Add(time.Minute)), "%v", events[1].When)
		assert.Equal(t, CauseProbeAdmitted, events[2].Cause)
		assert.True(t, events[2].When.Equal(start.Add(time.Hour+30*time.Second)))
		assert.Equal(t, "a", events[2].Tool)
	})
}

// Both find that there is no queue yet.
func TestBreaker_FirstTwoTransitionsAtOnceAreBothDelivered(t *testing.T) {
	for range 15_000 {
		b := newBreaker(t, nil)
		var epochs []uint64 // one goroutine at a time delivers
		b.OnTransition(func(e Transition) { epochs = append(epochs, e.Epoch) })
		atOnce(2, func(int) { b.Reset() })
		require.Equal(t, []uint64{2, 3}, epochs)
	}
}
