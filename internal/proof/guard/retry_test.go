package guard_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_JitterShortensWaitByItsShare(t *testing.T) {
	for _, jitter := range []float64{0.25, 1} {
		synctest.Test(t, func(t *testing.T) {
			g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.Jitter = jitter; c.Default.RetryBudget = toolhealth.Off })
			seen := make(map[time.Duration]bool)
			for range 200 {
				tool := plays(errBusy)
				_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
				require.NoError(t, err)
				wait := tool.Gaps()[0]
				require.LessOrEqual(t, wait, 100*time.Millisecond)
				require.GreaterOrEqual(t, wait, time.Duration((1-jitter)*float64(100*time.Millisecond)))
				seen[wait] = true
			}
			assert.Greater(t, len(seen), 150, "the waits are not spread")
		})
	}
}

func TestGuard_JitterDoesNotShortenStatedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.Jitter, c.Default.RetryBudget = 1, toolhealth.Off })
		for range 50 {
			tool := plays(throttledFor(12 * time.Second))
			_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
			require.NoError(t, err)
			wait := tool.Gaps()[0]
			require.GreaterOrEqual(t, wait, 12*time.Second)
			require.Less(t, wait, 12*time.Second+100*time.Millisecond, "the back-off is the jitter")
		}
	})
}

func TestGuard_NonPositiveStatedWaitIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Default.MaxAttempts, c.Default.BackoffBase = 4, time.Second
		})
		tool := plays(throttledFor(-5*time.Second), throttledFor(-1), throttledFor(0))
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, tool.Gaps())
	})
}

func TestGuard_WaitThatDoesNotFitStopsAtOnce(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		deadline time.Duration // zero means no deadline
		maxWait  time.Duration
		runs     int
		reason   toolhealth.StopReason
		wait     time.Duration
	}{
		{"a stated wait over MaxWait", throttledFor(31 * time.Second), 0, 30 * time.Second, 1, toolhealth.StopRateLimited, 31 * time.Second},
		{"a stated wait of exactly MaxWait", throttledFor(30 * time.Second), 0, 30 * time.Second, 2, toolhealth.StopNone, 0},
		{"no MaxWait", throttledFor(5 * time.Minute), 0, toolhealth.Off, 2, toolhealth.StopNone, 0},
		{"a stated wait past the deadline", throttledFor(20 * time.Second), 10 * time.Second, 30 * time.Second, 1, toolhealth.StopRateLimited, 20 * time.Second},
		{"a stated wait up to the deadline", throttledFor(20 * time.Second), 20 * time.Second, 30 * time.Second, 1, toolhealth.StopRateLimited, 20 * time.Second},
		{"a stated wait just within the deadline", throttledFor(20 * time.Second), 20*time.Second + 1, 30 * time.Second, 2, toolhealth.StopNone, 0},
		{"a stated wait as long as the back-off", throttledFor(100 * time.Millisecond), 0, 99 * time.Millisecond, 1, toolhealth.StopRateLimited, 100 * time.Millisecond},
		{"a back-off past the deadline", errBusy, 99 * time.Millisecond, 30 * time.Second, 1, toolhealth.StopRetryExhausted, 0},
		{"a back-off over MaxWait", errBusy, 0, 99 * time.Millisecond, 1, toolhealth.StopRetryExhausted, 0},
		{"a back-off over MaxWait that is longer than a stated wait", throttledFor(time.Millisecond), 0, 99 * time.Millisecond, 1, toolhealth.StopRetryExhausted, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				g := guardOn(t, patient(t), func(gc *toolhealth.GuardConfig) { gc.Default.MaxWait = c.maxWait })
				tool, start := plays(c.err), time.Now()
				_, err := toolhealth.Call(ctx, g, "a", tool.Run)
				assert.Equal(t, c.runs, tool.Runs())
				if c.reason == toolhealth.StopNone {
					require.NoError(t, err)
					return
				}
				e := toolError(t, err)
				assert.Equal(t, c.reason, e.Reason)
				assert.Equal(t, c.wait, e.RetryAfter)
				assert.Zero(t, time.Since(start), "the call waited for a retry that it did not make")
				assert.NoError(t, e.Canceled)
			})
		})
	}
}

func TestGuard_CanceledContextRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tool := plays()
		for range 5 {
			_, err := toolhealth.Call(ctx, g, "a", tool.Run)
			e := toolError(t, err)
			assert.Equal(t, toolhealth.StopCanceled, e.Reason)
			assert.Zero(t, e.Attempts)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.Zero(t, r.Len())

		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second) // a probe is due
		before := healthOf(t, r, "a")
		_, err := toolhealth.Call(ctx, g, "a", tool.Run)
		require.Error(t, err)
		assert.Equal(t, before, healthOf(t, r, "a"))
		assert.Zero(t, tool.Runs())
		_, err = toolhealth.Call(t.Context(), g, "a", tool.Run)
		require.NoError(t, err, "the canceled call took the probe")
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

func TestGuard_MaxAttemptsIsTotal(t *testing.T) {
	for attempts, want := range map[int]int{0: 1, 1: 1, 2: 2, 5: 5, math.MaxInt: 50} {
		synctest.Test(t, func(t *testing.T) {
			g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
				c.Default = bare(toolhealth.Policy{MaxAttempts: attempts, RetryBudget: 49})
			})
			tool := failing(errBusy)
			_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
			assert.Equal(t, want, toolError(t, err).Attempts)
			assert.Equal(t, want, tool.Runs())
		})
	}
}

func TestGuard_NonRetryableErrorIsNotRetried(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 410, 413, 422, 501, 505} {
		r := patient(t)
		tool := failing(statusErr(status))
		_, err := toolhealth.Call(t.Context(), guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 5 }), "a", tool.Run)
		assert.Equal(t, 1, tool.Runs(), "status %d", status)
		assert.Equal(t, toolhealth.StopNonRetryable, toolError(t, err).Reason)
		var own statusErr
		assert.ErrorAs(t, err, &own)
		assert.Equal(t, statusErr(status), own)
	}
}

func TestGuard_ThrottledProbeIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		tool := plays(throttledFor(5 * time.Second))
		_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{5 * time.Second}, tool.Gaps())
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

func TestGuard_UntrackedToolIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 1 })
		require.NoError(t, r.Register("kept", toolhealth.ToolOptions{}))
		tool := plays(errBusy)
		_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, 2, tool.Runs())
		assert.Equal(t, 1, r.Len())
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked)
	})
}

func TestGuard_UnknownToolIsRefusedWithoutTrace(t *testing.T) {
	r := registryWith(t, func(c *toolhealth.Config) { c.RegisteredOnly = true })
	require.NoError(t, r.Register("search", toolhealth.ToolOptions{}))
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 3 })
	tool := plays()
	for i := range 1000 {
		_, err := toolhealth.Call(t.Context(), g, fmt.Sprintf("web-searchh-%d", i%7), tool.Run)
		e := toolError(t, err)
		require.Equal(t, toolhealth.StopUnknownTool, e.Reason)
		require.ErrorIs(t, err, toolhealth.ErrUnknownTool)
		require.Equal(t, "unknown tool", err.Error())
		require.Zero(t, e.RetryAfter, "waiting does not help")
	}
	assert.Zero(t, tool.Runs())
	assert.Equal(t, 1, r.Len())
	assert.Zero(t, healthOf(t, r, "search").Guard)
}

func TestGuard_ServesManyGoroutines(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) {
		c.Default = bare(toolhealth.Policy{MaxAttempts: 2, Timeout: time.Minute, RetryBudget: 5})
		c.Tools = map[string]toolhealth.Policy{"b": bare(toolhealth.Policy{Detach: true})}
		c.Observe = ignoreEvents
	}, "b")
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := range 200 {
				ctx, info := toolhealth.WithCallInfo(context.Background())
				_, err := toolhealth.Call(ctx, g, "a", func(_ context.Context, tool string) (int, error) {
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

func TestGuard_StatedWaitIsReportedForEveryReason(t *testing.T) {
	wait := throttledFor(7 * time.Second)
	for name, c := range map[string]struct {
		policy toolhealth.Policy
		reason toolhealth.StopReason
	}{
		"attempts":     {toolhealth.Policy{MaxAttempts: 1}, toolhealth.StopRetryExhausted},
		"budget":       {toolhealth.Policy{MaxAttempts: 2, RetryBudget: 1, BackoffBase: 8 * time.Second}, toolhealth.StopRetryBudgetExhausted},
		"side effects": {toolhealth.Policy{MaxAttempts: 2, SideEffects: true}, toolhealth.StopRateLimited},
	} {
		r := patient(t)
		takeTokens(t, guardOn(t, r, func(gc *toolhealth.GuardConfig) { gc.Default.RetryBudget = 1 }), "a", 1)
		g := guardOn(t, r, func(gc *toolhealth.GuardConfig) { gc.Default = bare(c.policy) })
		assert.Equal(t, toolhealth.Decision{Reason: c.reason, Wait: 7 * time.Second}, g.Next("a", 1, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: 7 * time.Second,
		}), name)
		r.Reset("a", "")
		_, err := toolhealth.Call(t.Context(), g, "a", failing(wait).Run)
		e := toolError(t, err)
		assert.Equal(t, c.reason, e.Reason, name)
		assert.Equal(t, 7*time.Second, e.RetryAfter, name)
	}
}

func TestGuard_IsolationDuringAttemptEndsCall(t *testing.T) {
	r := patient(t)
	_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (string, error) {
		r.Isolate("a", "")
		return "", errBusy
	})
	e := toolError(t, err)
	assert.Equal(t, toolhealth.StopIsolated, e.Reason)
	assert.Zero(t, e.RetryAfter, "there is nothing to wait for")
	assert.Equal(t, 30*time.Second, e.Candidates[0].RetryAfter, "as in a refusal")
	assert.Equal(t, 1, e.Attempts)
	assert.ErrorIs(t, err, toolhealth.ErrIsolated)
}

func TestGuard_FailureDuringAnotherProbeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		tool := failing(errBusy)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, name string) (string, error) {
			failTimes(r, "a", 3)
			time.Sleep(30 * time.Second)
			require.True(t, r.AllowRequest("a")) // the probe belongs to another caller
			return tool.Run(ctx, name)
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopCircuitOpen, e.Reason, "the breaker has not closed since it opened")
		assert.Equal(t, time.Minute, e.RetryAfter, "the lease and a cooldown")
		assert.Equal(t, 1, tool.Runs())
	})
}

// deadlineContext has a deadline and never ends.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func TestGuard_WaitThatDoesNotFitIsRateLimitedOnlyIfStated(t *testing.T) {
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		policy   toolhealth.Policy
		deadline time.Time
		stated   time.Duration
		reason   toolhealth.StopReason
		wait     time.Duration
	}{
		{toolhealth.Policy{}, past, 0, toolhealth.StopRetryExhausted, 0},
		{toolhealth.Policy{}, past, 1, toolhealth.StopRateLimited, 1},
		{toolhealth.Policy{BackoffBase: 2, MaxWait: 1}, time.Time{}, 0, toolhealth.StopRetryExhausted, 0},
		{toolhealth.Policy{BackoffBase: 2, MaxWait: 2}, time.Time{}, 0, toolhealth.RetryAllowed, 2},
	} {
		v := retryable
		v.RetryAfter = c.stated
		var events []toolhealth.Event
		g := guardOn(t, patient(t), func(gc *toolhealth.GuardConfig) {
			gc.Default = bare(c.policy)
			gc.Default.MaxAttempts = 2
			gc.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
		})
		ctx := deadlineContext{t.Context(), c.deadline}
		_, err := toolhealth.Call(ctx, g, "a", failing(toolhealth.WithVerdict(errBusy, v)).Run)
		require.Error(t, err)
		assert.Equal(t, c.reason, events[0].Reason, "%+v", c)
		assert.Equal(t, c.wait, events[0].Wait, "%+v", c)
	}
}

func TestGuard_LeastTimeoutAndBackoffCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{MaxAttempts: 2, Timeout: 1, BackoffBase: 1})
		})
		tool := plays(errBusy)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, name string) (string, error) {
			defer func() { <-ctx.Done() }()
			return tool.Run(ctx, name)
		})
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{2}, tool.Gaps())
	})
}

func TestGuard_StatedWaitIsAtMostMaxOpenDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.MaxOpenDuration = time.Minute })
		g := guardOn(t, r, nil)
		limited := toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: 24 * time.Hour}
		_, err := toolhealth.Call(t.Context(), g, "a", failing(toolhealth.WithVerdict(errBusy, limited)).Run)
		assert.Equal(t, time.Minute, toolError(t, err).RetryAfter)
		assert.Equal(t, time.Minute, g.Next("b", 1, limited).Wait)
	})
}
