package toolhealth

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fail reports a failure of this kind by name.
func fail(r *Registry, tool string, kind Kind) {
	r.Record(tool, Verdict{Outcome: OutcomeFailure, Kind: kind}, 0)
}

func TestRegistry_SuspectedToolOpensAtFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		events := recordEvents(r)
		require.False(t, r.Hint("a", HintSuspect, time.Minute), "there is no such tool")
		for _, tool := range []string{"fails", "works", "waits", "differs"} {
			r.RecordSuccess(tool, 0)
			require.True(t, r.Hint(tool, HintSuspect, time.Minute))
			assert.True(t, healthOf(t, r, tool).Suspected)
			assert.True(t, r.AllowRequest(tool), "a suspicion refuses nobody")
		}
		fail(r, "fails", KindConnection)
		assert.Equal(t, []string{"closed>open suspected 2"}, events.of("fails"))
		h := healthOf(t, r, "fails")
		assert.Equal(t, 1, h.ConsecutiveFailures)
		assert.False(t, h.Suspected)
		assert.False(t, h.Reported, "it has failed here")

		r.RecordSuccess("works", 0) // on the short path, too
		assert.False(t, healthOf(t, r, "works").Suspected)
		fail(r, "works", KindConnection)
		assert.Equal(t, StateClosed, healthOf(t, r, "works").State)

		fail(r, "differs", KindPanic)
		assert.Equal(t, StateClosed, healthOf(t, r, "differs").State, "others do not see that")

		time.Sleep(time.Minute)
		assert.False(t, healthOf(t, r, "waits").Suspected)
		fail(r, "waits", KindConnection)
		assert.Equal(t, StateClosed, healthOf(t, r, "waits").State)
	})
}

func TestGate_SuccessEndsSuspicion(t *testing.T) {
	r := NewRegistry()
	gate := &Gate{Registry: r}
	permit, err := gate.Allow(t.Context(), "a")
	require.NoError(t, err)
	r.Hint("a", HintSuspect, time.Minute)
	permit.Done(t.Context(), nil)
	assert.False(t, healthOf(t, r, "a").Suspected)
}

func TestRegistry_ReportedToolComesBackByItsOwnProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		events := recordEvents(r)
		require.True(t, r.Hint("a", HintDown, 10*time.Second))
		h := healthOf(t, r, "a")
		assert.True(t, h.Reported)
		assert.Equal(t, StopCircuitOpen, h.Reason)
		assert.Equal(t, 10*time.Second, h.RetryAfter)
		assert.Equal(t, KindNone, h.LastFailure)
		assert.Zero(t, h.ConsecutiveFailures)

		r.Hint("a", HintDefer, 20*time.Second)
		assert.Equal(t, 20*time.Second, healthOf(t, r, "a").RetryAfter)
		r.Hint("a", HintRecovered, time.Second)
		r.Hint("a", HintRecovered, 0)
		assert.Equal(t, time.Second, healthOf(t, r, "a").RetryAfter, "once")
		assert.False(t, r.AllowRequest("a"), "nothing closes by hearsay")

		time.Sleep(time.Second)
		require.True(t, r.AllowRequest("a"))
		for kind := range HintKind(5) {
			r.Hint("a", kind, time.Hour)
			assert.Equal(t, StateHalfOpen, healthOf(t, r, "a").State)
		}
		r.RecordSuccess("a", 0)
		assert.Equal(t, []string{
			"closed>open reported 2", "open>half-open probe_admitted 3", "half-open>closed probe_succeeded 4",
		}, events.of("a"))
		r.Hint("a", HintDown, time.Minute)
		assert.True(t, r.Available("a"), "a probe of its own is proof")
		time.Sleep(10 * time.Minute)
		r.Hint("a", HintDown, time.Minute)
		assert.False(t, r.Available("a"), "for max_hint_duration")
	})
}

func TestRegistry_HintIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.MaxHintDuration = time.Minute })
		r.Hint("down", HintDown, 1<<62)
		r.Hint("throttled", HintThrottled, 1<<62)
		for _, tool := range []string{"down", "throttled"} {
			assert.Equal(t, time.Minute, healthOf(t, r, tool).RetryAfter)
		}
		time.Sleep(2 * time.Second)
		for kind := range HintKind(4) {
			r.Hint("down", kind, time.Hour)
		}
		assert.Equal(t, 58*time.Second, healthOf(t, r, "down").RetryAfter, "from when it opened")
		assert.Equal(t, StopRateLimited, healthOf(t, r, "throttled").Reason)
		r.Isolate("down", "")
		r.Hint("down", HintRecovered, 0)
		assert.Equal(t, StopIsolated, healthOf(t, r, "down").Reason)
	})
}

func TestRegistry_HintThatIsNotHeard(t *testing.T) {
	deaf := registryWith(t, func(c *Config) { c.Breaker.MaxHintDuration = Off })
	assert.True(t, deaf.Hint("a", HintDown, time.Minute), "there is an entry now")
	assert.True(t, deaf.AllowRequest("a"))
	registered := registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	assert.False(t, registered.Hint("a", HintDown, time.Minute))
	full := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(full, "b", 3)
	assert.False(t, full.Hint("a", HintDown, time.Minute))
	r := NewRegistry()
	assert.False(t, r.Hint("a", HintKind(5), time.Minute))
	assert.False(t, r.Hint("a", HintKind(255), time.Minute))
	assert.False(t, r.Hint("", HintDown, time.Minute))
	assert.Zero(t, r.Len())
	var none *Registry
	assert.False(t, none.Hint("a", HintDown, 1))
	assert.False(t, new(Registry).Hint("a", HintDown, 1))
	none.OnStatedWait(func(StatedWait) {})()
	new(Registry).OnStatedWait(nil)()
}

// Hints for names that are made up fill no registry.
func TestRegistry_HearsayAloneIsEvictedLikeIdle(t *testing.T) {
	for _, kind := range []HintKind{HintDown, HintThrottled} {
		r := registryWith(t, func(c *Config) { c.MaxTools = 10 })
		for i := range 100 {
			require.True(t, r.Hint(fmt.Sprint("made-up-", i), kind, 10*time.Minute))
		}
		assert.Equal(t, 10, r.Len())
		for i := range 10 {
			failTimes(r, fmt.Sprint("real-", i), 3)
		}
		for i := range 10 {
			assert.Equal(t, StateOpen, healthOf(t, r, fmt.Sprint("real-", i)).State)
		}
		assert.False(t, r.Hint("made-up", kind, time.Minute), "what is known here has no room for hearsay")
	}
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	r.Hint("a", HintDown, time.Minute)
	fail(r, "a", KindConnection) // from now on it is known here
	r.AllowRequest("b")
	assert.Equal(t, []string{"a"}, namesOf(r))
}

func TestRegistry_OnStatedWaitTellsWhatBindsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) {
			c.Tools = map[string]BreakerConfig{"sites": {FailureThreshold: 3, MaxStatedWait: Off}}
		})
		var got []StatedWait
		stop := r.OnStatedWait(func(w StatedWait) { got = append(got, w) })
		told := func() []StatedWait {
			all := got
			got = nil
			return all
		}
		throttle := func(tool string, wait time.Duration) {
			r.Record(tool, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: wait}, 0)
		}
		throttle("a", time.Minute)
		assert.Equal(t, []StatedWait{{Tool: "a", Wait: time.Minute, Kind: KindRateLimited, When: time.Now()}}, told())
		throttle("a", time.Second)
		assert.Empty(t, told(), "everyone waits for longer already")
		throttle("a", time.Hour)
		assert.Equal(t, 10*time.Minute, told()[0].Wait, "as it is bounded")
		throttle("b", 0)
		throttle("sites", time.Minute)
		r.RecordFailure("b", 0)
		r.Hint("c", HintThrottled, time.Minute)
		r.Record("b", Verdict{RetryAfter: time.Minute}, 0)
		assert.Empty(t, told())
		r.Record("b", Verdict{Outcome: OutcomeFailure, Kind: KindServerError, RetryAfter: time.Minute}, 0)
		assert.Equal(t, []StatedWait{{Tool: "b", Wait: time.Minute, Kind: KindServerError, When: time.Now()}}, told())

		failTimes(r, "probed", 3)
		time.Sleep(30 * time.Second)
		permit, err := (&Gate{Registry: r}).Allow(t.Context(), "probed")
		require.NoError(t, err)
		permit.Settle(Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: time.Minute})
		assert.Len(t, told(), 1)
		stop()
		throttle("d", time.Minute)
		assert.Empty(t, told())
	})
}

func TestRegistry_StatedWaitHooksDoNoHarm(t *testing.T) {
	r := NewRegistry()
	heard := 0
	r.OnStatedWait(func(StatedWait) { panic("hook") })
	r.OnStatedWait(func(w StatedWait) {
		heard++
		assert.False(t, r.Available(w.Tool), "it is in force, and no lock is held")
		r.Reset(w.Tool, "")
	})
	limited := Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute}
	r.Record("a", limited, 0)
	assert.Equal(t, 1, heard)
	assert.EqualValues(t, 1, r.HealthSummary().HookPanics)
	assert.True(t, r.Available("a"))

	r.OnStatedWait(func(StatedWait) { runtime.Goexit() })
	permit, err := (&Gate{Registry: r}).Allow(t.Context(), "b")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		permit.Settle(limited)
	}()
	<-done
	assert.Zero(t, healthOf(t, r, "b").InFlight, "its permit is settled")

	r = NewRegistry() // also if a transition hook ends the goroutine
	r.OnTransition(func(Transition) { runtime.Goexit() })
	r.OnStatedWait(func(StatedWait) { heard = 100 })
	done = make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			r.Record("c", Verdict{Outcome: OutcomeFailure, Kind: KindTimeout, RetryAfter: time.Minute}, 0)
		}
	}()
	<-done
	assert.Equal(t, 100, heard)
}
