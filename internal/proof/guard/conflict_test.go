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

// After an attempt that may have run, a conflict is that attempt, still in progress or
// done already.
func TestGuard_ConflictAfterAttemptThatMayHaveRun(t *testing.T) {
	conflict := statusErr(409)
	conflictIn := func(wait time.Duration) error {
		return toolhealth.WithVerdict(conflict, toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindConflict, RetryAfter: wait})
	}
	for _, c := range []struct {
		name   string
		errs   []error
		change func(*toolhealth.Policy)
		runs   int
		reason toolhealth.StopReason
	}{
		{"in the first attempt", []error{conflict}, nil, 1, toolhealth.StopNonRetryable},
		{"then done", []error{errBusy, conflict}, nil, 3, toolhealth.StopNone},
		{"to the last attempt", []error{errBusy, conflict, conflict}, nil, 3, toolhealth.StopOutcomeUnknown},
		{"in the last attempt", []error{errBusy, errBusy, conflict}, nil, 3, toolhealth.StopOutcomeUnknown},
		{"after what was surely not sent", []error{errUnsent, conflict}, nil, 2, toolhealth.StopNonRetryable},
		{"after that and what may have run", []error{errBusy, errUnsent, conflict}, nil, 3, toolhealth.StopOutcomeUnknown},
		{"after a throttle", []error{throttledFor(time.Millisecond), conflict}, nil, 2, toolhealth.StopNonRetryable},
		{"another rejection", []error{errBusy, statusErr(422)}, nil, 2, toolhealth.StopNonRetryable},
		{"then a failure", []error{errBusy, conflict, errBusy}, nil, 3, toolhealth.StopRetryExhausted},
		{"without a token", []error{errBusy, conflict}, func(p *toolhealth.Policy) { p.RetryBudget = 1 }, 2, toolhealth.StopOutcomeUnknown},
		{"with a wait that does not fit", []error{errBusy, conflictIn(time.Hour)}, nil, 2, toolhealth.StopOutcomeUnknown},
		{"with a wait that fits", []error{errBusy, conflictIn(20 * time.Second)}, nil, 3, toolhealth.StopNone},
		{"with side effects", []error{errUnsent, conflict}, func(p *toolhealth.Policy) { p.SideEffects = true }, 2, toolhealth.StopNonRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guardWithBackups(t, patient(t), func(gc *toolhealth.GuardConfig) {
					gc.Default.MaxAttempts = 3
					if c.change != nil {
						c.change(&gc.Default)
					}
				}, "b")
				tool := plays(c.errs...)
				_, err := toolhealth.Call(toolhealth.WithoutFallback(t.Context()), g, "a", tool.Run)
				assert.Equal(t, c.runs, tool.Runs())
				if c.reason == toolhealth.StopNone {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, c.reason, toolError(t, err).Reason)
			})
		})
	}
}

// What may be in progress is neither handed to a substitute nor made up for.
func TestGuard_ConflictAfterAttemptThatMayHaveRunIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWithBackups(t, patient(t), nil, "b")
		tools := cast{"a": plays(errBusy, toolhealth.WithVerdict(errors.New("in progress"), toolhealth.Verdict{
			Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindConflict, RetryAfter: 5 * time.Second,
		})), "b": plays()}
		partial := false
		_, err := toolhealth.Call(t.Context(), g, "a", tools.run, toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) {
			partial = true
			return "", nil
		}))
		assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
		assert.Equal(t, 2, tools["a"].Runs())
		assert.Zero(t, tools["b"].Runs())
		assert.False(t, partial)
	})
}

// The breaker opens between: the outcome of the first attempt is still unknown.
func TestGuard_ConflictWhileBreakerIsOpenIsOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 3 })
		runs := 0
		_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
			if runs++; runs == 1 {
				return "", errBusy
			}
			r.Isolate("a", "")
			return "", statusErr(409)
		})
		assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
		assert.Equal(t, 2, runs)
	})
}
