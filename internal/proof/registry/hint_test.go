package registry_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// failWith reports a failure of this kind by name.
func failWith(r *toolhealth.Registry, tool string, kind toolhealth.Kind) {
	r.Record(tool, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: kind}, 0)
}

func TestRegistry_SuspectedToolOpensAtFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		events := recordEvents(r)
		require.False(t, r.Hint("a", toolhealth.HintSuspect, time.Minute), "there is no such tool")
		for _, tool := range []string{"fails", "works", "waits", "differs"} {
			r.RecordSuccess(tool, 0)
			require.True(t, r.Hint(tool, toolhealth.HintSuspect, time.Minute))
			assert.True(t, healthOf(t, r, tool).Suspected)
			assert.True(t, r.AllowRequest(tool), "a suspicion refuses nobody")
		}
		failWith(r, "fails", toolhealth.KindConnection)
		assert.Equal(t, []string{"closed>open suspected 2"}, events.Of("fails"))
		h := healthOf(t, r, "fails")
		assert.Equal(t, 1, h.ConsecutiveFailures)
		assert.False(t, h.Suspected)
		assert.False(t, h.Reported, "it has failed here")

		r.RecordSuccess("works", 0) // on the short path, too
		assert.False(t, healthOf(t, r, "works").Suspected)
		failWith(r, "works", toolhealth.KindConnection)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "works").State)

		failWith(r, "differs", toolhealth.KindPanic)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "differs").State, "others do not see that")

		time.Sleep(time.Minute)
		assert.False(t, healthOf(t, r, "waits").Suspected)
		failWith(r, "waits", toolhealth.KindConnection)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "waits").State)
	})
}

func TestGate_SuccessEndsSuspicion(t *testing.T) {
	r := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: r}
	permit, err := gate.Allow(t.Context(), "a")
	require.NoError(t, err)
	r.Hint("a", toolhealth.HintSuspect, time.Minute)
	permit.Done(t.Context(), nil)
	assert.False(t, healthOf(t, r, "a").Suspected)
}

func TestRegistry_ReportedToolComesBackByItsOwnProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		events := recordEvents(r)
		require.True(t, r.Hint("a", toolhealth.HintDown, 10*time.Second))
		h := healthOf(t, r, "a")
		assert.True(t, h.Reported)
		assert.Equal(t, toolhealth.StopCircuitOpen, h.Reason)
		assert.Equal(t, 10*time.Second, h.RetryAfter)
		assert.Equal(t, toolhealth.KindNone, h.LastFailure)
		assert.Zero(t, h.ConsecutiveFailures)

		r.Hint("a", toolhealth.HintDefer, 20*time.Second)
		assert.Equal(t, 20*time.Second, healthOf(t, r, "a").RetryAfter)
		r.Hint("a", toolhealth.HintRecovered, time.Second)
		r.Hint("a", toolhealth.HintRecovered, 0)
		assert.Equal(t, time.Second, healthOf(t, r, "a").RetryAfter, "once")
		assert.False(t, r.AllowRequest("a"), "nothing closes by hearsay")

		time.Sleep(time.Second)
		require.True(t, r.AllowRequest("a"))
		for kind := range toolhealth.HintKind(5) {
			r.Hint("a", kind, time.Hour)
			assert.Equal(t, toolhealth.StateHalfOpen, healthOf(t, r, "a").State)
		}
		r.RecordSuccess("a", 0)
		assert.Equal(t, []string{
			"closed>open reported 2", "open>half-open probe_admitted 3", "half-open>closed probe_succeeded 4",
		}, events.Of("a"))
		r.Hint("a", toolhealth.HintDown, time.Minute)
		assert.True(t, r.Available("a"), "a probe of its own is proof")
		time.Sleep(10 * time.Minute)
		r.Hint("a", toolhealth.HintDown, time.Minute)
		assert.False(t, r.Available("a"), "for max_hint_duration")
	})
}

func TestRegistry_HintIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.MaxHintDuration = time.Minute })
		r.Hint("down", toolhealth.HintDown, 1<<62)
		r.Hint("throttled", toolhealth.HintThrottled, 1<<62)
		for _, tool := range []string{"down", "throttled"} {
			assert.Equal(t, time.Minute, healthOf(t, r, tool).RetryAfter)
		}
		time.Sleep(2 * time.Second)
		for kind := range toolhealth.HintKind(4) {
			r.Hint("down", kind, time.Hour)
		}
		assert.Equal(t, 58*time.Second, healthOf(t, r, "down").RetryAfter, "from when it opened")
		assert.Equal(t, toolhealth.StopRateLimited, healthOf(t, r, "throttled").Reason)
		r.Isolate("down", "")
		r.Hint("down", toolhealth.HintRecovered, 0)
		assert.Equal(t, toolhealth.StopIsolated, healthOf(t, r, "down").Reason)
	})
}

func TestRegistry_HintThatIsNotHeard(t *testing.T) {
	deaf := registryWith(t, func(c *toolhealth.Config) { c.Breaker.MaxHintDuration = toolhealth.Off })
	assert.True(t, deaf.Hint("a", toolhealth.HintDown, time.Minute), "there is an entry now")
	assert.True(t, deaf.AllowRequest("a"))
	registered := registryWith(t, func(c *toolhealth.Config) { c.RegisteredOnly = true })
	assert.False(t, registered.Hint("a", toolhealth.HintDown, time.Minute))
	full := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 1 })
	failTimes(full, "b", 3)
	assert.False(t, full.Hint("a", toolhealth.HintDown, time.Minute))
	r := toolhealth.NewRegistry()
	assert.False(t, r.Hint("a", toolhealth.HintKind(5), time.Minute))
	assert.False(t, r.Hint("a", toolhealth.HintKind(255), time.Minute))
	assert.False(t, r.Hint("", toolhealth.HintDown, time.Minute))
	assert.Zero(t, r.Len())
	var none *toolhealth.Registry
	assert.False(t, none.Hint("a", toolhealth.HintDown, 1))
	assert.False(t, new(toolhealth.Registry).Hint("a", toolhealth.HintDown, 1))
	none.OnStatedWait(func(toolhealth.StatedWait) {})()
	new(toolhealth.Registry).OnStatedWait(nil)()
}

// Hints for names that are made up fill no registry.
func TestRegistry_HearsayAloneIsEvictedLikeIdle(t *testing.T) {
	for _, kind := range []toolhealth.HintKind{toolhealth.HintDown, toolhealth.HintThrottled} {
		r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 10 })
		for i := range 100 {
			require.True(t, r.Hint(fmt.Sprint("made-up-", i), kind, 10*time.Minute))
		}
		assert.Equal(t, 10, r.Len())
		for i := range 10 {
			failTimes(r, fmt.Sprint("real-", i), 3)
		}
		for i := range 10 {
			assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, fmt.Sprint("real-", i)).State)
		}
		assert.False(t, r.Hint("made-up", kind, time.Minute), "what is known here has no room for hearsay")
	}
	r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 1 })
	r.Hint("a", toolhealth.HintDown, time.Minute)
	failWith(r, "a", toolhealth.KindConnection) // from now on it is known here
	r.AllowRequest("b")
	assert.Equal(t, []string{"a"}, namesOf(r))
}

func TestRegistry_OnStatedWaitTellsWhatBindsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) {
			c.Tools = map[string]toolhealth.BreakerConfig{"sites": {FailureThreshold: 3, MaxStatedWait: toolhealth.Off}}
		})
		var got []toolhealth.StatedWait
		stop := r.OnStatedWait(func(w toolhealth.StatedWait) { got = append(got, w) })
		told := func() []toolhealth.StatedWait {
			all := got
			got = nil
			return all
		}
		throttle := func(tool string, wait time.Duration) {
			r.Record(tool, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: wait}, 0)
		}
		throttle("a", time.Minute)
		assert.Equal(t, []toolhealth.StatedWait{{Tool: "a", Wait: time.Minute, Kind: toolhealth.KindRateLimited, When: time.Now()}}, told())
		throttle("a", time.Second)
		assert.Empty(t, told(), "everyone waits for longer already")
		throttle("a", time.Hour)
		assert.Equal(t, 10*time.Minute, told()[0].Wait, "as it is bounded")
		throttle("b", 0)
		throttle("sites", time.Minute)
		r.RecordFailure("b", 0)
		r.Hint("c", toolhealth.HintThrottled, time.Minute)
		r.Record("b", toolhealth.Verdict{RetryAfter: time.Minute}, 0)
		assert.Empty(t, told())
		r.Record("b", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, RetryAfter: time.Minute}, 0)
		assert.Equal(t, []toolhealth.StatedWait{{Tool: "b", Wait: time.Minute, Kind: toolhealth.KindServerError, When: time.Now()}}, told())

		failTimes(r, "probed", 3)
		time.Sleep(30 * time.Second)
		permit, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "probed")
		require.NoError(t, err)
		permit.Settle(toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: time.Minute})
		assert.Len(t, told(), 1)
		stop()
		throttle("d", time.Minute)
		assert.Empty(t, told())
	})
}

func TestRegistry_StatedWaitHooksDoNoHarm(t *testing.T) {
	r := toolhealth.NewRegistry()
	heard := 0
	r.OnStatedWait(func(toolhealth.StatedWait) { panic("hook") })
	r.OnStatedWait(func(w toolhealth.StatedWait) {
		heard++
		assert.False(t, r.Available(w.Tool), "it is in force, and no lock is held")
		r.Reset(w.Tool, "")
	})
	limited := toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: time.Minute}
	r.Record("a", limited, 0)
	assert.Equal(t, 1, heard)
	assert.EqualValues(t, 1, r.HealthSummary().HookPanics)
	assert.True(t, r.Available("a"))

	r.OnStatedWait(func(toolhealth.StatedWait) { runtime.Goexit() })
	permit, err := (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "b")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		permit.Settle(limited)
	}()
	<-done
	assert.Zero(t, healthOf(t, r, "b").InFlight, "its permit is settled")

	r = toolhealth.NewRegistry() // also if a transition hook ends the goroutine
	r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
	r.OnStatedWait(func(toolhealth.StatedWait) { heard = 100 })
	done = make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			r.Record("c", toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout, RetryAfter: time.Minute}, 0)
		}
	}()
	<-done
	assert.Equal(t, 100, heard)
}
