package toolhealth

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endsGoroutine runs f on a goroutine of its own, which f may end.
func endsGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func TestAClassifierThatEndsTheGoroutineSettlesThePermitAsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		g := &Gate{Registry: r, Classify: func(context.Context, error) Verdict { runtime.Goexit(); return Verdict{} }}
		endsGoroutine(func() {
			permit, err := g.Allow(t.Context(), "a")
			if err != nil {
				return
			}
			defer permit.Release()
			permit.Done(t.Context(), errBroken)
		})
		h := healthOf(t, r, "a")
		assert.Equal(t, StateOpen, h.State, "the probe has failed, its slot is free")
		assert.Zero(t, h.InFlight)
		assert.Equal(t, uint64(2), h.Failures)
	})
}

func TestAGuardedCallEndsAlthoughTheClassifierEndsTheGoroutine(t *testing.T) {
	for name, tool := range map[string]func(context.Context, string) (int, error){
		"error": func(context.Context, string) (int, error) { return 0, errBroken },
		"panic": func(context.Context, string) (int, error) { panic("x") },
	} {
		r := patient(t)
		g, err := NewGuard(&Gate{Registry: r, Classify: func(context.Context, error) Verdict { runtime.Goexit(); return Verdict{} }}, GuardConfig{})
		require.NoError(t, err)
		endsGoroutine(func() { _, _ = Call(t.Context(), g, "a", tool) })
		h := healthOf(t, r, "a")
		assert.Zero(t, h.InFlight, name)
		assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard, name)
		assert.Equal(t, uint64(1), h.Failures, name)
	}
}

func TestACallWhosePanicIsObservedByOneThatEndsTheGoroutineEnds(t *testing.T) {
	r := patient(t)
	finals := 0
	g := guardOn(t, r, func(c *GuardConfig) {
		c.Observe = func(_ context.Context, e Event) {
			if e.Final {
				finals++
				return
			}
			runtime.Goexit()
		}
	})
	endsGoroutine(func() {
		_, _ = Call(t.Context(), g, "a", func(context.Context, string) (int, error) { panic("x") })
	})
	h := healthOf(t, r, "a")
	assert.Equal(t, 1, finals)
	assert.Zero(t, h.Guard.InFlight)
	assert.Equal(t, uint64(1), h.Guard.Failed)
}

func TestAFailureThatOpensDuringAThrottleStopsWithCircuitOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		g.Next("a", 1, vRetry)
		g.Next("a", 1, vRetry)
		r.Record("a", Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute, Retryable: true}, 0)
		d := g.Next("a", 1, vRetry)
		assert.Equal(t, Decision{Reason: StopCircuitOpen, Wait: time.Minute, Streak: 3}, d)

		probe := g.Next("b", 1, Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: time.Second, Retryable: true})
		assert.Equal(t, RetryAllowed, probe.Reason, "a throttle alone is waited out")
	})
}

func TestAStatedWaitIsBoundedByMaxOpenDurationForTheGuardToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.MaxOpenDuration = time.Minute })
		g := guardOn(t, r, nil)
		limited := Verdict{Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 24 * time.Hour}
		_, err := Call(t.Context(), g, "a", failing(WithVerdict(errBusy, limited)).run)
		assert.Equal(t, time.Minute, toolError(t, err).RetryAfter)
		assert.Equal(t, time.Minute, g.Next("b", 1, limited).Wait)
	})
}

func TestACallInsideThePartialHandlerWritesNoCallInfoOfThisOne(t *testing.T) {
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
	ctx, info := WithCallInfo(t.Context())
	for range 2 { // the second use of the ctx begins anew
		_, err := Call(ctx, g, "a", failing(errors.New("boom")).run,
			Partial(func(ctx context.Context, _ *ToolError) (string, error) {
				return Call(ctx, g, "cache", func(context.Context, string) (string, error) { return "cached", nil })
			}))
		require.NoError(t, err)
		assert.Equal(t, CallInfo{Requested: "a", Attempts: 1, Partial: true, Reason: StopNonRetryable}, *info)
	}
}

func TestAToolWhoseHookIsRunningIsNotEvicted(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	in, goOn := make(chan bool), make(chan bool)
	stop := r.OnTransition(func(Transition) { close(in); <-goOn })
	done := make(chan bool)
	require.True(t, r.AllowRequest("a"))
	go func() { r.Reset("a"); close(done) }()
	<-in
	require.True(t, r.AllowRequest("b"))
	assert.Equal(t, uint64(1), r.HealthSummary().Untracked)
	close(goOn)
	<-done
	stop()
	require.True(t, r.AllowRequest("b"))
	assert.Equal(t, uint64(1), r.HealthSummary().Evicted, "now it may go")
}
