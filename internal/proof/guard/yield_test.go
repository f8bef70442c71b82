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

// cast is a tool function that plays one actor for each tool.
type cast map[string]*actor

func (c cast) run(ctx context.Context, tool string) (string, error) { return c[tool].Run(ctx, tool) }

// busyFor returns the error of a tool that fails and states this wait.
func busyFor(wait time.Duration) error {
	return toolhealth.WithVerdict(errBusy, toolhealth.Verdict{
		Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true, RetryAfter: wait,
	})
}

func TestGuard_LongStatedWaitYieldsToFreeSubstitute(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		b    bool // b serves at once
	}{
		{"throttled for a long time", throttledFor(25 * time.Second), true},
		{"failed with a long wait", busyFor(25 * time.Second), true},
		{"a second is no long wait", throttledFor(time.Second), false},
		{"more than a second is", throttledFor(time.Second + 1), true},
		{"no wait", errBusy, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guardWithBackups(t, patient(t), nil, "b")
			tools, start := cast{"a": plays(c.err), "b": plays()}, time.Now()
			ctx, info := toolhealth.WithCallInfo(t.Context())
			_, err := toolhealth.Call(ctx, g, "a", tools.run)
			require.NoError(t, err, c.name)
			if !c.b {
				assert.Equal(t, "a", info.Served, c.name)
				assert.Zero(t, tools["b"].Runs(), c.name)
				return
			}
			assert.Equal(t, "b", info.Served, c.name)
			assert.Zero(t, time.Since(start), c.name)
			assert.Empty(t, info.Waits, c.name)
			require.Len(t, info.Skipped, 1, c.name)
			assert.Equal(t, toolhealth.StopRateLimited, info.Skipped[0].Reason, c.name)
			assert.Equal(t, 10, retriesLeft(t, g, "a"), "%s: a retry that is not made costs no token", c.name)
		})
	}
}

// There is a substitute, but it cannot serve now: the primary waits at once.
func TestGuard_WaitsIfNoSubstituteIsFree(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, r *toolhealth.Registry, g *toolhealth.Guard, fn toolFunc) error{
		"it is isolated": func(ctx context.Context, r *toolhealth.Registry, g *toolhealth.Guard, fn toolFunc) error {
			r.Isolate("b", "")
			_, err := toolhealth.Call(ctx, g, "a", fn)
			return err
		},
		"the caller forbids it": func(ctx context.Context, _ *toolhealth.Registry, g *toolhealth.Guard, fn toolFunc) error {
			_, err := toolhealth.Call(toolhealth.WithoutFallback(ctx), g, "a", fn)
			return err
		},
		"it has no function": func(ctx context.Context, _ *toolhealth.Registry, g *toolhealth.Guard, fn toolFunc) error {
			_, err := toolhealth.Wrap(g, "a", func(ctx context.Context, in string) (string, error) { return fn(ctx, in) }).Call(ctx, "a")
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardWithBackups(t, r, nil, "b")
			tools, start := cast{"a": plays(throttledFor(25 * time.Second)), "b": plays()}, time.Now()
			ctx, info := toolhealth.WithCallInfo(t.Context())
			require.NoError(t, use(ctx, r, g, tools.run), name)
			assert.Equal(t, 25*time.Second, time.Since(start), name)
			assert.Empty(t, info.Skipped, "%s: it was not asked", name)
			assert.Equal(t, 2, tools["a"].Runs(), name)
			assert.Zero(t, tools["b"].Runs(), name)
		})
	}
}

// The substitutes fail and have surely not acted: the primary's attempt is made, when its
// wait is over.
func TestGuard_PrimaryIsTriedAgainAfterSubstitutesFail(t *testing.T) {
	for _, c := range []struct {
		name string
		errs []error       // of the primary
		took time.Duration // by b
		gaps []time.Duration
		wait []time.Duration
	}{
		{"at once", []error{throttledFor(25 * time.Second)}, 0, []time.Duration{25 * time.Second}, []time.Duration{25 * time.Second}},
		{"what is left of the wait", []error{throttledFor(25 * time.Second)}, 10 * time.Second, []time.Duration{25 * time.Second}, []time.Duration{15 * time.Second}},
		{"the wait is over", []error{throttledFor(25 * time.Second)}, time.Minute, []time.Duration{time.Minute}, []time.Duration{0}},
		{
			"the substitutes are tried once", []error{throttledFor(25 * time.Second), throttledFor(5 * time.Second)}, 10 * time.Second,
			[]time.Duration{25 * time.Second, 5 * time.Second}, []time.Duration{15 * time.Second, 5 * time.Second},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guardWithBackups(t, patient(t), func(gc *toolhealth.GuardConfig) { gc.Default.MaxAttempts = 3 }, "b", "c")
				tools := cast{"a": plays(c.errs...), "b": failing(errBusy), "c": failing(statusErr(422))}
				ctx, info := toolhealth.WithCallInfo(t.Context())
				_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
					if tool == "b" {
						time.Sleep(c.took)
					}
					return tools.run(ctx, tool)
				})
				require.NoError(t, err)
				assert.Equal(t, c.gaps, tools["a"].Gaps())
				assert.Equal(t, "a", info.Served)
				assert.Equal(t, c.wait, info.Waits)
				assert.Equal(t, 1, tools["b"].Runs())
				assert.Equal(t, 1, tools["c"].Runs())
				var skipped []string
				for _, s := range info.Skipped {
					skipped = append(skipped, s.Tool)
				}
				assert.Equal(t, []string{"b", "c"}, skipped, "the primary has served")
			})
		})
	}
}

// The primary's attempt is not made after substitutes, and its error says what it said.
func TestGuard_PostponedAttemptThatCannotBeMade(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(*toolhealth.GuardConfig)
		deadline   time.Duration
		a, b       error
		bTook      time.Duration
		reason     toolhealth.StopReason
		candidates int
		aRuns      int
	}{
		{"there is time enough", nil, 30 * time.Second, throttledFor(25 * time.Second), errBusy, 10 * time.Second, toolhealth.StopNone, 0, 2},
		{"there is just time enough", nil, 30 * time.Second, throttledFor(25 * time.Second), errBusy, 28 * time.Second, toolhealth.StopNone, 0, 2},
		{"the time is up", nil, 30 * time.Second, throttledFor(25 * time.Second), errBusy, 31 * time.Second, toolhealth.StopTimeout, 2, 1},
		{"the substitute may have acted", func(gc *toolhealth.GuardConfig) {
			gc.Tools = map[string]toolhealth.Policy{"b": bare(toolhealth.Policy{SideEffects: true})}
		}, time.Hour, throttledFor(25 * time.Second), errBusy, 0, toolhealth.StopOutcomeUnknown, 2, 1},
		{"the substitute surely has not", func(gc *toolhealth.GuardConfig) {
			gc.Tools = map[string]toolhealth.Policy{"b": bare(toolhealth.Policy{SideEffects: true})}
		}, time.Hour, throttledFor(25 * time.Second), errUnsent, 0, toolhealth.StopNone, 0, 2},
		{"the substitute was denied", nil, time.Hour, throttledFor(25 * time.Second), toolhealth.WithVerdict(errBusy, denied), 0, toolhealth.StopRateLimited, 2, 1},
		{"it failed with a wait", nil, time.Hour, busyFor(25 * time.Second), errBusy, 0, toolhealth.StopNone, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardWithBackups(t, r, c.change, "b")
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				tools := cast{"a": plays(c.a), "b": failing(c.b)}
				_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
					if tool == "b" {
						time.Sleep(c.bTook)
					}
					return tools.run(ctx, tool)
				})
				assert.Equal(t, c.aRuns, tools["a"].Runs())
				assert.Equal(t, 1, tools["b"].Runs())
				if c.reason == toolhealth.StopNone {
					require.NoError(t, err)
					return
				}
				e := toolError(t, err)
				assert.Equal(t, c.reason, e.Reason)
				assert.Len(t, e.Candidates, c.candidates)
				assert.ErrorIs(t, err, c.a)
				assert.ErrorIs(t, err, c.b)
			})
		})
	}
}

// Each candidate has one line, and the primary's is that of its last attempt.
func TestGuard_PostponedPrimaryHasOneCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWithBackups(t, patient(t), nil, "b")
		tools := cast{"a": plays(throttledFor(25*time.Second), errBroken), "b": failing(errBusy)}
		_, err := toolhealth.Call(t.Context(), g, "a", tools.run)
		e := toolError(t, err)
		require.Len(t, e.Candidates, 2)
		assert.Equal(t, toolhealth.Candidate{Tool: "a", Reason: toolhealth.StopNonRetryable, Verdict: unknown, Err: errBroken}, e.Candidates[0])
		assert.Equal(t, "b", e.Candidates[1].Tool)
		assert.Equal(t, toolhealth.StopNonRetryable, e.Reason)
		assert.Equal(t, 3, e.Attempts)
	})
}

// A back-off is made beside a free substitute, unless less time would be left for the
// retry than the last attempt took.
func TestGuard_RetryThatMayNotFitYieldsToSubstitute(t *testing.T) {
	for _, c := range []struct {
		name     string
		deadline time.Duration // zero means no deadline
		b        error
		names    []string
	}{
		{"no deadline", 0, nil, []string{"a", "a"}},
		{"there is time enough", 4100 * time.Millisecond, nil, []string{"a", "a"}},
		{"there is not", 4100*time.Millisecond - 1, nil, []string{"a", "b"}},
		{"there is not, and the substitute fails", 4100*time.Millisecond - 1, errBroken, []string{"a", "b", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				g := guardWithBackups(t, r, nil, "b")
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				tools := cast{"a": plays(errBusy), "b": plays(c.b)}
				var names []string
				ctx, info := toolhealth.WithCallInfo(ctx)
				_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
					if names = append(names, tool); len(names) == 1 {
						time.Sleep(2 * time.Second)
					}
					return tools.run(ctx, tool)
				})
				require.NoError(t, err)
				assert.Equal(t, c.names, names)
				if info.Served == "b" {
					assert.Equal(t, toolhealth.StopRetryExhausted, info.Skipped[0].Reason)
					assert.Zero(t, info.Skipped[0].RetryAfter, "the tool stated no wait")
					assert.Equal(t, 10, retriesLeft(t, g, "a"))
				} else {
					assert.Equal(t, uint64(1), healthOf(t, r, "a").Guard.Retries)
				}
			})
		})
	}
}

// While the substitute runs, other calls take the tokens.
func TestGuard_PostponedAttemptTakesTokenWhenItIsMade(t *testing.T) {
	for _, taken := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			r := patient(t)
			g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.RetryBudget, c.Default.RetryRefill = 1, toolhealth.Off }, "b")
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			tools := cast{"a": plays(errBusy), "b": failing(errBusy)}
			_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
				if tool == "b" {
					takeTokens(t, g, "a", taken)
				} else if tools["a"].Runs() == 0 {
					time.Sleep(3 * time.Second)
				}
				return tools.run(ctx, tool)
			})
			if taken == 0 {
				require.NoError(t, err)
				assert.Zero(t, retriesLeft(t, g, "a"), "the attempt has cost the token")
				return
			}
			e := toolError(t, err)
			assert.Equal(t, toolhealth.StopRetryBudgetExhausted, e.Reason)
			assert.Equal(t, 1, tools["a"].Runs())
			assert.Equal(t, uint64(1), healthOf(t, r, "a").Guard.BudgetExhausted)
		})
	}
}

// An observer hears that the primary's attempt was put off, not that it follows.
func TestGuard_ObserverHearsWhyPrimaryYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []toolhealth.StopReason
		var waits []time.Duration
		g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) {
				if !e.Final {
					heard, waits = append(heard, e.Reason), append(waits, e.Wait)
				}
			}
		}, "b")
		tools := cast{"a": plays(throttledFor(25 * time.Second)), "b": plays()}
		_, err := toolhealth.Call(t.Context(), g, "a", tools.run)
		require.NoError(t, err)
		assert.Equal(t, []toolhealth.StopReason{toolhealth.StopRateLimited, toolhealth.StopNone}, heard)
		assert.Equal(t, []time.Duration{25 * time.Second, 0}, waits)
	})
}

// A call that is canceled while the postponed attempt waits ends as canceled.
func TestGuard_CancellationEndsPostponedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardWithBackups(t, r, nil, "b")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		tools, start := cast{"a": failing(throttledFor(25 * time.Second)), "b": failing(errBusy)}, time.Now()
		_, err := toolhealth.Call(ctx, g, "a", tools.run)
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopCanceled, e.Reason)
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, 1, tools["a"].Runs())
		assert.Equal(t, uint64(1), healthOf(t, r, "a").Guard.Canceled)
		assert.Zero(t, healthOf(t, r, "a").Guard.InFlight)
	})
}
