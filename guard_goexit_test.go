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

// goexitThenPanics is what a helper of package testing does in a fake tool whose
// clean-up fails: the panic is recovered by the guard, the goroutine ends all the same.
func goexitThenPanics(context.Context, string) (int, error) {
	defer func() { panic("clean-up failed") }()
	runtime.Goexit()
	return 0, nil
}

func TestACallWhoseToolEndsTheGoroutineAndPanicsOnItsWayOutIsSettled(t *testing.T) {
	for name, change := range map[string]func(*GuardConfig){
		"quick":    nil,
		"observed": func(c *GuardConfig) { c.Observe = unheard },
		"timeout":  func(c *GuardConfig) { c.Default.Timeout = time.Second },
	} {
		r := patient(t)
		r.RecordSuccess("a", 0)
		g := guardOn(t, r, change)
		endsGoroutine(func() { _, _ = Call(t.Context(), g, "a", goexitThenPanics) })
		h := healthOf(t, r, "a")
		assert.Zero(t, h.InFlight, name)
		assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard, name)
		assert.Equal(t, uint64(1), h.Neutral, name)
	}
}

func TestAProbeWhoseToolEndsTheGoroutineAndPanicsOnItsWayOutIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		g := guardOn(t, r, nil)
		endsGoroutine(func() { _, _ = Call(t.Context(), g, "a", goexitThenPanics) })
		assert.True(t, r.Available("a"), "there is no lease that would end it")
	})
}

// Hosts may ask for panics with nil, which recover cannot tell from none.
func TestAPanicWithNilIsNoSuccess(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	r := patient(t)
	r.RecordSuccess("a", 0)
	_, err := Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) { panic(nil) })
	assert.Equal(t, KindPanic, toolError(t, err).Kind)
	h := healthOf(t, r, "a")
	assert.Zero(t, h.InFlight)
	assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
	assert.Equal(t, uint64(1), h.Successes)
}

// A hook that hangs is one more reason for a call to hang.
func TestAHookThatIsToldOfACallSeesItAmongTheRunning(t *testing.T) {
	for name, observe := range map[string]func(context.Context, Event){"quick": nil, "observed": unheard} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
			r.RecordSuccess("a", 0)
			time.Sleep(time.Second)
			var seen GuardCounts
			defer r.OnTransition(func(Transition) { seen = healthOf(t, r, "a").Guard })()
			g := guardOn(t, r, func(c *GuardConfig) { c.Observe = observe })
			_, err := Call(t.Context(), g, "a", func(context.Context, string) (int, error) { time.Sleep(2 * time.Second); return 1, nil })
			require.NoError(t, err)
			assert.Equal(t, GuardCounts{Calls: 1, Attempts: 1, InFlight: 1, Oldest: 2 * time.Second}, seen, name)
			assert.Zero(t, healthOf(t, r, "a").Guard.InFlight, name)
		})
	}
}

// A tool that has answered has, whatever a hook does that hears of it.
func TestACallWhoseToolHasAnsweredDoesNotFailForAHookThatEndsTheGoroutine(t *testing.T) {
	fine := WithVerdict(errBroken, Verdict{Outcome: OutcomeSuccess})
	for name, c := range map[string]struct {
		observe func(context.Context, Event)
		err     error
	}{
		"quick":                 {nil, nil},
		"observed":              {unheard, nil},
		"an error that is none": {nil, fine},
		"one that is, observed": {unheard, fine},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
			defer r.OnTransition(func(Transition) { runtime.Goexit() })()
			g := guardOn(t, r, func(config *GuardConfig) { config.Observe = c.observe })
			endsGoroutine(func() {
				_, _ = Call(t.Context(), g, "a", func(context.Context, string) (int, error) {
					time.Sleep(2 * time.Second)
					return 1, c.err
				})
				t.Error("the hook has not ended the goroutine")
			})
			h := healthOf(t, r, "a")
			assert.Equal(t, StateOpen, h.State, name)
			assert.Zero(t, h.InFlight, name)
			assert.Equal(t, GuardCounts{Calls: 1, Attempts: 1}, h.Guard, name)
		})
	}
}

// The hook is told of the probe that the caller is about to get.
func TestAnAdmissionWhoseHookEndsTheGoroutineLeavesNoPermitBehind(t *testing.T) {
	ask := map[string]func(context.Context, *Registry){
		"gate": func(ctx context.Context, r *Registry) { _, _ = (&Gate{Registry: r}).Allow(ctx, "a") },
		"guard": func(ctx context.Context, r *Registry) {
			_, _ = Call(ctx, guardOn(t, r, nil), "a", plays().run)
		},
	}
	for name, ask := range ask {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			stop := r.OnTransition(func(Transition) { runtime.Goexit() })
			endsGoroutine(func() { ask(t.Context(), r); t.Error("the hook has not ended the goroutine") })
			stop()
			h := healthOf(t, r, "a")
			assert.Zero(t, h.InFlight, name)
			assert.True(t, h.ProbeDue, name)
			assert.Equal(t, GuardCounts{}, h.Guard, name)
		})
	}
}

func TestNoPermitIsReleasedThatWasNotGiven(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Registry){
		"refused, because a lease has run out": func(ctx context.Context, r *Registry) { _, _ = (&Gate{Registry: r}).Allow(ctx, "a") },
		"by name":                              func(_ context.Context, r *Registry) { r.AllowRequest("a") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 10*time.Second })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			if name != "by name" {
				r.AllowRequest("a")
				time.Sleep(10 * time.Second)
			}
			defer r.OnTransition(func(Transition) { runtime.Goexit() })()
			endsGoroutine(func() { ask(t.Context(), r); t.Error("the hook has not ended the goroutine") })
			h := healthOf(t, r, "a")
			assert.Zero(t, h.InFlight, name)
			assert.Equal(t, name == "by name", h.ProbeDue, name+": nobody has been told yes")
		})
	}
}

func TestACallThatAHookEndsBeforeItsFirstAttemptIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		r.OnTransition(func(Transition) { runtime.Goexit() })
		var heard []Event
		g := guardOn(t, r, func(c *GuardConfig) {
			c.Observe = func(_ context.Context, e Event) { heard = append(heard, e) }
		})
		ctx, info := WithCallInfo(t.Context())
		endsGoroutine(func() { _, _ = Call(ctx, g, "a", plays().run) })
		require.Len(t, heard, 1)
		assert.True(t, heard[0].Final)
		assert.ErrorIs(t, heard[0].Err, errGoexit)
		assert.Equal(t, CallInfo{Requested: "a", Reason: StopNonRetryable}, *info)
	})
}

// The primary has failed, and the hook hears of the probe that its substitute is.
func TestASubstituteWhoseHookEndsTheGoroutineEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
		g := guardWithBackups(t, r, nil, "b")
		r.RecordFailure("b", 0)
		time.Sleep(30 * time.Second)
		r.OnTransition(func(e Transition) {
			if e.To == StateHalfOpen {
				runtime.Goexit()
			}
		})
		endsGoroutine(func() {
			_, _ = Call(t.Context(), g, "a", failing(errBusy).run)
			t.Error("the hook has not ended the goroutine")
		})
		a, b := healthOf(t, r, "a"), healthOf(t, r, "b")
		assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, a.Guard)
		assert.Zero(t, a.InFlight)
		assert.Zero(t, b.InFlight)
		assert.True(t, b.ProbeDue)
	})
}

func spentTokens(t *testing.T, r *Registry, tool string) int64 {
	t.Helper()
	return r.table.Get(tool).Value.guardStats().tokens.Missing().Load()
}

// Only a retry that is made costs a token.
func TestACallWhoseGoroutineEndsBeforeItsRetryPaysNoToken(t *testing.T) {
	r := patient(t)
	observed := guardOn(t, r, func(c *GuardConfig) {
		c.Observe = func(_ context.Context, e Event) {
			if !e.Final {
				runtime.Goexit()
			}
		}
	})
	endsGoroutine(func() { _, _ = Call(t.Context(), observed, "observed", failing(errBusy).run) })
	assert.Equal(t, uint64(0), healthOf(t, r, "observed").Guard.Retries)
	assert.Zero(t, spentTokens(t, r, "observed"))

	r.RecordSuccess("ended", 0)
	willing := guardOverGate(t, &Gate{Registry: r, Classify: func(context.Context, error) Verdict { return vRetry }}, nil)
	endsGoroutine(func() {
		_, _ = Call(t.Context(), willing, "ended", func(context.Context, string) (int, error) { runtime.Goexit(); return 0, nil })
	})
	assert.Zero(t, spentTokens(t, r, "ended"))
}

func TestARetryThatAHookEndsPaysNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxWait = 0 })
		probes := 0
		defer r.OnTransition(func(e Transition) {
			if e.To == StateHalfOpen {
				probes++
				runtime.Goexit()
			}
		})()
		endsGoroutine(func() {
			_, _ = Call(t.Context(), g, "a", func(context.Context, string) (int, error) {
				r.RecordFailure("a", 0) // another call opens the breaker meanwhile
				return 0, askedToWait(40 * time.Second)
			})
		})
		assert.Equal(t, 1, probes)
		assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
		assert.Zero(t, spentTokens(t, r, "a"))
	})
}

func TestAnObserverThatEndsTheGoroutineDoesNotChangeWhyTheCallEnded(t *testing.T) {
	for name, c := range map[string]struct {
		tool   func(cancel func()) error
		policy Policy
		want   StopReason
		counts GuardCounts
	}{
		"canceled":        {func(cancel func()) error { cancel(); return context.Canceled }, Policy{}, StopCanceled, GuardCounts{Calls: 1, Canceled: 1, Attempts: 1}},
		"outcome unknown": {func(func()) error { return errBusy }, Policy{SideEffects: true}, StopOutcomeUnknown, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}},
	} {
		r := patient(t)
		var seen []Event
		g := guardOn(t, r, func(config *GuardConfig) {
			config.Default = c.policy
			config.Observe = func(_ context.Context, e Event) {
				if seen = append(seen, e); !e.Final {
					runtime.Goexit()
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ctx, info := WithCallInfo(ctx)
		endsGoroutine(func() {
			_, _ = Call(ctx, g, "a", func(context.Context, string) (int, error) { return 0, c.tool(cancel) })
		})
		cancel()
		require.Len(t, seen, 2, name)
		assert.Equal(t, c.want, seen[0].Reason, name)
		assert.Equal(t, c.want, seen[1].Reason, name)
		assert.ErrorIs(t, seen[1].Err, seen[0].Err, name)
		assert.Equal(t, c.want, info.Reason, name)
		assert.Equal(t, c.counts, healthOf(t, r, "a").Guard, name)
	}
}

func TestAnAnswerGivesItsTenthOfATokenBackWhateverAHookDoes(t *testing.T) {
	for name, answer := range map[string]error{"no error": nil, "an error that is none": WithVerdict(errBroken, Verdict{})} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
			r.RecordSuccess("a", 0)
			r.table.Get("a").Value.guardStats().tokens.Missing().Store(50)
			defer r.OnTransition(func(Transition) { runtime.Goexit() })()
			endsGoroutine(func() {
				_, _ = Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) {
					time.Sleep(2 * time.Second)
					return 1, answer
				})
			})
			assert.Equal(t, int64(49), spentTokens(t, r, "a"), name)
		})
	}
}

func TestAnEntryCanBeEvictedAlthoughAHookEndsTheGoroutineThatFreesIt(t *testing.T) {
	free := map[string]func(*testing.T, *Registry){
		"a probe that succeeds": func(t *testing.T, r *Registry) {
			_, _ = Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) {
				r.AllowRequest("b") // parks a, which is in use
				return 1, nil
			})
		},
		"reset": func(_ *testing.T, r *Registry) {
			r.AllowRequest("b")
			r.Reset("a")
		},
		"a new configuration": func(_ *testing.T, r *Registry) {
			r.AllowRequest("b")
			c := r.Config()
			c.Breaker.FailureThreshold = 0
			_ = r.SetConfig(c)
		},
	}
	for name, free := range free {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.MaxTools, c.Breaker.FailureThreshold = 1, 1 })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			stop := r.OnTransition(func(e Transition) {
				if e.To == StateClosed {
					runtime.Goexit()
				}
			})
			endsGoroutine(func() { free(t, r); t.Error("the hook has not ended the goroutine") })
			stop()
			for range 3 {
				r.AllowRequest("b")
			}
			assert.Equal(t, []string{"b"}, namesOf(r), name)
		})
	}
}

// The events of a tool wait for those before them, so none may be left out.
func TestAHookThatEndsTheGoroutineOfANewConfigurationSilencesNoTool(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
	tools := []string{"a", "b", "c"}
	for _, tool := range tools {
		r.RecordFailure(tool, 0)
	}
	epochs, ends := make(map[string][]uint64), true
	defer r.OnTransition(func(e Transition) {
		epochs[e.Tool] = append(epochs[e.Tool], e.Epoch)
		if ends {
			runtime.Goexit()
		}
	})()
	c := r.Config()
	c.Breaker.FailureThreshold = 0
	endsGoroutine(func() { _ = r.SetConfig(c) })
	ends = false
	for _, tool := range tools {
		r.Isolate(tool)
		assert.Equal(t, []uint64{3, 4}, epochs[tool], tool)
	}
}
