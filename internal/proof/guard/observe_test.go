package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_ObserverHearsAttemptsAndEnd(t *testing.T) {
	const ms = time.Millisecond
	type verdict = toolhealth.Verdict
	refused := verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindRefused}
	slowly := func(a *actor) func(context.Context, string) (string, error) {
		return func(ctx context.Context, tool string) (string, error) {
			time.Sleep(10 * ms)
			return a.Run(ctx, tool)
		}
	}
	answered := func(served string, attempt int) toolhealth.Event {
		return toolhealth.Event{Tool: "a", Served: served, Attempt: attempt, Reason: toolhealth.StopNone, Took: 10 * ms}
	}
	failed := func(served string, attempt int, reason toolhealth.StopReason, wait time.Duration) toolhealth.Event {
		return toolhealth.Event{Tool: "a", Served: served, Attempt: attempt, Verdict: retryable, Reason: reason, Took: 10 * ms, Wait: wait, Err: errBusy}
	}
	final := func(served string, attempts int, v verdict, reason toolhealth.StopReason, took, wait time.Duration) toolhealth.Event {
		return toolhealth.Event{Tool: "a", Served: served, Final: true, Attempt: attempts, Verdict: v, Reason: reason, Took: took, Wait: wait}
	}
	for _, c := range []struct {
		name   string
		errs   []error
		before func(*toolhealth.Registry)
		policy func(*toolhealth.Policy)
		events []toolhealth.Event
		counts toolhealth.GuardCounts
	}{
		{"success", nil, nil, nil, []toolhealth.Event{
			answered("a", 1),
			final("a", 1, verdict{}, toolhealth.StopNone, 10*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Attempts: 1}},
		{"retried", []error{errBusy}, nil, nil, []toolhealth.Event{
			failed("a", 1, toolhealth.RetryAllowed, 100*ms),
			answered("a", 2),
			final("a", 2, verdict{}, toolhealth.StopNone, 120*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Attempts: 2, Retries: 1}},
		{"served by the substitute", []error{errBusy, errBusy}, nil, nil, []toolhealth.Event{
			failed("a", 1, toolhealth.RetryAllowed, 100*ms),
			failed("a", 2, toolhealth.StopRetryExhausted, 0),
			answered("b", 1),
			final("b", 3, verdict{}, toolhealth.StopNone, 130*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Attempts: 2, Retries: 1, Fallbacks: 1}},
		{"refused, served by the substitute", nil, func(r *toolhealth.Registry) { r.Isolate("a", "") }, nil, []toolhealth.Event{
			answered("b", 1),
			final("b", 1, verdict{}, toolhealth.StopNone, 10*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Refusals: 1, Fallbacks: 1}},
		{"all refused", nil, func(r *toolhealth.Registry) { r.Isolate("a", ""); r.Isolate("b", "") }, nil, []toolhealth.Event{
			final("a", 0, refused, toolhealth.StopIsolated, 0, 0),
		}, toolhealth.GuardCounts{Calls: 1, Failed: 1, Refusals: 1}},
		{"budget exhausted", []error{errBusy, errBusy}, func(r *toolhealth.Registry) {
			takeTokens(t, guardOn(t, r, nil), "a", 10)
		}, nil, []toolhealth.Event{
			failed("a", 1, toolhealth.StopRetryBudgetExhausted, 0),
			failed("b", 1, toolhealth.StopRetryExhausted, 0),
			final("b", 2, retryable, toolhealth.StopRetryBudgetExhausted, 20*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1, BudgetExhausted: 1}},
		{"outcome unknown", []error{errBusy}, nil, func(p *toolhealth.Policy) { p.SideEffects = true }, []toolhealth.Event{
			failed("a", 1, toolhealth.StopOutcomeUnknown, 0),
			final("a", 1, retryable, toolhealth.StopOutcomeUnknown, 10*ms, 0),
		}, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				require.NoError(t, r.Register("a", toolhealth.ToolOptions{}))
				require.NoError(t, r.Register("b", toolhealth.ToolOptions{}))
				if c.before != nil {
					c.before(r)
				}
				var events []toolhealth.Event
				g := guardWithBackups(t, r, func(gc *toolhealth.GuardConfig) {
					if c.policy != nil {
						c.policy(&gc.Default)
					}
					gc.Observe = func(_ context.Context, e toolhealth.Event) { events = append(events, e) }
				}, "b")
				_, err := toolhealth.Call(t.Context(), g, "a", slowly(plays(c.errs...)))
				for i := range events {
					if events[i].Final && events[i].Reason != toolhealth.StopNone { // the error of the whole call
						assert.Equal(t, err, events[i].Err)
						events[i].Err = nil
					}
					if events[i].Reason == toolhealth.StopIsolated { // the event may name any candidate
						events[i].Served = "a"
					}
				}
				assert.Equal(t, c.events, events)
				assert.Equal(t, c.counts, healthOf(t, r, "a").Guard)
			})
		})
	}
}

// spanKey is the key of a span in a ctx.
type spanKey struct{}

func TestGuard_StartGivesEachAttemptItsContext(t *testing.T) {
	type event = toolhealth.Event
	var spans []string // what begins and ends, in order
	span := func(ctx context.Context) string { s, _ := ctx.Value(spanKey{}).(string); return s }
	change := func(c *toolhealth.GuardConfig) {
		c.Default.BackoffBase = 0
		c.Start = func(ctx context.Context, e event) context.Context {
			assert.Equal(t, event{Tool: "a", Served: e.Served, Attempt: e.Attempt}, e)
			name := fmt.Sprint(e.Served, e.Attempt)
			spans = append(spans, "begin "+name)
			return context.WithValue(ctx, spanKey{}, name)
		}
		c.Observe = func(ctx context.Context, e event) {
			if e.Final {
				spans = append(spans, "final"+span(ctx))
				return
			}
			spans = append(spans, "end "+span(ctx))
			assert.Equal(t, fmt.Sprint(e.Served, e.Attempt), span(ctx))
		}
	}
	g := guardWithBackups(t, patient(t), change, "b")
	_, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
		spans = append(spans, "run "+span(ctx))
		_, err := toolhealth.Call(ctx, g, tool, plays().Run) // rides: it is part of this attempt
		require.NoError(t, err)
		if tool == "b" {
			return "x", nil
		}
		return "", errBusy
	})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"begin a1", "run a1", "end a1", "begin a2", "run a2", "end a2", "begin b1", "run b1", "end b1", "final",
	}, spans)

	spans = nil
	g.Registry().Isolate("a", "")
	g.Registry().Isolate("b", "")
	_, err = toolhealth.Call(t.Context(), g, "a", plays().Run)
	require.Error(t, err)
	assert.Equal(t, []string{"final"}, spans, "a refused call has no attempt")
}

func TestGuard_TimeOfStartIsNotTheToolsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		var took time.Duration
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default.Timeout = 2 * time.Second
			c.Start = func(ctx context.Context, _ toolhealth.Event) context.Context { time.Sleep(time.Minute); return ctx }
			c.Observe = func(_ context.Context, e toolhealth.Event) {
				if !e.Final {
					took = e.Took
				}
			}
		})
		_, err := toolhealth.Call(t.Context(), g, "a", obeys(time.Second))
		require.NoError(t, err)
		assert.Equal(t, time.Second, took)
		assert.Equal(t, time.Second, healthOf(t, r, "a").Max)
	})
}

func TestGuard_BadStartDoesNoHarm(t *testing.T) {
	bad := map[string]func(context.Context, toolhealth.Event) context.Context{
		"nil":    func(context.Context, toolhealth.Event) context.Context { return nil },
		"panics": func(context.Context, toolhealth.Event) context.Context { panic("in Start") },
	}
	for name, start := range bad {
		r := patient(t)
		heard := 0
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Start = start
			c.Observe = func(ctx context.Context, _ toolhealth.Event) { heard++; assert.Equal(t, t.Context(), ctx, name) }
		})
		out, err := toolhealth.Call(t.Context(), g, "a", plays().Run)
		require.NoError(t, err, name)
		assert.Equal(t, "answer of a", out)
		assert.Equal(t, 2, heard, name)
	}
	r := patient(t)
	ended := 0
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Start = func(context.Context, toolhealth.Event) context.Context { runtime.Goexit(); return nil }
		c.Observe = func(context.Context, toolhealth.Event) { ended++ }
	})
	var done sync.WaitGroup
	done.Go(func() { _, _ = toolhealth.Call(t.Context(), g, "a", plays().Run) })
	done.Wait()
	assert.Equal(t, 2, ended)
	h := healthOf(t, r, "a")
	assert.Zero(t, h.InFlight, "the permit is not lost")
	assert.Zero(t, h.Guard.InFlight)
	assert.EqualValues(t, 1, h.Neutral)
}

func TestGuard_PanickingObserverIsIgnored(t *testing.T) {
	r := patient(t)
	heard := 0
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
		c.Observe = func(context.Context, toolhealth.Event) { heard++; panic("in the observer") }
	})
	out, err := toolhealth.Call(t.Context(), g, "a", plays().Run)
	require.NoError(t, err)
	assert.Equal(t, "answer of a", out)
	assert.Equal(t, 2, heard)
	assert.Zero(t, healthOf(t, r, "a").Guard.InFlight)
}

func TestGuard_CountsRunningCallsAndOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) {
			c.Default.BackoffBase, c.Default.BackoffMax = 20*time.Second, toolhealth.Off
		})
		guard := func() toolhealth.GuardCounts { return healthOf(t, r, "a").Guard }
		time.Sleep(time.Second)
		go func() { _, _ = toolhealth.Call(t.Context(), g, "a", obeys(10*time.Second)) }()
		time.Sleep(4 * time.Second)
		go func() { _, _ = toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run) }() // waits until 24s
		synctest.Wait()
		assert.Equal(t, toolhealth.GuardCounts{Calls: 2, Attempts: 2, InFlight: 2, Oldest: 4 * time.Second}, guard())
		time.Sleep(7 * time.Second)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 2, Attempts: 2, InFlight: 1, Oldest: 7 * time.Second}, guard(), "a waiting call is running")
		time.Sleep(20 * time.Second)
		assert.Equal(t, toolhealth.GuardCounts{Calls: 2, Attempts: 3, Retries: 1}, guard())
	})
}

// A dashboard divides these figures: tool_error_rate is failed/calls, and
// retry_attempts_per_call is retries/calls.
func TestGuard_SummaryGivesErrorAndRetryRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts, c.Default.RetryBudget = 3, toolhealth.Off })
		for i := range 10 {
			tool := plays()
			if i < 4 {
				tool = plays(errBusy, errBusy) // rescued by the second retry
			} else if i < 7 {
				tool = failing(errBusy)
			}
			_, _ = toolhealth.Call(t.Context(), g, "a", tool.Run)
		}
		text, err := json.Marshal(r.HealthSummary())
		require.NoError(t, err)
		var seen struct {
			Tools []struct {
				Guard struct{ Calls, Failed, Retries, Attempts float64 }
			}
		}
		require.NoError(t, json.Unmarshal(text, &seen))
		guard := seen.Tools[0].Guard
		assert.InDelta(t, 0.3, guard.Failed/guard.Calls, 1e-9)
		assert.InDelta(t, 1.4, guard.Retries/guard.Calls, 1e-9)
		assert.InDelta(t, guard.Calls+guard.Retries, guard.Attempts, 1e-9)
	})
}

func TestGuard_PartialAnswerCountsAsFailed(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	_, err := toolhealth.Call(t.Context(), g, "a", failing(errBusy).Run,
		toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) { return "part", nil }))
	require.NoError(t, err)
	assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
}

func TestGuard_ToolTrackedFromRetryIsCountedFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) { c.MaxTools = 1 })
		require.NoError(t, r.Register("kept", toolhealth.ToolOptions{}))
		time.AfterFunc(50*time.Millisecond, func() { r.Remove("kept") })
		_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", plays(errBusy).Run)
		require.NoError(t, err)
		counts := healthOf(t, r, "a").Guard
		assert.Equal(t, uint64(1), counts.Calls)
		assert.Zero(t, counts.InFlight)
	})
}

func TestGuard_RejectedAndCanceledCallsAreNotFailed(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, nil)
	_, err := toolhealth.Call(t.Context(), g, "a", failing(toolhealth.WithVerdict(errBusy, invalid)).Run)
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = toolhealth.Call(ctx, g, "a", func(context.Context, string) (string, error) {
		cancel()
		return "", ctx.Err()
	})
	require.Error(t, err)
	assert.Equal(t, toolhealth.GuardCounts{Calls: 2, Rejected: 1, Canceled: 1, Attempts: 2}, healthOf(t, r, "a").Guard)
}

func TestGuard_NewCallHasAgeZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		time.Sleep(time.Second)
		_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) {
			counts := healthOf(t, r, "a").Guard
			assert.Equal(t, 1, counts.InFlight)
			assert.Zero(t, counts.Oldest)
			return 0, nil
		})
		require.NoError(t, err)
	})
}

func TestGuard_CanceledCallHasNoWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	g := guardOn(t, toolhealth.NewRegistry(), func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) { waits = append(waits, e.Wait) }
	})
	_, err := toolhealth.Call(ctx, g, "a", func(context.Context, string) (int, error) {
		cancel()
		return 0, errBusy
	})
	assert.Equal(t, toolhealth.StopCanceled, toolError(t, err).Reason)
	assert.Zero(t, toolError(t, err).RetryAfter)
	assert.Equal(t, []time.Duration{0, 0}, waits)
}

// A hook that hangs keeps its call running, so the figures must show the call.
func TestGuard_HookSeesItsCallRunning(t *testing.T) {
	for name, observe := range map[string]func(context.Context, toolhealth.Event){"plain": nil, "observed": ignoreEvents} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold, c.Breaker.SlowCallDuration = 1, time.Second })
			r.RecordSuccess("a", 0)
			time.Sleep(time.Second)
			var seen toolhealth.GuardCounts
			defer r.OnTransition(func(toolhealth.Transition) { seen = healthOf(t, r, "a").Guard })()
			g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Observe = observe })
			_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (int, error) { time.Sleep(2 * time.Second); return 1, nil })
			require.NoError(t, err)
			assert.Equal(t, toolhealth.GuardCounts{Calls: 1, Attempts: 1, InFlight: 1, Oldest: 2 * time.Second}, seen, name)
			assert.Zero(t, healthOf(t, r, "a").Guard.InFlight, name)
		})
	}
}
