package guard_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_GoexitOfProbeFreesSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		go func() {
			_, _ = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
				runtime.Goexit()
				return "", nil
			})
		}()
		synctest.Wait()
		assert.True(t, healthOf(t, r, "a").ProbeDue)
		assert.Equal(t, 3, healthOf(t, r, "a").ConsecutiveFailures)
	})
}

// An observer or a hook may end its goroutine, as t.FailNow does. The call must not
// be counted as running forever.
func TestGuard_CallEndsWhenObserverOrHookEndsGoroutine(t *testing.T) {
	for name, answer := range map[string]error{"success": nil, "failure": errBusy, "last failure": statusErr(400)} {
		for _, who := range []string{"observer of the attempt", "observer of the end", "hook"} {
			t.Run(name+", "+who, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
				if who == "hook" {
					defer r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })()
				}
				g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
					c.Observe = func(_ context.Context, e toolhealth.Event) {
						if who == "observer of the attempt" && !e.Final || who == "observer of the end" && e.Final {
							runtime.Goexit()
						}
					}
				})
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_, _ = toolhealth.Call(context.Background(), g, "a", plays(answer).Run)
				}()
				assert.Nil(t, <-done)
				h := healthOf(t, r, "a")
				assert.Zero(t, h.Guard.InFlight)
				assert.Zero(t, h.InFlight)
				assert.Equal(t, uint64(1), h.Guard.Calls)
				assert.Equal(t, answer != nil, h.Guard.Failed+h.Guard.Rejected == 1)
			})
		}
	}
}

func TestGuard_GoexitLeavesOneCandidatePerTool(t *testing.T) {
	for name, tool := range map[string]func(context.Context, string) (int, error){
		"the tool ends it":     func(context.Context, string) (int, error) { runtime.Goexit(); return 0, nil },
		"the observer ends it": func(context.Context, string) (int, error) { return 0, errBusy },
	} {
		var heard error
		g := guardOn(t, toolhealth.NewRegistry(), func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) {
				if e.Final {
					heard = e.Err
				} else if errors.Is(e.Err, errBusy) {
					runtime.Goexit()
				}
			}
		})
		endsGoroutine(func() { _, _ = toolhealth.Call(context.Background(), g, "a", tool) })
		e := toolError(t, heard)
		assert.Len(t, e.Candidates, 1, name)
		assert.Equal(t, toolhealth.StopNonRetryable, e.Reason, name)
	}
}

func TestGuard_CallEndsWhenClassifierEndsGoroutine(t *testing.T) {
	for name, tool := range map[string]func(context.Context, string) (int, error){
		"error": func(context.Context, string) (int, error) { return 0, errBroken },
		"panic": func(context.Context, string) (int, error) { panic("x") },
	} {
		r := patient(t)
		g, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r, Classify: func(context.Context, error) toolhealth.Verdict { runtime.Goexit(); return toolhealth.Verdict{} }}, toolhealth.GuardConfig{Default: bare(toolhealth.Policy{})})
		require.NoError(t, err)
		endsGoroutine(func() { _, _ = toolhealth.Call(t.Context(), g, "a", tool) })
		h := healthOf(t, r, "a")
		assert.Zero(t, h.InFlight, name)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard, name)
		assert.Equal(t, uint64(1), h.Failures, name)
	}
}

func TestGuard_PanicEndsCallWhenObserverEndsGoroutine(t *testing.T) {
	r := patient(t)
	finals := 0
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if e.Final {
				finals++
				return
			}
			runtime.Goexit()
		}
	})
	endsGoroutine(func() {
		_, _ = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) { panic("x") })
	})
	h := healthOf(t, r, "a")
	assert.Equal(t, 1, finals)
	assert.Zero(t, h.Guard.InFlight)
	assert.Equal(t, uint64(1), h.Guard.Failed)
}

// goexitThenPanics is a fake tool that calls t.FailNow and whose clean-up panics: the
// guard recovers the panic, and the goroutine still ends.
func goexitThenPanics(context.Context, string) (int, error) {
	defer func() { panic("clean-up failed") }()
	runtime.Goexit()
	return 0, nil
}

func TestGuard_GoexitThenPanicSettlesPermit(t *testing.T) {
	for name, change := range map[string]func(*toolhealth.GuardConfig){
		"plain":    nil,
		"observed": func(c *toolhealth.GuardConfig) { c.Observe = ignoreEvents },
		"timeout":  func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Second },
	} {
		r := patient(t)
		r.RecordSuccess("a", 0)
		g := guardOn(t, r, change)
		endsGoroutine(func() { _, _ = toolhealth.Call(t.Context(), g, "a", goexitThenPanics) })
		h := healthOf(t, r, "a")
		assert.Zero(t, h.InFlight, name)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard, name)
		assert.Equal(t, uint64(1), h.Neutral, name)
	}
}

func TestGuard_GoexitThenPanicFreesProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		g := guardOn(t, r, nil)
		endsGoroutine(func() { _, _ = toolhealth.Call(t.Context(), g, "a", goexitThenPanics) })
		assert.True(t, r.Available("a"), "no lease would end the probe")
	})
}

// An answer of the tool counts, whatever a hook does after it.
func TestGuard_AnsweredCallIsSuccessWhenHookEndsGoroutine(t *testing.T) {
	fine := toolhealth.WithVerdict(errBroken, toolhealth.Verdict{Outcome: toolhealth.OutcomeSuccess})
	for name, c := range map[string]struct {
		observe func(context.Context, toolhealth.Event)
		err     error
	}{
		"plain":                                 {nil, nil},
		"observed":                              {ignoreEvents, nil},
		"an error that means success":           {nil, fine},
		"an error that means success, observed": {ignoreEvents, fine},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
			defer r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })()
			g := guardOn(t, r, func(config *toolhealth.GuardConfig) { config.Observe = c.observe })
			endsGoroutine(func() {
				_, _ = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) {
					time.Sleep(2 * time.Second)
					return 1, c.err
				})
				t.Error("the hook has not ended the goroutine")
			})
			h := healthOf(t, r, "a")
			assert.Equal(t, toolhealth.StateOpen, h.State, name)
			assert.Zero(t, h.InFlight, name)
			assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Attempts: 1}, h.Guard, name)
		})
	}
}

// The hook is called for the probe before the caller gets its permit.
func TestGuard_AdmissionHookEndingGoroutineLeavesNoPermit(t *testing.T) {
	ask := map[string]func(context.Context, *toolhealth.Registry){
		"gate": func(ctx context.Context, r *toolhealth.Registry) {
			_, _ = (&toolhealth.Gate{Registry: r}).Allow(ctx, "a")
		},
		"guard": func(ctx context.Context, r *toolhealth.Registry) {
			_, _ = toolhealth.Call(ctx, guardOn(t, r, nil), "a", plays().Run)
		},
	}
	for name, ask := range ask {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.ProbeTimeout = 1, 0 })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			stop := r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
			endsGoroutine(func() { ask(t.Context(), r); t.Error("the hook has not ended the goroutine") })
			stop()
			h := healthOf(t, r, "a")
			assert.Zero(t, h.InFlight, name)
			assert.True(t, h.ProbeDue, name)
			assert.Equal(t, toolhealth.GuardCounts{}, h.Guard, name)
		})
	}
}

func TestGuard_CallEndedByHookBeforeFirstAttemptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
		r.RecordFailure("a", 0)
		time.Sleep(30 * time.Second)
		r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
		var heard []toolhealth.Event
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) { heard = append(heard, e) }
		})
		ctx, info := toolhealth.WithCallInfo(t.Context())
		endsGoroutine(func() { _, _ = toolhealth.Call(ctx, g, "a", plays().Run) })
		require.Len(t, heard, 1)
		assert.True(t, heard[0].Final)
		e := toolError(t, heard[0].Err)
		require.Len(t, e.Candidates, 1)
		assert.EqualError(t, e.Candidates[0].Err, "tool function ended its goroutine")
		assert.Equal(t, toolhealth.CallInfo{Requested: "a", Reason: toolhealth.StopNonRetryable}, *info)
	})
}

// The primary has failed, and the hook is called because its substitute is a probe.
func TestGuard_SubstituteHookEndingGoroutineEndsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
		g := guardWithBackups(t, r, nil, "b")
		r.RecordFailure("b", 0)
		time.Sleep(30 * time.Second)
		r.OnTransition(func(e toolhealth.Transition) {
			if e.To == toolhealth.StateHalfOpen {
				runtime.Goexit()
			}
		})
		endsGoroutine(func() {
			_, _ = toolhealth.Call(t.Context(), g, "a", failing(errBusy).Run)
			t.Error("the hook has not ended the goroutine")
		})
		a, b := healthOf(t, r, "a"), healthOf(t, r, "b")
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, a.Guard)
		assert.Zero(t, a.InFlight)
		assert.Zero(t, b.InFlight)
		assert.True(t, b.ProbeDue)
	})
}

// Only a retry that is made costs a token.
func TestGuard_GoexitBeforeRetryCostsNoToken(t *testing.T) {
	r := patient(t)
	observed := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if !e.Final {
				runtime.Goexit()
			}
		}
	})
	endsGoroutine(func() { _, _ = toolhealth.Call(t.Context(), observed, "observed", failing(errBusy).Run) })
	assert.Equal(t, uint64(0), healthOf(t, r, "observed").Guard.Retries)
	assert.Equal(t, 10, retriesLeft(t, observed, "observed"))

	r.RecordSuccess("ended", 0)
	willing := guardOverGate(t, &toolhealth.Gate{Registry: r, Classify: func(context.Context, error) toolhealth.Verdict { return retryable }}, nil)
	endsGoroutine(func() {
		_, _ = toolhealth.Call(t.Context(), willing, "ended", func(context.Context, string) (int, error) { runtime.Goexit(); return 0, nil })
	})
	assert.Equal(t, 10, retriesLeft(t, willing, "ended"))
}

func TestGuard_RetryEndedByHookCostsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 })
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxWait = toolhealth.Off })
		probes := 0
		defer r.OnTransition(func(e toolhealth.Transition) {
			if e.To == toolhealth.StateHalfOpen {
				probes++
				runtime.Goexit()
			}
		})()
		endsGoroutine(func() {
			_, _ = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) {
				r.RecordFailure("a", 0) // another call opens the breaker
				return 0, throttledFor(40 * time.Second)
			})
		})
		assert.Equal(t, 1, probes)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
		r.Reset("a", "")
		assert.Equal(t, 10, retriesLeft(t, g, "a"))
	})
}

// While the substitute runs, another call opens the primary's breaker, so that the
// attempt that was put off is its probe.
func TestGuard_PostponedAttemptEndedByHookCostsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) {
			c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 2, time.Millisecond
		})
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryRefill = toolhealth.Off }, "b")
		probes := 0
		defer r.OnTransition(func(e toolhealth.Transition) {
			if e.To == toolhealth.StateHalfOpen {
				probes++
				runtime.Goexit()
			}
		})()
		endsGoroutine(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, _ = toolhealth.Call(ctx, g, "a", func(_ context.Context, tool string) (int, error) {
				if tool == "a" {
					time.Sleep(3 * time.Second)
				} else {
					r.RecordFailure("a", 0)
				}
				return 0, errBusy
			})
		})
		assert.Equal(t, 1, probes)
		r.Reset("a", "")
		assert.Equal(t, 10, retriesLeft(t, g, "a"))
	})
}

func TestGuard_ObserverEndingGoroutineKeepsReason(t *testing.T) {
	for name, c := range map[string]struct {
		tool   func(cancel func()) error
		policy toolhealth.Policy
		want   toolhealth.StopReason
		counts toolhealth.GuardCounts
	}{
		"canceled":        {func(cancel func()) error { cancel(); return context.Canceled }, toolhealth.Policy{}, toolhealth.StopCanceled, toolhealth.GuardCounts{Calls: 1, Canceled: 1, Attempts: 1}},
		"outcome unknown": {func(func()) error { return errBusy }, toolhealth.Policy{SideEffects: true}, toolhealth.StopOutcomeUnknown, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}},
	} {
		r := patient(t)
		var seen []toolhealth.Event
		g := guardOn(t, r, func(config *toolhealth.GuardConfig) {
			config.Default = bare(c.policy)
			config.Observe = func(_ context.Context, e toolhealth.Event) {
				if seen = append(seen, e); !e.Final {
					runtime.Goexit()
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ctx, info := toolhealth.WithCallInfo(ctx)
		endsGoroutine(func() {
			_, _ = toolhealth.Call(ctx, g, "a", func(context.Context, string) (int, error) { return 0, c.tool(cancel) })
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

func TestGuard_AnswerReturnsTenthOfTokenWhenHookEndsGoroutine(t *testing.T) {
	for name, answer := range map[string]error{"no error": nil, "an error that means success": toolhealth.WithVerdict(errBroken, toolhealth.Verdict{})} {
		for tenths, want := range map[int]int{8: 0, 9: 1} { // the answer returns one tenth
			synctest.Test(t, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
				g := guardOn(t, r, nil)
				takeTokens(t, g, "a", 10)
				giveTenths(g, "a", tenths)
				stop := r.OnTransition(func(toolhealth.Transition) { runtime.Goexit() })
				endsGoroutine(func() {
					_, _ = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) {
						time.Sleep(2 * time.Second)
						return 1, answer
					})
					t.Error("the hook has not ended the goroutine")
				})
				stop()
				r.Reset("a", "")
				assert.Equal(t, want, retriesLeft(t, g, "a"), "%s, after %d tenths", name, tenths)
			})
		}
	}
}

// Start ends the second attempt before it is one, and the Classifier calls that not sent,
// too. What the first attempt has taken back must not be taken back again.
func TestGuard_GoexitInStartTakesBackNothing(t *testing.T) {
	r := patient(t)
	side := func(c *toolhealth.GuardConfig) { c.Default.SideEffects, c.Default.BackoffBase = true, 1 }
	g := guardOverGate(t, &toolhealth.Gate{Registry: r, Classify: func(context.Context, error) toolhealth.Verdict { return unreachable }}, func(c *toolhealth.GuardConfig) {
		side(c)
		c.Start = func(ctx context.Context, e toolhealth.Event) context.Context {
			if e.Attempt == 2 {
				runtime.Goexit()
			}
			return ctx
		}
	})
	var ended context.Context // of an attempt
	_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "outer", func(ctx context.Context, tool string) (string, error) {
		ended = context.WithoutCancel(ctx)
		return tool, nil
	})
	require.NoError(t, err)
	endsGoroutine(func() { _, _ = toolhealth.Call(ended, g, "a", plays(errBusy).Run) })
	_, err = toolhealth.Call(ended, guardOn(t, r, side), "b", plays().Run)
	assert.NoError(t, err)
}
