package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// A payment must not be the call that finds out whether the tool is well again.
func TestGuard_WithoutProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		ctx := toolhealth.WithoutProbe(t.Context())
		_, err := toolhealth.Call(ctx, g, "a", plays().Run)
		require.NoError(t, err, "a tool that is closed, and not known yet")
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)

		payment := plays()
		for range 2 {
			_, err = toolhealth.Call(ctx, g, "a", payment.Run)
			e := toolError(t, err)
			assert.Equal(t, toolhealth.StopCircuitOpen, e.Reason)
			assert.Positive(t, e.RetryAfter)
		}
		assert.Zero(t, payment.Runs())
		assert.True(t, healthOf(t, r, "a").ProbeDue, "the probe is another call's")

		_, err = toolhealth.Call(t.Context(), g, "a", plays().Run)
		require.NoError(t, err)
		_, err = toolhealth.Call(ctx, g, "a", payment.Run)
		require.NoError(t, err)
		assert.Equal(t, 1, payment.Runs())
	})
}

func TestGuard_WithoutProbeHoldsForSubstitutesRetriesAndCallsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardWithBackups(t, r, nil, "b", "c")
		failTimes(r, "b", 3)
		r.Isolate("a", "")
		time.Sleep(30 * time.Second)
		tool := plays()
		out, err := toolhealth.Call(toolhealth.WithoutProbe(t.Context()), g, "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, "answer of c", out)
		assert.True(t, healthOf(t, r, "b").ProbeDue)

		_, err = toolhealth.Call(toolhealth.WithoutProbe(t.Context()), g, "outer", func(ctx context.Context, _ string) (string, error) {
			ctx, _ = toolhealth.WithCallInfo(ctx)
			return toolhealth.Call(ctx, g, "b", tool.Run)
		})
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		assert.True(t, healthOf(t, r, "b").ProbeDue)

		runs := 0
		_, err = toolhealth.Call(toolhealth.WithoutProbe(t.Context()), g, "d", func(context.Context, string) (string, error) {
			runs++
			failTimes(r, "d", 3)
			time.Sleep(time.Hour) // the breaker opens, and a probe is due
			return "", errBusy
		})
		assert.Equal(t, 1, runs)
		assert.Error(t, err)
	})
}

func TestGate_WithoutProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b", "c"}})
		require.NoError(t, err)
		alone, routed := &toolhealth.Gate{Registry: r}, &toolhealth.Gate{Registry: r, Router: router}
		ctx := toolhealth.WithoutProbe(t.Context())
		failTimes(r, "a", 3)
		failTimes(r, "b", 3)
		time.Sleep(30 * time.Second)

		_, err = alone.Allow(ctx, "a")
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		permit, err := routed.Allow(ctx, "a")
		require.NoError(t, err)
		assert.Equal(t, "c", permit.Tool())
		permit.Release()
		assert.True(t, healthOf(t, r, "a").ProbeDue)
		assert.True(t, healthOf(t, r, "b").ProbeDue)

		permit, err = alone.Allow(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, permit.Probe())
		permit.Settle(toolhealth.Verdict{})
		permit, err = alone.Allow(ctx, "a")
		require.NoError(t, err)
		assert.False(t, permit.Probe())
		permit.Settle(toolhealth.Verdict{})
	})
}
