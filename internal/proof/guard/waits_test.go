package guard_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// waitsOf returns the waits of this many calls before their second attempt.
func waitsOf(t *testing.T, calls int, deadline time.Duration, first error, change func(*toolhealth.Policy)) (waits []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Default.Jitter, c.Default.RetryBudget = 1, toolhealth.Off
			change(&c.Default)
		})
		for range calls {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			ctx, info := toolhealth.WithCallInfo(ctx)
			_, err := toolhealth.Call(ctx, g, "a", plays(first).Run)
			cancel()
			require.NoError(t, err)
			waits = append(waits, info.Waits...)
		}
	})
	require.Len(t, waits, calls)
	return waits
}

// A wait is the longer of what the tool stated and what is kept of the back-off, and up
// to the rest of the back-off more. Only the longer has to fit.
func TestGuard_WaitIsStatedWaitAndPartOfBackoff(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name     string
		first    error
		jitter   float64
		maxWait  time.Duration
		deadline time.Duration
		least    time.Duration
		most     time.Duration
	}{
		{"no stated wait", errBusy, 1, toolhealth.Off, time.Hour, 0, 8 * s},
		{"and a little jitter", errBusy, 0.25, toolhealth.Off, time.Hour, 6 * s, 8 * s},
		{"a stated wait", throttledFor(5 * s), 1, toolhealth.Off, time.Hour, 5 * s, 13 * s},
		{"and a little jitter", throttledFor(5 * s), 0.25, toolhealth.Off, time.Hour, 6 * s, 8 * s},
		{"a long one and a little jitter", throttledFor(20 * s), 0.25, toolhealth.Off, time.Hour, 20 * s, 22 * s},
		{"no jitter", throttledFor(20 * s), toolhealth.Off, toolhealth.Off, time.Hour, 20 * s, 20 * s},
		{"cut by MaxWait", throttledFor(5 * s), 1, 7 * s, time.Hour, 5 * s, 7 * s},
		{"cut to nothing by MaxWait", throttledFor(5 * s), 1, 5 * s, time.Hour, 5 * s, 5 * s},
		{"cut by the deadline to half of the time after it", throttledFor(5 * s), 1, toolhealth.Off, 7 * s, 5 * s, 6 * s},
		{"a back-off that is cut by the deadline", errBusy, 1, toolhealth.Off, 3 * s, 0, 1500 * time.Millisecond},
	} {
		waits := waitsOf(t, 100, c.deadline, c.first, func(p *toolhealth.Policy) {
			p.BackoffBase, p.BackoffMax, p.Jitter, p.MaxWait = 8*s, toolhealth.Off, c.jitter, c.maxWait
		})
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for _, w := range waits {
			shortest, longest = min(shortest, w), max(longest, w)
		}
		assert.GreaterOrEqual(t, shortest, c.least, c.name)
		assert.LessOrEqual(t, longest, c.most, c.name)
		if spread := c.most - c.least; spread > 0 {
			assert.Greater(t, longest-shortest, spread/2, "%s: %v to %v", c.name, shortest, longest)
		}
	}
}

// A wait that is as the tool stated it costs no token; one that the back-off makes longer
// costs one.
func TestGuard_StatedWaitCostsNoToken(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  error
		jitter float64
		left   int
	}{
		{"no stated wait", errBusy, toolhealth.Off, 9},
		{"shorter than the back-off", throttledFor(99 * time.Millisecond), toolhealth.Off, 9},
		{"as long as the back-off", throttledFor(100 * time.Millisecond), toolhealth.Off, 10},
		{"longer than the back-off", throttledFor(101 * time.Millisecond), toolhealth.Off, 10},
		{"of a failure", busyFor(time.Second), toolhealth.Off, 10},
		{"longer than what full jitter keeps of the back-off", throttledFor(time.Millisecond), 1, 10},
		{"longer than what half a jitter keeps", throttledFor(51 * time.Millisecond), 0.5, 10},
		{"shorter than what half a jitter keeps", throttledFor(49 * time.Millisecond), 0.5, 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(gc *toolhealth.GuardConfig) { gc.Default.Jitter = c.jitter })
			tool := plays(c.first)
			_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
			require.NoError(t, err, c.name)
			require.Equal(t, 2, tool.Runs(), c.name)
			assert.Equal(t, c.left, retriesLeft(t, g, "a"), c.name)
		})
	}
}

// With an empty budget a stated wait is still made.
func TestGuard_StatedWaitNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget, c.Default.RetryRefill = 1, toolhealth.Off })
		takeTokens(t, g, "a", 1)
		_, err := toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run)
		assert.Equal(t, toolhealth.StopRetryBudgetExhausted, toolError(t, err).Reason)
		_, err = toolhealth.Call(t.Context(), g, "a", plays(throttledFor(time.Second)).Run)
		assert.NoError(t, err)
		next := g.Next("a", 1, throttledVerdictToRetry(5*time.Second))
		assert.Equal(t, toolhealth.Decision{Reason: toolhealth.RetryAllowed, Wait: 5 * time.Second}, next)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Guard.BudgetExhausted)
	})
}

func throttledVerdictToRetry(wait time.Duration) toolhealth.Verdict {
	v := throttledVerdict(wait)
	v.Retryable = true
	return v
}

// An empty budget gets a token back each RetryRefill, and no more than it holds.
func TestGuard_BudgetRefillsWithTime(t *testing.T) {
	for _, c := range []struct {
		refill, pause time.Duration
		left          int
	}{
		{10 * time.Second, 10*time.Second - 1, 0},
		{10 * time.Second, 10 * time.Second, 1},
		{10 * time.Second, 25 * time.Second, 2},
		{10 * time.Second, time.Hour, 3},
		{toolhealth.Off, 24 * time.Hour, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(gc *toolhealth.GuardConfig) { gc.Default.RetryBudget, gc.Default.RetryRefill = 3, c.refill })
			takeTokens(t, g, "a", 3)
			time.Sleep(c.pause)
			assert.Equal(t, c.left, retriesLeft(t, g, "a"), "%+v", c)
		})
	}
}

// A tool that fails for everyone is retried at the rate of the refills.
func TestGuard_RefillsBoundRetriesOfFailingTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget, c.Default.RetryRefill = 2, time.Minute })
		for range 600 { // an hour
			time.Sleep(6*time.Second - 100*time.Millisecond)
			_, err := toolhealth.Call(t.Context(), g, "a", failing(errBusy).Run)
			require.Error(t, err)
		}
		assert.InDelta(t, 62, float64(healthOf(t, r, "a").Guard.Retries), 1)
	})
}

// A guard with a smaller budget takes over a registry.
func TestGuard_SmallerBudgetStartsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		sized := func(size int) *toolhealth.Guard {
			return guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget, c.Default.RetryRefill = size, 0 })
		}
		large, small := sized(100), sized(2)
		takeTokens(t, large, "a", 100)
		assert.Equal(t, 2, retriesLeft(t, small, "a"))
		_, err := toolhealth.Call(t.Context(), small, "a", plays(errBusy).Run)
		assert.Equal(t, toolhealth.StopRetryBudgetExhausted, toolError(t, err).Reason)
		giveTenths(small, "a", 10)
		assert.Equal(t, 1, retriesLeft(t, small, "a"))
		assert.Equal(t, 98, retriesLeft(t, large, "a"), "what is missing stays missing in a larger one")
	})
}
