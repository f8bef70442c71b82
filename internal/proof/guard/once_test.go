package guard_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// workflows returns a guard with three attempts, the tool "pay" with side effects, and
// the substitute "b" for "a".
func workflows(t testing.TB, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	return guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) {
		c.Default.MaxAttempts = 3
		pay := c.Default
		pay.SideEffects = true
		c.Tools = map[string]toolhealth.Policy{"pay": pay}
		if change != nil {
			change(c)
		}
	}, "b")
}

// The tool with side effects lies one, two or three guarded calls further in. However it
// ended, the outer calls run it once.
func TestGuard_WhatMayHaveActedInsideIsNotRepeated(t *testing.T) {
	answers := func(err error) toolFunc {
		return func(context.Context, string) (string, error) { return "", err }
	}
	for name, pay := range map[string]toolFunc{
		"success":               answers(nil),
		"server error":          answers(errBusy),
		"unknown error":         answers(errBroken),
		"throttled":             answers(throttledFor(time.Millisecond)),
		"rejected":              answers(statusErr(422)),
		"denied by its host":    answers(toolhealth.WithVerdict(errBusy, denied)),
		"panic":                 func(context.Context, string) (string, error) { panic("after the payment") },
		"canceled further down": answers(toolhealth.WithVerdict(context.Canceled, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled})),
		"timeout of the caller": obeys(time.Hour),
	} {
		for depth := range 3 {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := workflows(t, func(c *toolhealth.GuardConfig) { c.Default.Timeout = 500 * time.Millisecond })
					var ran []string
					fn := func(ctx context.Context, tool string) (string, error) {
						return toolhealth.Call(ctx, g, "pay", func(ctx context.Context, tool string) (string, error) {
							ran = append(ran, tool)
							return pay(ctx, tool)
						})
					}
					for range depth {
						inner := fn
						fn = func(ctx context.Context, _ string) (string, error) { return toolhealth.Call(ctx, g, "between", inner) }
					}
					_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
						_, _ = fn(ctx, tool) // the outer function drops the error, and fails for a reason of its own
						return "", errUnsent
					})
					assert.Equal(t, []string{"pay"}, ran)
					e := toolError(t, err)
					assert.Equal(t, 1, e.Attempts)
					assert.Len(t, e.Candidates, 1, "a substitute was tried")
				})
			})
		}
	}
}

// A call that surely did not reach its tool is repeated by the outer call, however deep
// it lies.
func TestGuard_WhatSurelyDidNotActInsideIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := workflows(t, nil)
		payments := plays(errUnsent, errUnsent)
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, g, "between", func(ctx context.Context, _ string) (string, error) {
				return toolhealth.Call(ctx, g, "pay", payments.Run)
			})
		})
		require.NoError(t, err)
		assert.Equal(t, 3, payments.Runs())
	})
}

// One tool inside may have acted and another surely did not run: what the outer function
// returns of the two does not matter.
func TestGuard_UnsentCallInsideDoesNotOutweighOneThatMayHaveActed(t *testing.T) {
	for name, choose := range map[string]func(acted, unsent error) error{
		"both":                func(acted, unsent error) error { return errors.Join(acted, unsent) },
		"the other order":     func(acted, unsent error) error { return errors.Join(unsent, acted) },
		"only the unsent one": func(_, unsent error) error { return unsent },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := workflows(t, func(c *toolhealth.GuardConfig) { c.Tools["notify"] = c.Tools["pay"] })
			payments, notes := failing(errBusy), failing(errUnsent)
			_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
				_, acted := toolhealth.Call(ctx, g, "pay", payments.Run)
				_, unsent := toolhealth.Call(ctx, g, "notify", notes.Run)
				return "", choose(acted, unsent)
			})
			e := toolError(t, err)
			assert.Equal(t, 1, payments.Runs(), name)
			assert.Equal(t, toolhealth.StopOutcomeUnknown, e.Reason, name)
			assert.Len(t, e.Candidates, 1, name)
		})
	}
}

// One leaf of an error says that nothing was sent, and another that something may have
// arrived. The errors may come from one tool, or from two further in.
func TestGuard_OneUnsentLeafDoesNotMakeAttemptUnsent(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, post := range map[string]toolFunc{
		"joined": func(context.Context, string) (string, error) { return "", errors.Join(reset, refused) },
		"of a call and its substitute": func(ctx context.Context, _ string) (string, error) {
			inner := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
			return toolhealth.Call(ctx, inner, "a", plays(reset, refused).Run)
		},
		"of a call whose substitute is isolated": func(ctx context.Context, _ string) (string, error) {
			r := patient(t)
			r.Isolate("b", "")
			inner := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
			return toolhealth.Call(ctx, inner, "a", plays(reset).Run)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			posts := 0
			_, err := toolhealth.Call(t.Context(), workflows(t, nil), "pay", func(ctx context.Context, tool string) (string, error) {
				posts++
				return post(ctx, tool)
			})
			assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason, name)
			assert.Equal(t, 1, posts, name)
		})
	}
}

// The inner call is on a guard with a registry of its own, or none.
func TestGuard_SideEffectsReachOutwardsThroughAnotherGuard(t *testing.T) {
	for name, r := range map[string]*toolhealth.Registry{"another registry": toolhealth.NewRegistry(), "no registry": nil} {
		synctest.Test(t, func(t *testing.T) {
			outer := workflows(t, nil)
			inner := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.SideEffects = true })
			payments := plays()
			_, err := toolhealth.Call(t.Context(), outer, "a", func(ctx context.Context, _ string) (string, error) {
				ctx = toolhealth.WithoutFallback(context.WithoutCancel(ctx))
				if _, err := toolhealth.Call(ctx, inner, "pay", payments.Run); err != nil {
					return "", err
				}
				return "", errBusy
			})
			assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason, name)
			assert.Equal(t, 1, payments.Runs(), name)
		})
	}
}

// A detached attempt is left while its tool is in the middle of a payment.
func TestGuard_LeftAttemptThatIsActingIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := workflows(t, func(c *toolhealth.GuardConfig) { c.Default.Timeout, c.Default.Detach = time.Second, true })
		var payments atomic.Int64
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(ctx, g, "pay", func(context.Context, string) (string, error) {
				payments.Add(1)
				time.Sleep(time.Minute)
				return "paid", nil
			})
		})
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopOutcomeUnknown, e.Reason)
		assert.Equal(t, 1, e.Attempts)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, payments.Load())
	})
}

// The outer tool has paid when a tool that it needs afterwards is refused. The refusal
// says nothing of the payment.
func TestGuard_RefusalFurtherInDoesNotMakeOuterAttemptUnsent(t *testing.T) {
	for name, inner := range map[string]func(ctx context.Context, g *toolhealth.Guard, gate *toolhealth.Gate) error{
		"by a guard": func(ctx context.Context, g *toolhealth.Guard, _ *toolhealth.Gate) error {
			_, err := toolhealth.Call(ctx, g, "log", plays().Run)
			return err
		},
		"by a gate": func(ctx context.Context, _ *toolhealth.Guard, gate *toolhealth.Gate) error {
			_, err := gate.Allow(ctx, "log")
			return err
		},
	} {
		r := toolhealth.NewRegistry()
		r.Isolate("log", "")
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) {
			c.Tools = map[string]toolhealth.Policy{"a": bare(toolhealth.Policy{SideEffects: true})}
		}, "b")
		var paid []string
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
			paid = append(paid, tool)
			return "", inner(ctx, g, &toolhealth.Gate{Registry: r})
		})
		assert.ErrorIs(t, err, toolhealth.ErrIsolated, name)
		assert.Equal(t, []string{"a"}, paid, name)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Neutral, name)
	}
}

// What serves for a tool with side effects has them too, whatever its own policy says:
// after the first of a chain that may have acted, none follows.
func TestGuard_ChainOfSubstitutesActsOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		errs   []error // of a, then of what comes after it
		ran    []string
		reason toolhealth.StopReason // StopNone after a success
	}{
		{"the first may have acted", []error{errBusy}, []string{"a"}, toolhealth.StopOutcomeUnknown},
		{"the second may have acted", []error{errUnsent, errBusy}, []string{"a", "b"}, toolhealth.StopOutcomeUnknown},
		{"the third may have acted", []error{errUnsent, errUnsent, errBroken}, []string{"a", "b", "c"}, toolhealth.StopOutcomeUnknown},
		{"the second was throttled", []error{errUnsent, throttledFor(time.Millisecond)}, []string{"a", "b"}, toolhealth.StopRetryExhausted},
		{"the second was rejected", []error{errUnsent, statusErr(422)}, []string{"a", "b"}, toolhealth.StopRetryExhausted},
		{"none has acted", []error{errUnsent, errUnsent, errUnsent}, []string{"a", "b", "c"}, toolhealth.StopRetryExhausted},
		{"the third acts", []error{errUnsent, errUnsent}, []string{"a", "b", "c"}, toolhealth.StopNone},
	} {
		g := guardWithBackups(t, patient(t), func(gc *toolhealth.GuardConfig) {
			gc.Default.MaxAttempts = 1
			gc.Tools = map[string]toolhealth.Policy{"a": bare(toolhealth.Policy{MaxAttempts: 1, SideEffects: true})}
		}, "b", "c")
		tool := plays(c.errs...)
		partial := false
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run, toolhealth.Partial(func(_ context.Context, e *toolhealth.ToolError) (string, error) {
			partial = true
			return "", e
		}))
		assert.Equal(t, c.ran, tool.Names, c.name)
		if c.reason == toolhealth.StopNone {
			assert.NoError(t, err, c.name)
			continue
		}
		assert.Equal(t, c.reason, toolError(t, err).Reason, c.name)
		assert.Equal(t, c.name == "none has acted", partial, "%s: a Partial handler is asked only if no tool may have acted", c.name)
	}
}

// A substitute without side effects of its own serves for a tool that has them, inside
// another call.
func TestGuard_SubstituteOfToolWithSideEffectsReachesOutwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		router, err := toolhealth.NewHealthRouter(map[string][]string{"sms": {"push"}})
		require.NoError(t, err)
		g := guardOverGate(t, &toolhealth.Gate{Registry: r, Router: router}, func(c *toolhealth.GuardConfig) {
			c.Default.MaxAttempts = 3
			c.Tools = map[string]toolhealth.Policy{"sms": bare(toolhealth.Policy{SideEffects: true})}
		})
		r.Isolate("sms", "")
		sent := plays()
		_, err = toolhealth.Call(t.Context(), g, "workflow", func(ctx context.Context, _ string) (string, error) {
			if _, err := toolhealth.Call(ctx, g, "sms", sent.Run); err != nil {
				return "", err
			}
			return "", errBusy
		})
		assert.Equal(t, []string{"push"}, sent.Names)
		assert.Equal(t, toolhealth.StopOutcomeUnknown, toolError(t, err).Reason)
	})
}
