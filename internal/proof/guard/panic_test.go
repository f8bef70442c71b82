package guard_test

import (
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_PanicValueIsReachable(t *testing.T) {
	g := guardOn(t, patient(t), nil)
	_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic(nil) })
	var none *runtime.PanicNilError
	assert.ErrorAs(t, err, &none)
	_, err = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic(io.ErrNoProgress) })
	assert.ErrorIs(t, err, io.ErrNoProgress)
	_, err = toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { return "x", nil },
		toolhealth.CheckResult(func(string) error { panic("in a check") }))
	assert.Equal(t, toolhealth.KindPanic, toolError(t, err).Verdict.Kind)
}

func TestGuard_PanicInProbeReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardOn(t, r, nil)
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second)
		_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) { panic("again") })
		require.Error(t, err)
		assert.Equal(t, toolhealth.StateOpen, healthOf(t, r, "a").State)
		time.Sleep(30 * time.Second)
		_, err = toolhealth.Call(t.Context(), g, "a", plays().Run)
		assert.NoError(t, err)
	})
}

func TestGuard_PanicEndsCallOnce(t *testing.T) {
	r := toolhealth.NewRegistry()
	ends := 0
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if e.Final {
				ends++
			}
		}
	})
	_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) { panic("x") })
	assert.Equal(t, toolhealth.KindPanic, toolError(t, err).Verdict.Kind)
	assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
	assert.Equal(t, 1, ends)
}

// With GODEBUG=panicnil=1, recover returns nil for a panic with nil.
func TestGuard_PanicWithNilIsFailure(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	r := patient(t)
	r.RecordSuccess("a", 0)
	_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) { panic(nil) })
	assert.Equal(t, toolhealth.KindPanic, toolError(t, err).Verdict.Kind)
	h := healthOf(t, r, "a")
	assert.Zero(t, h.InFlight)
	assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
	assert.Equal(t, uint64(1), h.Successes)
}
