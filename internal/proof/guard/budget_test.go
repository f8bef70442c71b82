package guard_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_TenThousandCanceledWaitsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{MaxAttempts: 2, BackoffBase: time.Hour, RetryBudget: 10_000})
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var wrong atomic.Int64
		for range 10_000 {
			calls.Go(func() {
				_, err := toolhealth.Call(ctx, g, "a", failing(errBusy).Run)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, errBusy) {
					wrong.Add(1)
				}
			})
		}
		synctest.Wait() // until all calls wait
		counts := healthOf(t, r, "a").Guard
		assert.Equal(t, 10_000, counts.InFlight)
		start := time.Now()
		cancel()
		calls.Wait()
		assert.Less(t, time.Since(start), time.Millisecond)
		assert.Zero(t, wrong.Load())
		counts = healthOf(t, r, "a").Guard
		assert.Equal(t, toolhealth.GuardCounts{Calls: 10_000, Canceled: 10_000, Attempts: 10_000}, counts)
		// A goroutine that is left behind makes the bubble fail at its end.
		assert.Equal(t, 10_000, retriesLeft(t, g, "a"), "a retry that is not made costs no token")
	})
}

func TestGuard_RefusedRetryReturnsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		time.AfterFunc(50*time.Millisecond, func() { r.Isolate("a", "") })
		tool := failing(errBusy)
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopIsolated, e.Reason)
		assert.Equal(t, 1, tool.Runs())
		assert.ErrorIs(t, err, errBusy, "the error of the attempt that did run")
		assert.Equal(t, toolhealth.KindServerError, e.Verdict.Kind)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1, Refusals: 1}, healthOf(t, r, "a").Guard)
		r.Reset("a", "")
		assert.Equal(t, 10, retriesLeft(t, g, "a"))
	})
}

// A hundred callers call a failing tool at once. Ten tokens allow ten retries, however
// the callers interleave.
func TestGuard_BudgetBoundsRetriesOfHundredCallers(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for round := range rounds {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default = bare(toolhealth.Policy{MaxAttempts: 3, RetryBudget: 10}) })
		var runs atomic.Int64
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				_, _ = toolhealth.Call(context.Background(), g, "a", func(context.Context, string) (int, error) {
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

func TestGuard_SuccessReturnsTenthOfToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default = bare(toolhealth.Policy{MaxAttempts: 2, RetryBudget: 1}) })
		call := func(tool *actor) error {
			_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
			return err
		}
		for range 25 {
			require.NoError(t, call(plays())) // a full bucket does not overflow
		}
		// The retry costs ten tenths, and its success returns the first of them.
		require.NoError(t, call(plays(errBusy)))
		for returned := 1; returned < 10; returned++ {
			assert.Equal(t, toolhealth.StopRetryBudgetExhausted, toolError(t, call(failing(errBusy))).Reason, "%d tenths are no token", returned)
			require.NoError(t, call(plays()))
		}
		require.NoError(t, call(plays(errBusy)), "ten tenths are a token")
	})
}

func TestGuard_LargestBudgetIsNotEmpty(t *testing.T) {
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.Default = bare(toolhealth.Policy{MaxAttempts: 2, RetryBudget: math.MaxInt})
	})
	_, err := toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run)
	assert.NoError(t, err, "the largest budget overflows")
}

func TestGuard_WithoutBudgetOrRegistryOnlyMaxAttemptsLimits(t *testing.T) {
	for name, r := range map[string]*toolhealth.Registry{"no budget": patient(t), "no registry": nil, "zero registry": {}} {
		budget := 0
		if name != "no budget" {
			budget = 1 // a bucket would be the registry's
		}
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default = bare(toolhealth.Policy{MaxAttempts: 3, RetryBudget: budget})
		})
		for range 20 {
			tool := failing(errBusy)
			_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
			assert.Equal(t, toolhealth.StopRetryExhausted, toolError(t, err).Reason, name)
			assert.Equal(t, 3, tool.Runs(), name)
		}
	}
}

func TestGuard_CanceledWaitReturnsToken(t *testing.T) {
	for _, budget := range []int{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			bucket := guardOn(t, r, nil)
			takeTokens(t, bucket, "a", 5)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget = budget })
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := toolhealth.Call(ctx, g, "a", failing(errBusy).Run)
			assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason)
			assert.Equal(t, 5, retriesLeft(t, bucket, "a"), "budget %d", budget)
		})
	}
	synctest.Test(t, func(t *testing.T) { // without a registry there is no bucket
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := toolhealth.Call(ctx, guardOn(t, nil, nil), "a", failing(errBusy).Run)
		assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason)
	})
}

func TestGuard_OnlyTokenIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := toolhealth.Call(ctx, g, "a", failing(errBusy).Run)
		require.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason)
		_, err = toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run)
		assert.NoError(t, err)
	})
}
