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

// A goroutine of the tool calls it again with the ctx of an attempt that has ended: by
// an answer, by an error, or because a detached one was left.
func TestGuard_CallOutlivingAttemptIsAdmittedForItself(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) error{
		"answered": func(context.Context) error { return nil },
		"failed":   func(context.Context) error { return errBroken },
		"panicked": func(context.Context) error { panic("x") },
		"left":     func(ctx context.Context) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
					c.Default = bare(toolhealth.Policy{MaxAttempts: 3, Timeout: time.Second, Detach: name == "left"})
				})
				ctxs := make(chan context.Context, 3)
				_, _ = toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
					ctxs <- ctx
					return "", end(ctx)
				})
				ended := <-ctxs
				_, err := toolhealth.Call(ended, g, "a", plays().Run)
				assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason, "the ctx ends with its attempt")

				before := healthOf(t, r, "a")
				late := context.WithoutCancel(ended)
				tool := plays(errBusy, errBusy)
				_, err = toolhealth.Call(late, g, "a", tool.Run)
				require.NoError(t, err)
				assert.Equal(t, 3, tool.Runs(), "no call further out retries for it")
				after := healthOf(t, r, "a")
				assert.Equal(t, before.Guard.Calls+1, after.Guard.Calls)
				assert.Equal(t, before.Failures+2, after.Failures)
				assert.Equal(t, before.Successes+1, after.Successes)

				r.Isolate("a", "")
				_, err = toolhealth.Call(late, g, "a", plays().Run)
				assert.ErrorIs(t, err, toolhealth.ErrIsolated)
				time.Sleep(time.Hour) // until the attempt that was left has ended
			})
		})
	}
}

// Two registries each know a tool of the same name.
func TestGuard_CallSharesNoAdmissionOfAnotherRegistry(t *testing.T) {
	mine, other := patient(t), patient(t)
	inner, outer := guardOn(t, mine, nil), guardOn(t, other, nil)
	call := func(tool func(context.Context, string) (string, error)) error {
		_, err := toolhealth.Call(t.Context(), outer, "a", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, inner, "a", tool)
		})
		return err
	}
	require.NoError(t, call(plays().Run))
	assert.EqualValues(t, 1, healthOf(t, mine, "a").Successes)
	assert.EqualValues(t, 1, healthOf(t, other, "a").Successes)

	mine.Isolate("a", "")
	ran := plays()
	assert.ErrorIs(t, call(ran.Run), toolhealth.ErrIsolated)
	assert.Zero(t, ran.Runs())
	mine.Reset("a", "")

	require.NoError(t, call(func(ctx context.Context, _ string) (string, error) { // and back again
		return toolhealth.Call(ctx, outer, "a", plays().Run)
	}), "the outermost attempt is still running")
	assert.EqualValues(t, 2, healthOf(t, mine, "a").Successes)
	assert.EqualValues(t, 2, healthOf(t, other, "a").Successes, "the innermost call is part of the outermost")
}

// A substitute that runs further out under the same name, but in another registry, is
// another tool.
func TestGuard_SubstituteRunningInAnotherRegistryMayServe(t *testing.T) {
	other := guardOn(t, patient(t), nil)
	g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
	tool := plays(errBusy)
	_, err := toolhealth.Call(t.Context(), other, "b", func(ctx context.Context, _ string) (string, error) {
		return toolhealth.Call(ctx, g, "a", tool.Run)
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, tool.Names)
}

func TestGuard_ContextEndsWithAttempt(t *testing.T) {
	for name, policy := range map[string]toolhealth.Policy{
		"no limit": {MaxAttempts: 2}, "timeout": {MaxAttempts: 2, Timeout: time.Hour}, "detached": {MaxAttempts: 2, Detach: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default = bare(policy) })
			var first, second context.Context
			_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
				assert.NoError(t, ctx.Err(), name)
				if first == nil {
					first = ctx
					return "", errBusy
				}
				assert.ErrorIs(t, first.Err(), context.Canceled, "%s: before the next attempt", name)
				second = ctx
				return "", nil
			})
			require.NoError(t, err, name)
			assert.ErrorIs(t, second.Err(), context.Canceled, name)
			assert.NoError(t, t.Context().Err(), name)
			assert.EqualValues(t, 1, healthOf(t, r, "a").Failures, name)
		})
	}
}
