package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGuard_WaitsGrowUpToLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *GuardConfig) {
			c.Default.MaxAttempts, c.Default.RetryBudget, c.Default.BackoffMax = 8, Off, 2*time.Second
		})
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.Run)
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2000 * ms, 2000 * ms}, tool.Gaps())
		e := toolError(t, err)
		assert.Equal(t, StopRetryExhausted, e.Reason)
		assert.Equal(t, KindServerError, e.Verdict.Kind)
		assert.Equal(t, 8, e.Attempts)
		assert.ErrorIs(t, err, errBusy)
	})
}

func TestGuard_CancellationEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) {
			c.Default.MaxAttempts, c.Default.BackoffBase, c.Default.BackoffMax, c.Default.MaxWait = 5, 30*time.Second, Off, Off
		})
		ctx, cancel := context.WithCancel(t.Context())
		ctx, info := WithCallInfo(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		tool, start := failing(errBusy), time.Now()
		_, err := Call(ctx, g, "a", tool.Run)
		assert.Less(t, time.Since(start), 51*time.Millisecond)
		assert.Equal(t, 1, tool.Runs())
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errBusy)
		e := toolError(t, err)
		assert.Equal(t, StopCanceled, e.Reason)
		assert.Equal(t, KindCanceled, e.Verdict.Kind)
		assert.Equal(t, context.Canceled, e.Canceled)
		assert.Equal(t, []time.Duration{30 * time.Second}, info.Waits)
		h := healthOf(t, r, "a")
		assert.Equal(t, uint64(1), h.Failures, "the canceled wait is not a second failure")
		assert.Equal(t, GuardCounts{Calls: 1, Canceled: 1, Attempts: 1}, h.Guard)
	})
}

func TestGuard_BreakerEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 10 })
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.Run)
		e := toolError(t, err)
		assert.Equal(t, 3, tool.Runs())
		assert.Equal(t, StopCircuitOpen, e.Reason)
		assert.Equal(t, 30*time.Second, e.RetryAfter)
		assert.ErrorIs(t, err, ErrCircuitOpen)
		assert.ErrorIs(t, err, ErrRefused)
		assert.ErrorIs(t, err, errBusy)
		assert.Equal(t, uint64(3), healthOf(t, r, "a").Failures)
	})
}

func TestGuard_NilAndZeroMakeCallOnce(t *testing.T) {
	for name, g := range map[string]*Guard{"nil": nil, "zero": {}} {
		tool := plays()
		out, err := Call(t.Context(), g, "a", tool.Run)
		require.NoError(t, err, name)
		assert.Equal(t, "answer of a", out)
		tool = failing(errBusy)
		_, err = Wrap(g, "a", func(ctx context.Context, in string) (string, error) { return tool.Run(ctx, in) }).Call(t.Context(), "x")
		assert.Equal(t, StopRetryExhausted, toolError(t, err).Reason, name)
		assert.Equal(t, 1, tool.Runs(), name)
	}
	g, err := NewGuard(nil, GuardConfig{Default: Policy{MaxAttempts: 3}})
	require.NoError(t, err)
	_, err = Call(t.Context(), g, "a", failing(errBusy).Run)
	assert.Equal(t, 3, toolError(t, err).Attempts, "a nil Gate works as a zero Gate, and the policies apply")

	_, err = Call(noContext, g, "a", plays().Run)
	assert.NoError(t, err)
}

func TestGuard_EmptyAnswerIsContractFailure(t *testing.T) {
	r := NewRegistry()
	failTimes(r, "a", 2)
	_, err := Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (string, error) { return "", nil },
		CheckContract(func(s string) error {
			if s == "" {
				return errors.New("empty")
			}
			return nil
		}))
	e := toolError(t, err)
	assert.Equal(t, StopContractViolation, e.Reason)
	assert.Equal(t, KindContract, e.Verdict.Kind)
	assert.Equal(t, "tool failed: the answer was not in the agreed format", err.Error())
	assert.Equal(t, StateOpen, healthOf(t, r, "a").State)
	assert.Equal(t, KindContract, healthOf(t, r, "a").LastFailure)
}

func TestGuardConfig_ZeroIsDefault(t *testing.T) {
	assert.NoError(t, GuardConfig{}.Validate())
	assert.Equal(t, policy{Policy: Policy{
		MaxAttempts: 2, Timeout: 2 * time.Minute, BackoffBase: 100 * time.Millisecond, BackoffMax: 5 * time.Second,
		BackoffFactor: 2, Jitter: 1, MaxWait: 30 * time.Second, RetryBudget: 10, RetryRefill: 10 * time.Second,
	}, usualTimeout: true}, *newPolicy(Policy{}))
	assert.Equal(t, policy{}, *newPolicy(bare(Policy{})))
	assert.Equal(t, time.Second, DefaultDeadlineFloor)
	extreme := Policy{MaxAttempts: math.MaxInt, BackoffFactor: 1000, Jitter: 1, RetryBudget: math.MaxInt}
	assert.NoError(t, GuardConfig{Default: extreme}.Validate())
}

func TestGuard_SubstitutesRunOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 2 }, "b", "c", "d")
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.Run)
		assert.Equal(t, []string{"a", "a", "b", "c", "d"}, tool.Names, "a substitute runs once")
		e := toolError(t, err)
		assert.Equal(t, 5, e.Attempts)
		var reasons []StopReason
		for _, c := range e.Candidates {
			reasons = append(reasons, c.Reason)
			assert.ErrorIs(t, c.Err, errBusy)
		}
		assert.Equal(t, []StopReason{StopRetryExhausted, StopRetryExhausted, StopRetryExhausted, StopRetryExhausted}, reasons)
		assert.Equal(t, uint64(2), healthOf(t, r, "a").Failures)
		for _, name := range []string{"b", "c", "d"} {
			h := healthOf(t, r, name)
			assert.Equal(t, uint64(1), h.Failures)
			assert.Equal(t, GuardCounts{Attempts: 1}, h.Guard, "no caller asked for %s", name)
		}
	})
}

func TestGuard_PartialIsLastResort(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
	var told *ToolError
	partial := func(out string, err error) CallOption[string] {
		return Partial(func(_ context.Context, e *ToolError) (string, error) { told = e; return out, err })
	}
	ctx, info := WithCallInfo(t.Context())
	out, err := Call(ctx, g, "a", failing(errBusy).Run, partial("from the cache", nil))
	require.NoError(t, err)
	assert.Equal(t, "from the cache", out)
	assert.Len(t, told.Candidates, 2, "the handler runs after the substitutes")
	assert.Equal(t, CallInfo{Requested: "a", Attempts: 2, Partial: true, Reason: StopRetryExhausted}, *info)

	_, err = Call(t.Context(), g, "a", failing(errBusy).Run, partial("", errors.New("empty cache")))
	assert.ErrorIs(t, err, errBusy)
	assert.NotContains(t, err.Error(), "cache")
	_, err = Call(t.Context(), g, "a", failing(errBusy).Run,
		Partial(func(context.Context, *ToolError) (string, error) { panic("in the handler") }))
	assert.ErrorIs(t, err, errBusy, "a panic in the handler does not reach the caller")

	told = nil
	_, err = Call(t.Context(), g, "a", plays().Run, partial("", nil))
	assert.NoError(t, err)
	assert.Nil(t, told)
}

func TestGuard_CallInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 3 }, "b")
		ctx, info := WithCallInfo(t.Context())
		_, err := Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
			_, _ = Call(ctx, g, "inner", plays(errBusy).Run) // an inner call does not write to info
			if tool == "a" {
				return "", errBusy
			}
			return "x", nil
		})
		require.NoError(t, err)
		assert.Equal(t, CallInfo{
			Requested: "a", Served: "b", Attempts: 4,
			Waits:   []time.Duration{100 * time.Millisecond, 200 * time.Millisecond},
			Skipped: []Candidate{{Tool: "a", Reason: StopRetryExhausted, Verdict: Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true}, Err: errBusy}},
		}, *info)

		ctx, info = WithCallInfo(WithoutFallback(t.Context()))
		_, err = Call(ctx, g, "a", failing(statusErr(404)).Run)
		require.Error(t, err)
		assert.Equal(t, CallInfo{Requested: "a", Attempts: 1, Reason: StopNonRetryable}, *info)

		var own *CallInfo
		_, err = Call(t.Context(), g, "outer", func(ctx context.Context, _ string) (string, error) {
			ctx, own = WithCallInfo(ctx)
			return Call(ctx, g, "inner", failing(errBusy).Run)
		})
		require.Error(t, err)
		assert.Equal(t, "inner", own.Requested)
		assert.Equal(t, 1, own.Attempts, "an inner call with a CallInfo is still an inner call")
	})
}

func TestGuard_EveryKindAndReasonHasItsText(t *testing.T) {
	seen := make(map[string]Kind)
	for k := KindTimeout; k < KindUnknown; k++ {
		text := (&ToolError{Reason: StopNonRetryable, Verdict: Verdict{Kind: k}, Attempts: 1}).Error()
		assert.NotContains(t, text, "unknown error", k.String())
		assert.NotContains(t, seen, text, k.String())
		seen[text] = k
	}
	for _, k := range []Kind{KindUnknown + 1, 200} {
		assert.Equal(t, "tool failed: unknown error", (&ToolError{Verdict: Verdict{Kind: k}}).Error(), "no kind has the number %d", k)
	}
	sentinels := map[StopReason]error{
		StopCircuitOpen: ErrCircuitOpen, StopProbeInFlight: ErrProbeInFlight, StopRateLimited: ErrRateLimited,
		StopIsolated: ErrIsolated, StopBusy: ErrBusy, StopUnknownTool: ErrUnknownTool,
	}
	for r := StopCircuitOpen; r < StopUnknownTool; r++ {
		retry := "; retry after 5s"
		if r == StopIsolated {
			retry = "" // the end of an isolation is unknown
		}
		assert.Equal(t, sentinels[r].Error()+retry, (&ToolError{Reason: r, Attempts: 2, RetryAfter: 5 * time.Second}).Error())
	}
	for r := StopCircuitOpen; r <= RetryAllowed; r++ {
		e := &ToolError{Reason: r}
		assert.NotEmpty(t, e.Error())
		assert.Equal(t, r <= StopUnknownTool, errors.Is(e, ErrRefused), r.String())
		for other, sentinel := range sentinels {
			assert.Equal(t, r == other, errors.Is(e, sentinel), "%s is %s", r, other)
		}
	}
}

func TestGuardNext_SpendsBudget(t *testing.T) {
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts, c.Default.RetryBudget = 9, 2 })
	next := func(status int) StopReason { return g.Next("a", 1, ClassifyHTTP(status, nil)).Reason }
	assert.Equal(t, RetryAllowed, next(503))
	assert.Equal(t, RetryAllowed, next(503))
	assert.Equal(t, StopRetryBudgetExhausted, next(503))
	for range 9 {
		next(200)
	}
	assert.Equal(t, StopRetryBudgetExhausted, next(503), "nine tenths are no token")
	next(200)
	assert.Equal(t, RetryAllowed, next(503))
}

// A loop over Next makes as many runs as a guarded call.
func TestGuardNext_LoopEndsAsCallDoes(t *testing.T) {
	for failures := range 6 {
		for maxAttempts := range 5 {
			t.Run(fmt.Sprintf("%d failures, %d attempts", failures, maxAttempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					configure := func(c *GuardConfig) { c.Default.MaxAttempts = maxAttempts }
					tool := plays(make([]error, failures)...)
					for i := range tool.Errs {
						tool.Errs[i] = errBusy
					}
					_, err := Call(t.Context(), guardOn(t, NewRegistry(), configure), "a", tool.Run)
					want := StopNone
					if err != nil {
						want = toolError(t, err).Reason
					}

					r := NewRegistry()
					g, runs, reason := guardOn(t, r, configure), 0, RetryAllowed
					for reason == RetryAllowed && r.AllowRequest("a") {
						runs++
						v := Verdict{}
						if runs <= failures {
							v = ClassifyHTTP(503, nil)
						}
						d := g.Next("a", runs, v)
						reason = d.Reason
						time.Sleep(d.Wait)
					}
					assert.Equal(t, tool.Runs(), runs)
					assert.Equal(t, want, reason)
				})
			})
		}
	}
}

func TestGuard_CanceledWaitIsObservedAsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Observe = func(_ context.Context, e Event) { events = append(events, e) } })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := Call(ctx, g, "a", failing(errBusy).Run)
		require.Error(t, err)
		assert.Equal(t, Event{
			Tool: "a", Served: "a", Final: true, Attempt: 1, Reason: StopCanceled, Took: time.Millisecond,
			Verdict: Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}, Err: err,
		}, events[len(events)-1])
	})
}

func TestGuard_TimeoutWithSideEffectsIsOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		partial := false
		g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.SideEffects, c.Default.Timeout = true, time.Second }, "b")
		_, err := Call(t.Context(), g, "a", untilDone,
			Partial(func(context.Context, *ToolError) (string, error) { partial = true; return "", nil }))
		e := toolError(t, err)
		assert.Equal(t, StopOutcomeUnknown, e.Reason)
		assert.Equal(t, "tool outcome unknown: the action may have been carried out, check before repeating it", err.Error())
		assert.Equal(t, 1, e.Attempts)
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Failures, "the timeout still counts")
		_, tried := r.Health("b")
		assert.False(t, tried)
		assert.False(t, partial, "a partial answer would hide the outcome")
	})
}

// Three nested calls allow three attempts each. The innermost tool runs three times,
// as the outermost policy says, and not 9 or 27 times.
func TestGuard_OnlyOutermostCallRetries(t *testing.T) {
	for depth, names := range map[int][]string{1: {"a"}, 2: {"a", "b"}, 3: {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 3 })
			innermost := failing(errBusy)
			var nest func(i int) func(context.Context, string) (string, error)
			nest = func(i int) func(context.Context, string) (string, error) {
				if i == len(names) {
					return innermost.Run
				}
				return func(ctx context.Context, _ string) (string, error) { return Call(ctx, g, names[i], nest(i+1)) }
			}
			_, err := Call(t.Context(), g, names[0], nest(1))
			assert.Equal(t, 3, innermost.Runs(), "%d deep", depth)
			assert.ErrorIs(t, err, errBusy)
			e := toolError(t, err)
			assert.Equal(t, 3, e.Attempts)
			assert.Equal(t, StopRetryExhausted, e.Reason)
			for i, name := range names {
				want := GuardCounts{Calls: 1, Failed: 1, Attempts: 3, Retries: 2}
				if i > 0 { // an inner call counts as a call and does not retry
					want = GuardCounts{Calls: 3, Failed: 3, Attempts: 3}
				}
				assert.Equal(t, want, healthOf(t, r, name).Guard, name)
				assert.Equal(t, uint64(3), healthOf(t, r, name).Failures, name)
			}
		})
	}
}

func TestGuard_NestedCallOfSameToolSharesAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		var events []Event
		g := guardOn(t, r, func(c *GuardConfig) { c.Observe = func(_ context.Context, e Event) { events = append(events, e) } })
		failTimes(r, "a", 3)
		time.Sleep(30 * time.Second) // one probe is due
		var inner error
		out, err := Call(t.Context(), g, "a", func(ctx context.Context, _ string) (string, error) {
			_, inner = Call(ctx, g, "a", failing(errBusy).Run)
			return Call(ctx, g, "between", func(ctx context.Context, _ string) (string, error) {
				return Call(ctx, g, "a", plays().Run) // from two calls further in
			})
		})
		require.NoError(t, err)
		assert.Equal(t, "answer of a", out)
		e := toolError(t, inner)
		assert.Equal(t, StopRetryExhausted, e.Reason, "a call that shares an admission is not retried")
		assert.Equal(t, 1, e.Attempts)
		h := healthOf(t, r, "a")
		assert.Equal(t, StateClosed, h.State)
		assert.Equal(t, uint64(1), h.Successes)
		assert.Equal(t, uint64(3), h.Failures, "the failures that opened the breaker")
		assert.Equal(t, GuardCounts{Calls: 1, Attempts: 1}, h.Guard)
		var told []string
		for _, e := range events {
			told = append(told, e.Tool)
		}
		assert.Equal(t, []string{"between", "between", "a", "a"}, told, "a call that shares an admission is not observed")
	})
}

// asked is a context that counts the lookups of this module.
type asked struct {
	context.Context
	times int
}

func (c *asked) Value(key any) any {
	if strings.HasPrefix(reflect.TypeOf(key).PkgPath(), reflect.TypeFor[Guard]().PkgPath()) {
		c.times++
	}
	return c.Context.Value(key)
}

func TestGuard_NestedCallLooksUpItsContextTwiceAtMost(t *testing.T) {
	g := guardOn(t, NewRegistry(), nil)
	outermost := &asked{Context: t.Context()}
	var nest func(ctx context.Context, depth int)
	nest = func(ctx context.Context, depth int) {
		before := outermost.times
		_, err := Call(ctx, g, strconv.Itoa(depth), func(ctx context.Context, _ string) (int, error) {
			assert.LessOrEqual(t, outermost.times-before, 2, "depth %d", depth)
			if depth < 20 {
				nest(ctx, depth+1)
			}
			return 0, nil
		})
		assert.NoError(t, err)
	}
	nest(outermost, 0)
	assert.Positive(t, outermost.times)
}

// untilDone is a tool function that returns when its ctx is done.
func untilDone(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestGuard_AttemptTimeoutIsFailure(t *testing.T) {
	for _, detach := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRegistry()
			g := guardOn(t, r, func(c *GuardConfig) { c.Default = bare(Policy{Timeout: time.Second, Detach: detach}) })
			for range 3 {
				start := time.Now()
				_, err := Call(t.Context(), g, "a", untilDone)
				e := toolError(t, err)
				assert.Equal(t, time.Second, time.Since(start))
				assert.Equal(t, KindTimeout, e.Verdict.Kind)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NoError(t, e.Canceled, "the caller has not given up")
				synctest.Wait()
			}
			h := healthOf(t, r, "a")
			assert.Equal(t, StateOpen, h.State)
			assert.Equal(t, map[Kind]uint64{KindTimeout: 3}, h.ByKind)
			assert.Zero(t, h.Guard.Abandoned)
		})
	}
}

func TestGuard_PanicIsFailure(t *testing.T) {
	for _, detach := range []bool{false, true} {
		r := NewRegistry()
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.Detach = detach; c.Default.MaxAttempts = 5 })
		for range 3 {
			_, err := Call(t.Context(), g, "a", func(context.Context, string) (string, error) { explode(); return "", nil })
			e := toolError(t, err)
			assert.Equal(t, StopNonRetryable, e.Reason)
			assert.Equal(t, KindPanic, e.Verdict.Kind)
			assert.Equal(t, 1, e.Attempts)
			assert.Equal(t, "tool failed: the tool crashed", err.Error())
			var p *PanicError
			require.ErrorAs(t, err, &p)
			assert.Equal(t, "a secret", p.Value)
			assert.Contains(t, string(p.Stack), "explode", "the stack of the panic")
			assert.Contains(t, p.Error(), "a secret")
			assert.NoError(t, p.Unwrap())
		}
		h := healthOf(t, r, "a")
		assert.Equal(t, map[Kind]uint64{KindPanic: 3}, h.ByKind)
		assert.Equal(t, StateOpen, h.State)
		assert.Zero(t, h.InFlight)
	}
}

//go:noinline
func explode() { panic("a secret") }

func TestGuard_GoexitSettlesPermit(t *testing.T) {
	retry := func(context.Context, error) Verdict { return Verdict{Outcome: OutcomeFailure, Retryable: true} }
	for name, classify := range map[string]Classifier{"default": nil, "one that would retry": retry} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry()
				var last Event
				g := guardOverGate(t, &Gate{Registry: r, Classify: classify}, func(c *GuardConfig) {
					c.Observe = func(_ context.Context, e Event) { last = e }
				})
				failTimes(r, "a", 3)
				time.Sleep(30 * time.Second)
				wentOn := make(chan bool, 1)
				go func() {
					defer func() { wentOn <- recover() == nil }()
					_, _ = Call(t.Context(), g, "a", func(context.Context, string) (string, error) {
						runtime.Goexit()
						return "", nil
					})
					t.Error("Goexit did not end the goroutine")
				}()
				assert.True(t, <-wentOn, "Goexit became a panic")
				h := healthOf(t, r, "a")
				assert.Zero(t, h.InFlight)
				assert.Equal(t, StateOpen, h.State, "the probe's slot is not free")
				assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, h.Guard)
				assert.True(t, last.Final)
				time.Sleep(30 * time.Second)
				_, err := Call(t.Context(), g, "a", plays().Run)
				assert.NoError(t, err, "the probe slot was not freed")
			})
		})
	}
}

// The end of a call frees its slot among the running calls. Another call may have
// taken the slot by the time that the Partial handler returns.
func TestGuard_CallFreesItsSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 5 // as many calls as there are slots at first
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
		r := g.Registry()
		r.RecordSuccess("a", 0)
		_, err := Call(t.Context(), g, "a", failing(errBusy).Run, Partial(func(context.Context, *ToolError) (string, error) {
			for range others {
				go func() {
					_, _ = Call(t.Context(), g, "a", func(context.Context, string) (int, error) { time.Sleep(time.Hour); return 0, nil })
				}()
			}
			synctest.Wait()
			return "", nil
		}))
		require.NoError(t, err)
		assert.Equal(t, others, healthOf(t, r, "a").Guard.InFlight)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, healthOf(t, r, "a").Guard.InFlight)
	})
}
