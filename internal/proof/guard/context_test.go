package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// hostileContext is a context of a user one of whose methods panics, after it has been
// asked a number of times.
type hostileContext struct {
	context.Context
	method string
	left   *atomic.Int64
}

func (c hostileContext) asked(method string) {
	if method == c.method && c.left.Add(-1) < 0 {
		panic(method + " panics")
	}
}

func (c hostileContext) Deadline() (time.Time, bool) {
	c.asked("Deadline")
	return c.Context.Deadline()
}
func (c hostileContext) Done() <-chan struct{} { c.asked("Done"); return c.Context.Done() }
func (c hostileContext) Err() error            { c.asked("Err"); return c.Context.Err() }
func (c hostileContext) Value(key any) any     { c.asked("Value"); return c.Context.Value(key) }

// However often each method has worked before it panics, the call leaves no permit, no
// running call and no token behind.
func TestGuard_PanickingContextLosesNoPermit(t *testing.T) {
	for _, policy := range []toolhealth.Policy{
		{MaxAttempts: 3, RetryBudget: 10, BackoffBase: time.Second, MaxWait: time.Minute},
		{MaxAttempts: 3, RetryBudget: 10, BackoffBase: time.Second, MaxWait: time.Minute, Timeout: time.Minute},
		{MaxAttempts: 3, RetryBudget: 10, BackoffBase: time.Second, MaxWait: time.Minute, Timeout: time.Minute, Detach: true},
	} {
		for _, method := range []string{"Deadline", "Done", "Err", "Value"} {
			panics := 0
			for works := range 30 {
				synctest.Test(t, func(t *testing.T) {
					r := patient(t)
					g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default = bare(policy) }, "b")
					ctx := hostileContext{t.Context(), method, new(atomic.Int64)}
					ctx.left.Store(int64(works))
					retries := 0
					func() {
						defer func() {
							if recover() != nil {
								panics++
							}
						}()
						_, _ = toolhealth.Call(ctx, g, "a", func(context.Context, string) (string, error) {
							retries++
							return "", errBusy
						})
					}()
					for _, tool := range []string{"a", "b"} {
						h, ok := r.Health(tool)
						if !ok {
							continue
						}
						assert.Zero(t, h.InFlight, "%s: %s after %d times", tool, method, works)
						assert.Zero(t, h.Guard.InFlight, "%s: %s after %d times", tool, method, works)
						assert.Zero(t, h.Guard.Abandoned, "%s: %s after %d times", tool, method, works)
					}
					if h, ok := r.Health("a"); ok {
						assert.Equal(t, 10-int(h.Guard.Retries), retriesLeft(t, g, "a"), "%s after %d times", method, works)
					}
				})
			}
			assert.NotZero(t, panics, "%s was never asked", method)
			assert.Less(t, panics, 30, "%s always panicked", method)
		}
	}
}

// The probe is free again, whichever method panics.
func TestGuard_PanickingContextFreesProbe(t *testing.T) {
	for _, method := range []string{"Done"} {
		synctest.Test(t, func(t *testing.T) {
			r := toolhealth.NewRegistry()
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.Timeout = time.Minute })
			failTimes(r, "a", 3)
			time.Sleep(30 * time.Second)
			ctx := hostileContext{t.Context(), method, new(atomic.Int64)}
			assert.Panics(t, func() { _, _ = toolhealth.Call(ctx, g, "a", plays().Run) }, method)
			assert.True(t, healthOf(t, r, "a").ProbeDue, method)
			_, err := toolhealth.Call(t.Context(), g, "a", plays().Run)
			assert.NoError(t, err, method)
		})
	}
}

func TestGate_PanickingContextLosesNoPermit(t *testing.T) {
	for _, method := range []string{"Deadline", "Done", "Err", "Value"} {
		for works := range 5 {
			r := toolhealth.NewRegistry()
			failTimes(r, "a", 1) // not what the fast path admits
			gate := &toolhealth.Gate{Registry: r}
			ctx := hostileContext{t.Context(), method, new(atomic.Int64)}
			ctx.left.Store(int64(works))
			func() {
				defer func() { _ = recover() }()
				permit, err := gate.Allow(ctx, "a")
				if err == nil {
					permit.Done(ctx, errBusy)
				}
			}()
			assert.Zero(t, healthOf(t, r, "a").InFlight, "%s after %d times", method, works)
		}
	}
}

// earlyContext is a context whose Done is closed before its Err says so.
type earlyContext struct {
	context.Context
	done chan struct{}
}

func (c earlyContext) Done() <-chan struct{} { return c.done }

func TestGuard_ContextDoneBeforeItsErrIsNoSuccess(t *testing.T) {
	for name, policy := range map[string]toolhealth.Policy{
		"plain": {}, "detached": {Detach: true}, "timeout": {Timeout: time.Hour}, "both": {Timeout: time.Hour, Detach: true},
	} {
		for _, when := range []string{"before", "during"} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := patient(t)
					g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default = bare(policy) })
					ctx := earlyContext{t.Context(), make(chan struct{})}
					if when == "before" {
						close(ctx.done)
					} else {
						time.AfterFunc(time.Second, func() { close(ctx.done) })
					}
					out, err := toolhealth.Call(ctx, g, "a", obeys(time.Minute))
					require.Error(t, err)
					assert.Empty(t, out)
					assert.Zero(t, healthOf(t, r, "a").Successes)
					assert.Zero(t, healthOf(t, r, "a").InFlight)
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// A call further in, of a tool with side effects, sees that its ctx is not done. Before it
// runs, the attempt that it lies in ends, and is repeated.
func TestGuard_CallOvertakenByEndOfOuterAttemptDoesNotAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := workflows(t, func(c *toolhealth.GuardConfig) { c.Default.Timeout, c.Default.Detach = time.Second, true })
		payments := plays()
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			return toolhealth.Call(&slowContext{Context: ctx}, g, "pay", payments.Run)
		})
		time.Sleep(time.Hour)
		assert.Equal(t, 4, toolError(t, err).Attempts, "three, and one of the substitute")
		assert.Zero(t, payments.Runs())
	})
}

// slowContext is a context whose Err takes a minute the first time that it is asked, and
// then says what it saw before that.
type slowContext struct {
	context.Context
	asked atomic.Bool
}

func (c *slowContext) Err() error {
	err := c.Context.Err()
	if !c.asked.Swap(true) {
		time.Sleep(time.Minute)
	}
	return err
}

// A goroutine of an attempt that has ended starts to pay while the attempt is judged.
func TestGuard_NoRunBeginsWhileItsOuterAttemptIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judging, judged := make(chan struct{}), make(chan struct{})
		payments, judgments := plays(), 0
		r := patient(t)
		g := guardOverGate(t, &toolhealth.Gate{Registry: r, Classify: func(ctx context.Context, err error) toolhealth.Verdict {
			if judgments++; judgments == 1 {
				close(judging)
				<-judged
			}
			return toolhealth.Classify(ctx, err)
		}}, func(c *toolhealth.GuardConfig) {
			c.Tools = map[string]toolhealth.Policy{"pay": bare(toolhealth.Policy{SideEffects: true})}
		})
		runs := 0
		_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			if runs++; runs > 1 {
				return "", nil
			}
			go func() {
				<-judging
				_, _ = toolhealth.Call(ctx, g, "pay", payments.Run)
				close(judged)
			}()
			return "", errBusy
		})
		require.NoError(t, err)
		assert.Equal(t, 2, runs)
		assert.Zero(t, payments.Runs(), "it ran unseen, and the attempt was repeated")
	})
}
