package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaitsGrowAndAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) {
			c.Default.MaxAttempts, c.Default.RetryBudget, c.Default.BackoffMax = 8, 0, 2*time.Second
		})
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.run)
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms}, tool.gaps())
		e := toolError(t, err)
		assert.Equal(t, StopRetryExhausted, e.Reason)
		assert.Equal(t, KindServerError, e.Kind)
		assert.Equal(t, 8, e.Attempts)
		assert.ErrorIs(t, err, errBusy)
	})
}

func TestJitterTakesAwayUpToItsShareOfAWait(t *testing.T) {
	for _, jitter := range []float64{0.25, 1} {
		synctest.Test(t, func(t *testing.T) {
			g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.Jitter = jitter; c.Default.RetryBudget = 0 })
			seen := make(map[time.Duration]bool)
			for range 200 {
				tool := plays(errBusy)
				_, err := Call(t.Context(), g, "a", tool.run)
				require.NoError(t, err)
				wait := tool.gaps()[0]
				require.LessOrEqual(t, wait, 100*time.Millisecond)
				require.GreaterOrEqual(t, wait, time.Duration((1-jitter)*float64(100*time.Millisecond)))
				seen[wait] = true
			}
			assert.Greater(t, len(seen), 150, "the waits are not spread")
		})
	}
}

func TestAStatedWaitIsAFloorThatNoJitterShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.Jitter, c.Default.RetryBudget = 1, 0 })
		for range 50 {
			tool := plays(askedToWait(12 * time.Second))
			_, err := Call(t.Context(), g, "a", tool.run)
			require.NoError(t, err)
			require.Equal(t, []time.Duration{12 * time.Second}, tool.gaps())
		}
	})
}

func TestAWaitThatIsNoWaitIsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) {
			c.Default.MaxAttempts, c.Default.BackoffBase = 4, time.Second
		})
		tool := plays(askedToWait(-5*time.Second), askedToWait(-1), askedToWait(0))
		_, err := Call(t.Context(), g, "a", tool.run)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, tool.gaps())
	})
}

func TestAWaitThatDoesNotFitStopsAtOnceAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		deadline time.Duration // 0: none
		maxWait  time.Duration
		runs     int
		reason   StopReason
		wait     time.Duration
	}{
		{"a stated wait over MaxWait", askedToWait(31 * time.Second), 0, 30 * time.Second, 1, StopRateLimited, 31 * time.Second},
		{"a stated wait of exactly MaxWait", askedToWait(30 * time.Second), 0, 30 * time.Second, 2, StopNone, 0},
		{"no MaxWait", askedToWait(5 * time.Minute), 0, 0, 2, StopNone, 0},
		{"a stated wait past the deadline", askedToWait(20 * time.Second), 10 * time.Second, 30 * time.Second, 1, StopRateLimited, 20 * time.Second},
		{"a stated wait up to the deadline", askedToWait(20 * time.Second), 20 * time.Second, 30 * time.Second, 1, StopRateLimited, 20 * time.Second},
		{"a stated wait just within the deadline", askedToWait(20 * time.Second), 20*time.Second + 1, 30 * time.Second, 2, StopNone, 0},
		{"a stated wait as long as the back-off", askedToWait(100 * time.Millisecond), 0, 99 * time.Millisecond, 1, StopRateLimited, 100 * time.Millisecond},
		{"a back-off past the deadline", errBusy, 99 * time.Millisecond, 30 * time.Second, 1, StopRetryExhausted, 0},
		{"a back-off over MaxWait", errBusy, 0, 99 * time.Millisecond, 1, StopRetryExhausted, 0},
		{"a back-off over MaxWait that is longer than a stated wait", askedToWait(time.Millisecond), 0, 99 * time.Millisecond, 1, StopRetryExhausted, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				g := guardOn(t, patient(t), func(gc *GuardConfig) { gc.Default.MaxWait = c.maxWait })
				tool, start := plays(c.err), time.Now()
				_, err := Call(ctx, g, "a", tool.run)
				assert.Equal(t, c.runs, tool.runs())
				if c.reason == StopNone {
					require.NoError(t, err)
					return
				}
				e := toolError(t, err)
				assert.Equal(t, c.reason, e.Reason)
				assert.Equal(t, c.wait, e.RetryAfter)
				assert.Zero(t, time.Since(start), "it waited for what it then did not do")
				assert.NoError(t, e.Canceled)
			})
		})
	}
}

func TestCancellationEndsAWaitAtOnceAndBothErrorsAreReachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) {
			c.Default.MaxAttempts, c.Default.BackoffBase, c.Default.BackoffMax, c.Default.MaxWait = 5, 30*time.Second, 0, 0
		})
		ctx, cancel := context.WithCancel(t.Context())
		ctx, info := WithCallInfo(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		tool, start := failing(errBusy), time.Now()
		_, err := Call(ctx, g, "a", tool.run)
		assert.Less(t, time.Since(start), 51*time.Millisecond)
		assert.Equal(t, 1, tool.runs())
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errBusy)
		e := toolError(t, err)
		assert.Equal(t, StopCanceled, e.Reason)
		assert.Equal(t, KindCanceled, e.Kind)
		assert.Equal(t, context.Canceled, e.Canceled)
		assert.Equal(t, []time.Duration{30 * time.Second}, info.Waits)
		h := healthOf(t, r, "a")
		assert.Equal(t, uint64(1), h.Failures, "the cancelled wait is no second failure")
		assert.Equal(t, GuardCounts{Calls: 1, Canceled: 1, Attempts: 1}, h.Guard)
	})
}

func TestTenThousandCallsCancelledInABackOffLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) {
			c.Default = Policy{MaxAttempts: 2, BackoffBase: time.Hour, RetryBudget: 10_000}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var wrong atomic.Int64
		for range 10_000 {
			calls.Go(func() {
				_, err := Call(ctx, g, "a", failing(errBusy).run)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, errBusy) {
					wrong.Add(1)
				}
			})
		}
		synctest.Wait() // all of them wait
		counts := healthOf(t, r, "a").Guard
		assert.Equal(t, 10_000, counts.InFlight)
		start := time.Now()
		cancel()
		calls.Wait()
		assert.Less(t, time.Since(start), time.Millisecond)
		assert.Zero(t, wrong.Load())
		counts = healthOf(t, r, "a").Guard
		assert.Equal(t, GuardCounts{Calls: 10_000, Canceled: 10_000, Attempts: 10_000}, counts)
		// A goroutine that was left behind makes the bubble fail at its end.
		// The tokens of the retries that were not made are back.
		g.Next("a", 1, vRetry)
		assert.Equal(t, int64(10), r.table.Get("a").Value.guardStats().tokens.Missing().Load())
	})
}

func TestACancelledContextRunsNothingAndCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tool := plays()
		for range 5 {
			_, err := Call(ctx, g, "a", tool.run)
			e := toolError(t, err)
			assert.Equal(t, StopCanceled, e.Reason)
			assert.Zero(t, e.Attempts)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Zero(t, r.Len())

		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second) // a probe is due
		before := healthOf(t, r, "a")
		_, err := Call(ctx, g, "a", tool.run)
		require.Error(t, err)
		assert.Equal(t, before, healthOf(t, r, "a"))
		assert.Zero(t, tool.runs())
		_, err = Call(t.Context(), g, "a", tool.run)
		require.NoError(t, err, "the probe was taken by the cancelled call")
		assert.Equal(t, StateClosed, healthOf(t, r, "a").State)
	})
}

func TestTheNumberOfAttemptsIsTheTotal(t *testing.T) {
	for attempts, want := range map[int]int{0: 1, 1: 1, 2: 2, 5: 5, math.MaxInt: 50} {
		synctest.Test(t, func(t *testing.T) {
			g := guardOn(t, patient(t), func(c *GuardConfig) {
				c.Default = Policy{MaxAttempts: attempts, RetryBudget: 49}
			})
			tool := failing(errBusy)
			_, err := Call(t.Context(), g, "a", tool.run)
			assert.Equal(t, want, toolError(t, err).Attempts)
			assert.Equal(t, want, tool.runs())
		})
	}
}

func TestAHopelessErrorIsNotRetried(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 410, 413, 422, 501, 505} {
		r := patient(t)
		tool := failing(statusErr(status))
		_, err := Call(t.Context(), guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 5 }), "a", tool.run)
		assert.Equal(t, 1, tool.runs(), "status %d", status)
		assert.Equal(t, StopNonRetryable, toolError(t, err).Reason)
		var own statusErr
		assert.ErrorAs(t, err, &own)
		assert.Equal(t, statusErr(status), own)
	}
}

func TestEachAttemptIsAFailureAndTheBreakerEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 10 })
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.run)
		e := toolError(t, err)
		assert.Equal(t, 3, tool.runs())
		assert.Equal(t, StopCircuitOpen, e.Reason)
		assert.Equal(t, 30*time.Second, e.RetryAfter)
		assert.ErrorIs(t, err, ErrCircuitOpen)
		assert.ErrorIs(t, err, ErrRefused)
		assert.ErrorIs(t, err, errBusy)
		assert.Equal(t, uint64(3), healthOf(t, r, "a").Failures)
	})
}

func TestARetryThatTheGateRefusesEndsTheCallAndCostsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		time.AfterFunc(50*time.Millisecond, func() { r.Isolate("a") })
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.run)
		e := toolError(t, err)
		assert.Equal(t, StopIsolated, e.Reason)
		assert.Equal(t, 1, tool.runs())
		assert.ErrorIs(t, err, errBusy, "the error of the attempt that did run")
		assert.Equal(t, KindServerError, e.Kind)
		assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1, Refusals: 1}, healthOf(t, r, "a").Guard)
		assert.Zero(t, r.table.Get("a").Value.guardStats().tokens.Missing().Load())
	})
}

func TestAProbeThatIsThrottledIsRetriedWhenItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		tool := plays(askedToWait(5 * time.Second))
		_, err := Call(t.Context(), guardOn(t, r, nil), "a", tool.run)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{5 * time.Second}, tool.gaps())
		assert.Equal(t, StateClosed, healthOf(t, r, "a").State)
	})
}

// A dead tool and a hundred callers at once: with ten tokens there are ten
// retries, however the callers interleave.
func TestTheBudgetBoundsTheRetriesOfAHundredCallers(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for round := range rounds {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{MaxAttempts: 3, RetryBudget: 10} })
		var runs atomic.Int64
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				_, _ = Call(context.Background(), g, "a", func(context.Context, string) (int, error) {
					runs.Add(1)
					return 0, errBusy
				})
			})
		}
		callers.Wait()
		require.Equal(t, int64(110), runs.Load(), "round %d", round)
		counts := healthOf(t, r, "a").Guard
		require.Equal(t, uint64(10), counts.Retries)
		require.Equal(t, uint64(110), counts.Attempts)
		require.GreaterOrEqual(t, counts.BudgetExhausted, uint64(90))
	}
}

func TestASuccessGivesExactlyATenthOfATokenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{MaxAttempts: 2, RetryBudget: 1} })
		call := func(tool *actor) error {
			_, err := Call(t.Context(), g, "a", tool.run)
			return err
		}
		spent := func() int64 { return r.table.Get("a").Value.guardStats().tokens.Missing().Load() }
		for range 25 {
			require.NoError(t, call(plays())) // a full bucket does not overflow
		}
		require.NoError(t, call(plays(errBusy)))
		assert.Equal(t, int64(9), spent(), "a retry costs ten tenths and its success gives one back")
		for n := int64(8); n >= 1; n-- {
			assert.Equal(t, StopRetryBudgetExhausted, toolError(t, call(failing(errBusy))).Reason)
			require.NoError(t, call(plays()))
			assert.Equal(t, n, spent())
		}
		require.NoError(t, call(plays()))
		require.NoError(t, call(plays(errBusy)))
	})
}

func TestAnEnormousBudgetIsNoEmptyOne(t *testing.T) {
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default = Policy{MaxAttempts: 2, RetryBudget: math.MaxInt} })
	_, err := Call(t.Context(), g, "a", plays(errBusy).run)
	assert.NoError(t, err, "it used to overflow")
}

func TestWithoutABudgetAndWithoutARegistryOnlyTheAttemptsLimit(t *testing.T) {
	for name, r := range map[string]*Registry{"no budget": patient(t), "no registry": nil, "zero registry": {}} {
		budget := 0
		if r == nil || r.inert() {
			budget = 1 // the bucket would be the registry's
		}
		g := guardOn(t, r, func(c *GuardConfig) { c.Default = Policy{MaxAttempts: 3, RetryBudget: budget} })
		for range 20 {
			tool := failing(errBusy)
			_, err := Call(t.Context(), g, "a", tool.run)
			assert.Equal(t, StopRetryExhausted, toolError(t, err).Reason, name)
			assert.Equal(t, 3, tool.runs(), name)
		}
	}
}

func TestAnUntrackedToolIsCalledAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
		require.NoError(t, r.Register("kept"))
		tool := plays(errBusy)
		_, err := Call(t.Context(), guardOn(t, r, nil), "a", tool.run)
		require.NoError(t, err)
		assert.Equal(t, 2, tool.runs())
		assert.Equal(t, 1, r.Len())
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked)
	})
}

func TestAMadeUpToolIsRefusedWithoutARetryOrATrace(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	require.NoError(t, r.Register("search"))
	g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 3 })
	tool := plays()
	for i := range 1000 {
		_, err := Call(t.Context(), g, fmt.Sprintf("web-searchh-%d", i%7), tool.run)
		e := toolError(t, err)
		require.Equal(t, StopUnknownTool, e.Reason)
		require.ErrorIs(t, err, ErrUnknownTool)
		require.Equal(t, "unknown tool", err.Error())
		require.Zero(t, e.RetryAfter, "waiting does not make it exist")
	}
	assert.Zero(t, tool.runs())
	assert.Equal(t, 1, r.Len())
	assert.Zero(t, healthOf(t, r, "search").Guard)
}

func TestANilGuardAndAZeroOneMakeTheCallOnce(t *testing.T) {
	for name, g := range map[string]*Guard{"nil": nil, "zero": {}} {
		tool := plays()
		out, err := Call(t.Context(), g, "a", tool.run)
		require.NoError(t, err, name)
		assert.Equal(t, "answer of a", out)
		tool = failing(errBusy)
		_, err = Wrap(g, "a", func(ctx context.Context, in string) (string, error) { return tool.run(ctx, in) })(t.Context(), "x")
		assert.Equal(t, StopRetryExhausted, toolError(t, err).Reason, name)
		assert.Equal(t, 1, tool.runs(), name)
	}
	g, err := NewGuard(nil, GuardConfig{Default: Policy{MaxAttempts: 3}})
	require.NoError(t, err)
	_, err = Call(t.Context(), g, "a", failing(errBusy).run)
	assert.Equal(t, 3, toolError(t, err).Attempts, "a nil Gate is a zero one, the policies are in force")
	//nolint:staticcheck // a nil ctx counts as Background
	_, err = Call(nil, g, "a", plays().run)
	assert.NoError(t, err)
}

func TestOneGuardServesManyGoroutines(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *GuardConfig) {
		c.Default = Policy{MaxAttempts: 2, Timeout: time.Minute, RetryBudget: 5}
		c.Tools = map[string]Policy{"b": {Detach: true}}
		c.Observe = unheard
	}, "b")
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := range 200 {
				ctx, info := WithCallInfo(context.Background())
				_, err := Call(ctx, g, "a", func(_ context.Context, tool string) (int, error) {
					if tool == "a" && (i+n)%3 == 0 {
						return 0, errBusy
					}
					return n, nil
				})
				if err != nil || info.Requested != "a" || info.Attempts == 0 {
					t.Errorf("call %d of %d: %v, %+v", n, i, err, info)
				}
				_ = r.HealthSummary()
			}
		})
	}
	callers.Wait()
	counts := healthOf(t, r, "a").Guard
	assert.Equal(t, uint64(16*200), counts.Calls)
	assert.Zero(t, counts.Failed)
	assert.Zero(t, counts.InFlight)
	assert.Equal(t, counts.Attempts, counts.Calls+counts.Retries)
}

func TestAStatedWaitIsHandedOnWhateverTheCallStoppedFor(t *testing.T) {
	wait := askedToWait(7 * time.Second)
	for name, c := range map[string]struct {
		policy Policy
		reason StopReason
	}{
		"attempts":     {Policy{MaxAttempts: 1}, StopRetryExhausted},
		"budget":       {Policy{MaxAttempts: 2, RetryBudget: 1}, StopRetryBudgetExhausted},
		"side effects": {Policy{MaxAttempts: 2, SideEffects: true}, StopRateLimited},
	} {
		r := patient(t)
		require.NoError(t, r.Register("a"))
		r.table.Get("a").Value.guardStats().tokens.Missing().Store(10)
		g := guardOn(t, r, func(gc *GuardConfig) { gc.Default = c.policy })
		assert.Equal(t, Decision{Reason: c.reason, Wait: 7 * time.Second}, g.Next("a", 1, Verdict{
			Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: 7 * time.Second,
		}), name)
		r.Reset("a")
		_, err := Call(t.Context(), g, "a", failing(wait).run)
		e := toolError(t, err)
		assert.Equal(t, c.reason, e.Reason, name)
		assert.Equal(t, 7*time.Second, e.RetryAfter, name)
	}
}

func TestATokenComesBackExactlyAndOnlyWhereThereIsABudget(t *testing.T) {
	for _, budget := range []int{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			require.NoError(t, r.Register("a"))
			spent := r.table.Get("a").Value.guardStats().tokens.Missing()
			spent.Store(50)
			g := guardOn(t, r, func(c *GuardConfig) { c.Default.RetryBudget = budget })
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := Call(ctx, g, "a", failing(errBusy).run)
			assert.Equal(t, StopCanceled, toolError(t, err).Reason)
			assert.Equal(t, int64(50), spent.Load(), "budget %d", budget)
		})
	}
	synctest.Test(t, func(t *testing.T) { // and where there is no registry there is no bucket
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := Call(ctx, guardOn(t, nil, nil), "a", failing(errBusy).run)
		assert.Equal(t, StopCanceled, toolError(t, err).Reason)
	})
}

func TestIsolationDuringAnAttemptEndsTheCall(t *testing.T) {
	r := patient(t)
	_, err := Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (string, error) {
		r.Isolate("a")
		return "", errBusy
	})
	e := toolError(t, err)
	assert.Equal(t, StopIsolated, e.Reason)
	assert.Equal(t, 30*time.Second, e.RetryAfter)
	assert.Equal(t, 1, e.Attempts)
	assert.ErrorIs(t, err, ErrIsolated)
}

func TestAnOldAttemptThatFailsDuringAnothersProbeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, nil)
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", func(ctx context.Context, name string) (string, error) {
			failTimes(r, "a", 3)
			time.Sleep(30 * time.Second)
			require.True(t, r.AllowRequest("a")) // the probe is somebody else's
			return tool.run(ctx, name)
		})
		e := toolError(t, err)
		assert.Equal(t, StopCircuitOpen, e.Reason, "it has opened and not closed since")
		assert.Equal(t, time.Minute, e.RetryAfter, "the lease and a cooldown")
		assert.Equal(t, 1, tool.runs())
	})
}
