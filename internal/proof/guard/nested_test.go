package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_ToolSeesCallersContextValues(t *testing.T) {
	type key struct{}
	ctx, _ := toolhealth.WithCallInfo(context.WithValue(t.Context(), key{}, "request 7"))
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Minute })
	out, err := toolhealth.Call(toolhealth.WithoutFallback(ctx), g, "a", func(ctx context.Context, _ string) (string, error) {
		v, _ := ctx.Value(key{}).(string)
		return v, nil
	})
	require.NoError(t, err)
	assert.Equal(t, "request 7", out)
}

func TestGuard_NestedCallSharesAdmissionThroughOtherContexts(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
		ctx, _ = toolhealth.WithCallInfo(context.WithoutCancel(ctx))
		return toolhealth.Call(toolhealth.WithoutFallback(ctx), g, "between", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, g, "a", plays().Run)
		})
	})
	require.NoError(t, err)
	assert.EqualValues(t, 1, healthOf(t, r, "a").TotalCalls())
}

func TestGuard_TwentyNestedProbesCloseBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		done := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
					time.Sleep(time.Second)
					return toolhealth.Call(ctx, g, "a", plays().Run)
				})
				done <- err
			}()
		}
		good := 0
		for range 20 {
			if <-done == nil {
				good++
			}
		}
		assert.Equal(t, 1, good, "only the probe may run")
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, r, "a").State)
	})
}

func TestGuard_RunningSubstituteIsNotUsedAgain(t *testing.T) {
	r := patient(t)
	router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b"}, "b": {"a"}})
	require.NoError(t, err)
	g := guardOverGate(t, &toolhealth.Gate{Registry: r, Router: router}, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	var ran []string
	var fn func(ctx context.Context, tool string) (string, error)
	fn = func(ctx context.Context, tool string) (string, error) {
		ran = append(ran, tool)
		if len(ran) > 10 {
			t.Fatal("a circle")
		}
		if tool == "a" {
			return toolhealth.Call(ctx, g, "b", fn) // its substitute is a
		}
		return "", errBusy
	}
	_, err = toolhealth.Call(t.Context(), g, "a", fn)
	require.Error(t, err)
	assert.Equal(t, []string{"a", "b", "b"}, ran, "b inside a, then b in a's place")
}

func TestGuard_InnerRefusalIsNeutralForOuterTool(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, nil)
	failTimes(r, "in", 3)
	for range 5 {
		_, err := toolhealth.Call(t.Context(), g, "out", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, g, "in", plays().Run)
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopNonRetryable, e.Reason)
		assert.Equal(t, toolhealth.KindRefused, e.Verdict.Kind)
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen, "the wrapped error is reachable")
		assert.Equal(t, 1, e.Attempts)
		var refusal *toolhealth.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "in", refusal.Tool)
	}
	h := healthOf(t, r, "out")
	assert.Equal(t, uint64(5), h.Neutral)
	assert.Zero(t, h.ConsecutiveFailures)
}

func TestGuard_InnerCallMayOutliveOuter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Second })
		late := make(chan error, 1)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			go func() {
				time.Sleep(time.Minute)
				_, err := toolhealth.Call(ctx, g, "b", plays().Run)
				late <- err
			}()
			return "", nil
		})
		require.NoError(t, err)
		assert.ErrorIs(t, <-late, context.Canceled)
	})
}

func TestGuard_ReusedCallInfoStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, info := toolhealth.WithCallInfo(t.Context())
		g := guardOn(t, patient(t), nil)
		_, err := toolhealth.Call(ctx, g, "a", failing(errBusy).Run)
		require.Error(t, err)
		require.Equal(t, toolhealth.StopRetryExhausted, info.Reason)
		require.Len(t, info.Waits, 1)
		_, err = toolhealth.Call(ctx, g, "b", plays().Run)
		require.NoError(t, err)
		assert.Equal(t, toolhealth.CallInfo{Requested: "b", Served: "b", Attempts: 1}, *info)
	})
}

func TestGuard_CallInPartialHandlerWritesNoCallInfo(t *testing.T) {
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	ctx, info := toolhealth.WithCallInfo(t.Context())
	for range 2 { // the second call resets the info
		_, err := toolhealth.Call(ctx, g, "a", failing(errors.New("boom")).Run,
			toolhealth.Partial(func(ctx context.Context, _ *toolhealth.ToolError) (string, error) {
				return toolhealth.Call(ctx, g, "cache", func(context.Context, string) (string, error) { return "cached", nil })
			}))
		require.NoError(t, err)
		assert.Equal(t, toolhealth.CallInfo{Requested: "a", Attempts: 1, Partial: true, Reason: toolhealth.StopNonRetryable}, *info)
	}
}
