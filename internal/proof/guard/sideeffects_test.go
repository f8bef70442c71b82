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

func TestGuard_SideEffectsRepeatOnlyWhatNeverRan(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name    string
		err     error
		runs    int
		backup  bool // a substitute may step in
		reason  toolhealth.StopReason
		failure uint64
	}{
		{"connection refused", errUnsent, 2, true, toolhealth.StopRetryExhausted, 2},
		{"server error", errBusy, 1, false, toolhealth.StopOutcomeUnknown, 1},
		{"unknown error", errors.New("?"), 1, false, toolhealth.StopOutcomeUnknown, 1},
		{"throttled", throttledFor(ms), 1, false, toolhealth.StopRateLimited, 0},
		{"throttled, never sent", toolhealth.WithVerdict(errBusy, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Retryable: true, NotSent: true, RetryAfter: ms}), 2, true, toolhealth.StopRetryExhausted, 0},
		{"rejected", statusErr(422), 1, false, toolhealth.StopNonRetryable, 0},
		{"a collision that could be repeated", toolhealth.WithVerdict(errBusy, collided), 1, false, toolhealth.StopNonRetryable, 0},
		{"a host without descriptors", toolhealth.WithVerdict(errBusy, hostExhausted), 1, false, toolhealth.StopNonRetryable, 0},
		{"denied", toolhealth.WithVerdict(errBusy, denied), 1, false, toolhealth.StopNonRetryable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardWithBackups(t, r, func(gc *toolhealth.GuardConfig) { gc.Default.SideEffects = true }, "b")
				a, b := failing(c.err), plays()
				_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
					if tool == "b" {
						return b.Run(ctx, tool)
					}
					return a.Run(ctx, tool)
				})
				assert.Equal(t, c.runs, a.Runs())
				assert.Equal(t, c.backup, b.Runs() == 1)
				assert.Equal(t, c.failure, healthOf(t, r, "a").Failures)
				if c.backup {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, c.reason, toolError(t, err).Reason)
				assert.ErrorIs(t, err, c.err)
			})
		})
	}
}

func TestGuard_SubstituteThatMayHaveActedEndsCall(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) {
		c.Tools = map[string]toolhealth.Policy{"b": bare(toolhealth.Policy{SideEffects: true})}
	}, "b", "c")
	r.RecordSuccess("a", 0)
	r.Isolate("a", "")
	tool := failing(errBusy)
	_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
	e := toolError(t, err)
	assert.Equal(t, []string{"b"}, tool.Names)
	assert.Equal(t, toolhealth.StopOutcomeUnknown, e.Reason, "an unknown outcome outweighs the isolation of a")
	assert.Equal(t, toolhealth.KindServerError, e.Verdict.Kind)
	assert.Equal(t, "b", e.Candidates[1].Tool)
}

// An outer call that saw only the 503 would run its tool again and send the mail
// twice.
func TestGuard_OuterCallDoesNotRepeatInnerUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) {
			c.Default.MaxAttempts = 3
			c.Tools = map[string]toolhealth.Policy{"send_mail": bare(toolhealth.Policy{SideEffects: true})}
		}, "b")
		mails := failing(errBusy)
		workflow := func(ctx context.Context, _ string) (string, error) {
			out, err := toolhealth.Call(ctx, g, "send_mail", mails.Run)
			if err != nil {
				return "", errors.Join(errors.New("the second step failed"), err)
			}
			return out, nil
		}
		_, err := toolhealth.Call(t.Context(), g, "a", workflow)
		assert.Equal(t, 1, mails.Runs())
		assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
		_, tried := r.Health("b")
		assert.False(t, tried)

		mails = plays(errUnsent, errUnsent)
		_, err = toolhealth.Call(t.Context(), g, "a", workflow)
		require.NoError(t, err, "a request that was not sent can be repeated")
		assert.Equal(t, 3, mails.Runs())
	})
}

// The tool function has lost its ctx on the way to the inner call.
func TestGuard_OuterCallHeedsInnerUnknownOutcomeWithoutItsContext(t *testing.T) {
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.Tools = map[string]toolhealth.Policy{"send_mail": bare(toolhealth.Policy{SideEffects: true})}
	})
	mails := failing(errBusy)
	_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
		return toolhealth.Call(context.Background(), g, "send_mail", mails.Run)
	})
	assert.Equal(t, 1, mails.Runs())
	assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
}

// The attempt has failed, so the call is about to repeat it, and a goroutine that it has
// left must not act a second time.
func TestGuard_CallInAttemptThatWasGivenUpIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Tools = map[string]toolhealth.Policy{"send_mail": bare(toolhealth.Policy{SideEffects: true})}
		})
		mails, late := plays(), make(chan error, 1)
		outer := plays(errBusy)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			if outer.Runs() == 0 {
				go func() {
					time.Sleep(time.Second)
					_, err := toolhealth.Call(context.WithoutCancel(ctx), g, "send_mail", mails.Run)
					late <- err
				}()
			}
			return outer.Run(ctx, tool)
		})
		require.NoError(t, err)
		e := toolError(t, <-late)
		assert.Zero(t, mails.Runs())
		assert.Equal(t, toolhealth.StopCanceled, e.Reason)
		assert.Equal(t, toolhealth.KindCanceled, e.Verdict.Kind)
		assert.EqualError(t, e.Cause(), "the attempt around this call was given up")
	})
}
