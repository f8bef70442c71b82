package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// reports returns a tool function that reports progress every so often, n times.
func reports(every time.Duration, n int) toolFunc {
	return func(ctx context.Context, _ string) (string, error) {
		for range n {
			select {
			case <-time.After(every):
				toolhealth.KeepAlive(ctx)
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		return "done", nil
	}
}

// asks returns a tool function that works for a second, asks a person who thinks this
// long, and works for another second. asked counts the questions.
func asks(think time.Duration, asked *int) toolFunc {
	return func(ctx context.Context, tool string) (string, error) {
		if out, err := obeys(time.Second)(ctx, tool); err != nil {
			return out, err
		}
		resume := toolhealth.Pause(ctx)
		*asked++
		time.Sleep(think)
		resume()
		return obeys(time.Second)(ctx, tool)
	}
}

// boundedBy returns a guard on r whose policy has these bounds and nothing else.
func boundedBy(t testing.TB, r *toolhealth.Registry, timeout, whole time.Duration) *toolhealth.Guard {
	t.Helper()
	return guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Default = bare(toolhealth.Policy{Timeout: timeout, MaxDuration: whole, MaxAttempts: 2})
	})
}

// probeIsDue returns a registry in which the next call of "a" is the probe.
func probeIsDue(t testing.TB) *toolhealth.Registry {
	t.Helper()
	r := toolhealth.NewRegistry()
	failTimes(r, "a", 3)
	time.Sleep(30 * time.Second)
	return r
}

func TestKeepAlive_BeginsTimeoutAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := boundedBy(t, patient(t), time.Minute, 0)
		out, err := toolhealth.Call(t.Context(), g, "a", reports(59*time.Second, 100))
		require.NoError(t, err)
		assert.Equal(t, "done", out)

		start := time.Now()
		_, err = toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			_, _ = reports(30*time.Second, 2)(ctx, tool)
			return hang(ctx, tool)
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind)
		assert.Equal(t, 2, e.Attempts)
		assert.Equal(t, 4*time.Minute, time.Since(start), "a minute of silence ends each attempt")
	})
}

func TestKeepAlive_MaxDurationGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := boundedBy(t, patient(t), 10*time.Second, time.Minute)
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "a", reports(5*time.Second, 1000))
		e := toolError(t, err)
		assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind)
		assert.Equal(t, 2, e.Attempts, "it is repeated")
		assert.Equal(t, 2*time.Minute, time.Since(start), "it bounds one attempt")
	})
}

// What the default Timeout ends is not repeated; what a MaxDuration ends is.
func TestPolicy_MaxDurationIsRepeatedBesideDefaultTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{MaxAttempts: 2, MaxDuration: time.Minute})
			c.Default.Timeout = 0
		})
		_, err := toolhealth.Call(t.Context(), g, "a", hang)
		assert.Equal(t, 2, toolError(t, err).Attempts)
	})
}

func TestKeepAlive_RenewsLeaseOfProbe(t *testing.T) {
	for _, timeout := range []time.Duration{toolhealth.Off, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := probeIsDue(t)
			every := 900 * time.Millisecond // the lease is 30s, and the Timeout one second
			_, err := toolhealth.Call(t.Context(), boundedBy(t, r, timeout, 0), "a", reports(every, 200))
			require.NoError(t, err)
			assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
		})
	}
}

func TestKeepAlive_SilentProbeLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		_, err := toolhealth.Call(t.Context(), boundedBy(t, r, toolhealth.Off, 0), "a", ignores(31*time.Second))
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "a").State)
	})
}

func TestKeepAlive_RenewsFramesOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		g := boundedBy(t, r, time.Minute, 0)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			ctx, _ = toolhealth.WithCallInfo(ctx)
			return toolhealth.Call(ctx, g, "b", func(ctx context.Context, tool string) (string, error) {
				return toolhealth.Call(ctx, g, "b", reports(50*time.Second, 10)) // part of the call around it
			})
		})
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

// A person who thinks for five minutes is asked once, and costs the tool nothing.
func TestPause_StopsClocks(t *testing.T) {
	for name, c := range map[string]struct{ timeout, whole time.Duration }{
		"Timeout":     {3 * time.Second, 0},
		"MaxDuration": {toolhealth.Off, 3 * time.Second},
		"both":        {3 * time.Second, 3 * time.Second},
		"neither":     {toolhealth.Off, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.SlowCallDuration = 3 * time.Second })
				asked := 0
				_, err := toolhealth.Call(t.Context(), boundedBy(t, r, c.timeout, c.whole), "a", asks(5*time.Minute, &asked))
				require.NoError(t, err)
				assert.Equal(t, 1, asked)
				h := healthOf(t, r, "a")
				assert.Equal(t, uint64(1), h.Successes)
				assert.Zero(t, h.ConsecutiveFailures, "it is not slow")
				assert.Equal(t, 2*time.Second, h.AverageSuccess)
			})
		})
	}
}

func TestPause_StopsLeaseOfProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		asked := 0
		g := boundedBy(t, r, 3*time.Second, 0)
		go func() {
			time.Sleep(5 * time.Minute)
			assert.False(t, r.Available("a"), "the probe is out")
		}()
		_, err := toolhealth.Call(t.Context(), g, "a", asks(9*time.Minute, &asked))
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

func TestPause_LeaseEndsAtMaxOpenDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		asked := 0
		start := time.Now()
		var lost []time.Time
		defer r.OnTransition(func(tr toolhealth.Transition) {
			if tr.Cause == toolhealth.CauseLeaseExpired {
				lost = append(lost, tr.When)
			}
		})()
		_, err := toolhealth.Call(t.Context(), boundedBy(t, r, 3*time.Second, 0), "a", asks(time.Hour, &asked))
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "a").State)
		require.Len(t, lost, 1)
		assert.Equal(t, 10*time.Minute+time.Second, lost[0].Sub(start))
	})
}

// After the pause the probe has a lease as before, not the rest of MaxOpenDuration.
func TestPause_LeaseBeginsAnewWithResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		_, err := toolhealth.Call(t.Context(), boundedBy(t, r, toolhealth.Off, 0), "a", func(ctx context.Context, _ string) (string, error) {
			toolhealth.Pause(ctx)()
			time.Sleep(31 * time.Second)
			return "", nil
		})
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "a").State)
	})
}

func TestPause_NestsAndResumeIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := boundedBy(t, patient(t), time.Minute, 0)
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "outer", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, g, "inner", func(ctx context.Context, tool string) (string, error) {
				first, second := toolhealth.Pause(ctx), toolhealth.Pause(ctx)
				first()
				first()
				time.Sleep(time.Hour)
				assert.NoError(t, ctx.Err())
				second()
				second()
				return hang(ctx, tool)
			})
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind)
		assert.Equal(t, 2*time.Hour+2*time.Minute, time.Since(start), "an attempt, and the repetition of the outer one")
	})
}

// A tool function that fails between Pause and resume leaves nothing stopped.
func TestPause_EndsWithItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := boundedBy(t, patient(t), time.Minute, 0)
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "outer", func(ctx context.Context, tool string) (string, error) {
			_, _ = toolhealth.Call(ctx, g, "inner", func(ctx context.Context, _ string) (string, error) {
				toolhealth.Pause(ctx)
				panic("in a question")
			})
			return hang(ctx, tool)
		})
		assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
		assert.Equal(t, 2*time.Minute, time.Since(start))
	})
}

func TestPause_CallersDeadlineDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g := boundedBy(t, patient(t), 3*time.Second, time.Hour)
		_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, time.Minute, time.Until(deadline))
			toolhealth.Pause(ctx)
			return hang(ctx, tool)
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopCanceled, e.Reason, "the tool has had no fair chance: it was paused all the time")
		assert.Equal(t, 1, e.Attempts)
	})
}

func TestGuard_DeadlineOfAttemptIsThatOfMaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for whole, want := range map[time.Duration]bool{0: false, toolhealth.Off: false, time.Minute: true} {
			_, err := toolhealth.Call(t.Context(), boundedBy(t, nil, time.Second, whole), "a", func(ctx context.Context, _ string) (string, error) {
				deadline, ok := ctx.Deadline()
				if assert.Equal(t, want, ok, "%v", whole); ok {
					assert.Equal(t, whole, time.Until(deadline))
				}
				return "", nil
			})
			require.NoError(t, err)
		}
	})
}

// The attempt's ctx says why it has ended, and what is derived from it has the cause.
func TestGuard_TimeoutIsDeadlineExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := toolhealth.Call(t.Context(), boundedBy(t, nil, time.Second, 0), "a", func(ctx context.Context, _ string) (string, error) {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			<-derived.Done()
			assert.Equal(t, context.DeadlineExceeded, context.Cause(derived))
			return "", ctx.Err()
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestIsProbe_OfAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		g := boundedBy(t, r, toolhealth.Off, 0)
		var kept context.Context
		call := func(want bool) {
			_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
				kept = ctx
				assert.Equal(t, want, toolhealth.IsProbe(ctx))
				_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, _ string) (string, error) {
					assert.Equal(t, want, toolhealth.IsProbe(ctx), "part of the call around it")
					return "", nil
				})
				require.NoError(t, err)
				return toolhealth.Call(ctx, g, "b", func(ctx context.Context, _ string) (string, error) {
					assert.False(t, toolhealth.IsProbe(ctx), "another tool")
					return "", nil
				})
			})
			require.NoError(t, err)
		}
		call(true)
		assert.False(t, toolhealth.IsProbe(kept), "it has ended")
		call(false)
	})
}

func TestKeepAlive_DoesNothingOutsideOfAttempt(t *testing.T) {
	var none context.Context
	options, _ := toolhealth.WithCallInfo(t.Context())
	for name, ctx := range map[string]context.Context{
		"nil": none, "plain": t.Context(), "options": options, "notes": toolhealth.WithNotes(t.Context()),
	} {
		toolhealth.KeepAlive(ctx)
		resume := toolhealth.Pause(ctx)
		require.NotNil(t, resume, name)
		resume()
		resume()
		assert.False(t, toolhealth.IsProbe(ctx), name)
	}
}

func TestKeepAlive_DoesNothingAfterAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		g := boundedBy(t, r, time.Minute, time.Hour)
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "outer", func(outer context.Context, tool string) (string, error) {
			var kept context.Context
			resume := func() {}
			_, _ = toolhealth.Call(outer, g, "a", func(ctx context.Context, _ string) (string, error) {
				kept, resume = ctx, toolhealth.Pause(ctx)
				return "", errBroken
			})
			for range 3 {
				time.Sleep(10 * time.Second)
				toolhealth.KeepAlive(kept)
				toolhealth.Pause(kept)
				resume()
			}
			return hang(outer, tool)
		})
		assert.Equal(t, toolhealth.KindTimeout, toolError(t, err).Verdict.Kind)
		assert.Equal(t, 2*time.Minute, time.Since(start))
	})
}

// A detached tool that was left tells nothing of the attempts outside.
func TestKeepAlive_OfToolThatWasLeftDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := guardOn(t, nil, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{Timeout: time.Second, Detach: true})
		})
		g := guardOn(t, nil, func(c *toolhealth.GuardConfig) { c.Default = bare(toolhealth.Policy{Timeout: time.Minute}) })
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "outer", func(outer context.Context, tool string) (string, error) {
			_, err := toolhealth.Call(outer, inner, "inner", func(ctx context.Context, _ string) (string, error) {
				for range 1000 {
					time.Sleep(2 * time.Second)
					toolhealth.KeepAlive(context.WithoutCancel(ctx))
				}
				return "", nil
			})
			assert.Error(t, err)
			return hang(outer, tool)
		})
		assert.Error(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
		time.Sleep(time.Hour)
	})
}

func TestPause_FromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probeIsDue(t)
		g := boundedBy(t, r, time.Minute, time.Hour)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			return toolhealth.Call(ctx, g, "b", func(ctx context.Context, _ string) (string, error) {
				var wg sync.WaitGroup
				for n := range 16 {
					wg.Go(func() {
						for range 50 {
							resume := toolhealth.Pause(ctx)
							time.Sleep(time.Duration(n) * time.Second)
							toolhealth.KeepAlive(ctx)
							toolhealth.IsProbe(ctx)
							go resume()
							resume()
						}
					})
				}
				wg.Wait()
				return "", errors.Join(ctx.Err())
			})
		})
		require.NoError(t, err)
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

// What the time is spent on: events and the average leave the pause out.
func TestPause_IsNoTimeOfAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) { took = append(took, e.Took) }
		})
		asked := 0
		_, err := toolhealth.Call(t.Context(), g, "outer", func(ctx context.Context, tool string) (string, error) {
			return toolhealth.Call(ctx, g, "inner", asks(5*time.Minute, &asked))
		})
		require.NoError(t, err)
		whole := 5*time.Minute + 2*time.Second
		assert.Equal(t, []time.Duration{2 * time.Second, whole, 2 * time.Second, whole}, took)
	})
}

// A nil ctx is context.Background for what asks something of a call, too.
func TestGuard_NilContextCanAskOfCalls(t *testing.T) {
	var none context.Context
	g, err := toolhealth.New(toolhealth.Settings{})
	require.NoError(t, err)
	ctx, info := toolhealth.WithCallInfo(none)
	for _, ctx := range []context.Context{ctx, toolhealth.WithoutProbe(none), toolhealth.WithoutFallback(none), toolhealth.WithNotes(none)} {
		_, err := toolhealth.Call(ctx, g, "search", func(context.Context, string) (int, error) { return 1, nil })
		assert.NoError(t, err)
	}
	assert.Equal(t, 1, info.Attempts)
}
