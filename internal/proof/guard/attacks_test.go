package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// Errors of a client. The first says that nothing was sent, the second does not.
var (
	errDial  = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
)

// safeToRetry is how pgconn says that nothing was sent.
type safeToRetry struct{ error }

func (safeToRetry) SafeToRetry() bool { return true }

// stage has the tools that an attack may use. "send" has side effects, "work" calls
// "send", and both have a substitute. "down" is isolated.
type stage struct {
	registry *toolhealth.Registry
	guard    *toolhealth.Guard
	acts     atomic.Int32
	observe  func(toolhealth.Event) // nil for none
}

func newStage(t *testing.T) *stage {
	s := &stage{registry: patient(t)}
	router, err := toolhealth.NewHealthRouter(map[string][]string{"send": {"send by post"}, "work": {"work elsewhere"}})
	require.NoError(t, err)
	s.guard = guardOverGate(t, &toolhealth.Gate{Registry: s.registry, Router: router}, func(c *toolhealth.GuardConfig) {
		c.Default.MaxAttempts = 3
		c.Tools = map[string]toolhealth.Policy{
			"send":     {MaxAttempts: 3, SideEffects: true},
			"detached": {MaxAttempts: 3, Timeout: time.Second, Detach: true},
		}
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if s.observe != nil {
				s.observe(e)
			}
		}
	})
	s.registry.Isolate("down", "")
	return s
}

// send acts and returns err.
func (s *stage) send(ctx context.Context, err error) error {
	return s.call(ctx, "send", func(context.Context) error {
		s.acts.Add(1)
		return err
	})
}

// call makes a guarded call of a tool that is called the same way as its substitutes.
func (s *stage) call(ctx context.Context, tool string, fn func(ctx context.Context) error, options ...toolhealth.CallOption[string]) error {
	_, err := toolhealth.Call(ctx, s.guard, tool, func(ctx context.Context, _ string) (string, error) { return "", fn(ctx) }, options...)
	return err
}

// down is the error of a guarded call that was refused.
func (s *stage) down(ctx context.Context) error {
	return s.call(ctx, "down", func(context.Context) error { return nil })
}

// unreachable is the error of a guarded call that did not reach its tool.
func (s *stage) unreachable(ctx context.Context) error {
	return s.call(ctx, "unreachable", func(context.Context) error { return errDial })
}

// attacks are ways to make the tool "send" act twice for one outermost call.
var attacks = map[string]func(*stage, context.Context){
	"a refusal after the act": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			return s.down(ctx)
		})
	},
	"a refusal after the act, in a call that is repeated": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			_ = toolhealth.WithoutFallback(ctx)
			_ = s.call(toolhealth.WithoutFallback(ctx), "send", func(ctx context.Context) error {
				s.acts.Add(1)
				return fmt.Errorf("audit: %w", s.down(ctx))
			})
			return errBusy
		})
	},
	"an inner call that was not sent, after the act": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			return s.unreachable(ctx)
		})
	},
	"a panic with a refusal after the act": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			panic(s.down(ctx))
		})
	},
	"a refusal of a Gate after the act": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			_, err := (&toolhealth.Gate{Registry: s.registry}).Allow(ctx, "down")
			return err
		})
	},
	"a refusal of a sibling is the cause of a cancel": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			_ = s.call(ctx, "send", func(ctx context.Context) error {
				s.acts.Add(1)
				cancel(s.down(ctx))
				return context.Cause(ctx) // as an http.Client does
			})
			return errBusy
		})
	},
	"a marked error is the cause of a cancel": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			_ = s.call(ctx, "send", func(ctx context.Context) error {
				s.acts.Add(1)
				cancel(errUnsent)
				return context.Cause(ctx)
			})
			return errBusy
		})
	},
	"a dial error and a reset": func(s *stage, ctx context.Context) {
		_ = s.send(ctx, errors.Join(errDial, errReset))
	},
	"a reset and a dial error": func(s *stage, ctx context.Context) {
		_ = s.send(ctx, fmt.Errorf("%w, then %w", errReset, errDial))
	},
	"a marked dial error and a reset": func(s *stage, ctx context.Context) {
		_ = s.send(ctx, errors.Join(errUnsent, errReset))
	},
	"a safe error and a server error": func(s *stage, ctx context.Context) {
		_ = s.send(ctx, errors.Join(safeToRetry{errBroken}, errBusy))
	},
	"an unsent error and a refusal": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			return errors.Join(s.down(ctx), errReset)
		})
	},
	"a check that cannot reach its server": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(context.Context) error { s.acts.Add(1); return nil },
			toolhealth.CheckResult(func(string) error { return errDial }))
	},
	"a goroutine that acts while the attempt is reported": func(s *stage, ctx context.Context) {
		s.observe = func(toolhealth.Event) { time.Sleep(time.Second) }
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			go func() {
				time.Sleep(time.Millisecond)
				_ = s.send(ctx, nil)
			}()
			return errBusy
		})
	},
	"a goroutine that acts during the wait": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			go func() {
				time.Sleep(time.Millisecond)
				_ = s.send(context.WithoutCancel(ctx), nil)
			}()
			return errBusy
		})
	},
	"a goroutine that acts after the next attempt": func(s *stage, ctx context.Context) {
		runs := 0
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			if runs++; runs > 1 {
				return s.send(ctx, nil)
			}
			go func() {
				time.Sleep(time.Minute)
				_ = s.send(context.WithoutCancel(ctx), nil)
			}()
			return errBusy
		})
	},
	"a detached attempt that acts later": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "detached", func(ctx context.Context) error {
			time.Sleep(10 * time.Second)
			return s.send(context.WithoutCancel(ctx), nil)
		})
	},
	"a ctx of an attempt before": func(s *stage, ctx context.Context) {
		var first context.Context
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			if first == nil {
				first = context.WithoutCancel(ctx)
				return errBusy
			}
			_ = s.send(first, nil)
			return errBusy
		})
	},
	"a hook that holds an admission until the attempt is left": func(s *stage, ctx context.Context) {
		c := toolhealth.DefaultBreakerConfig()
		c.FailureThreshold = 1
		_ = s.registry.Register("send", toolhealth.ToolOptions{Breaker: &c})
		s.registry.RecordFailure("send", 0)
		time.Sleep(30 * time.Second)
		s.registry.OnTransition(func(e toolhealth.Transition) {
			if e.Cause == toolhealth.CauseProbeAdmitted {
				s.registry.Reset("send", "") // an operator is faster than the hook
				time.Sleep(10 * time.Second)
			}
		})
		_ = s.call(ctx, "detached", func(ctx context.Context) error { return s.send(ctx, nil) })
	},
	"a conflict after a time-out": func(s *stage, ctx context.Context) {
		var runs atomic.Int64 // the first may not be over when the second begins
		_ = s.call(ctx, "detached", func(ctx context.Context) error {
			if runs.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			_ = s.send(ctx, errBusy)
			return statusErr(409)
		})
	},
	"a throttled call beside a free substitute": func(s *stage, ctx context.Context) {
		runs := 0
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			if runs++; runs == 1 {
				return throttledFor(5 * time.Second)
			}
			_ = s.send(ctx, statusErr(404))
			return throttledFor(5 * time.Second)
		})
	},
	"a Partial handler that acts and fails": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			return s.call(ctx, "lookup", func(context.Context) error { return errBroken },
				toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) {
					return "", s.send(ctx, errBusy)
				}))
		})
	},
	"a note of a request that was not sent, before one that was reset": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			toolhealth.Note(ctx, toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, NotSent: true, RetryAfter: 2 * time.Second})
			s.acts.Add(1)
			return errReset
		})
	},
	"a note of a request that was not sent, before a malformed answer": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			toolhealth.Note(ctx, unreachable)
			s.acts.Add(1)
			return toolhealth.CheckStatus(302, nil)
		})
	},
	"an outer claim that nothing was sent": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "work", func(ctx context.Context) error {
			_ = s.send(ctx, nil)
			return errUnsent
		})
	},
	"a ride that was not sent, after the act": func(s *stage, ctx context.Context) {
		_ = s.call(ctx, "send", func(ctx context.Context) error {
			s.acts.Add(1)
			return s.call(ctx, "send", func(context.Context) error { return errUnsent })
		})
	},
}

func TestGuard_SideEffectsActOnceUnderAttack(t *testing.T) {
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				attack(s, t.Context())
				time.Sleep(time.Hour)
				assert.LessOrEqual(t, s.acts.Load(), int32(1), "acts")
				for tool, h := range s.registry.All() {
					assert.Zero(t, h.InFlight, tool)
					assert.Zero(t, h.Guard.InFlight, tool)
					assert.Zero(t, h.Guard.Abandoned, tool)
				}
			})
		})
	}
}
