package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnObserverHearsOfEachAttemptAndOfTheEnd(t *testing.T) {
	const ms = time.Millisecond
	failed, refused := vRetry, Verdict{Outcome: OutcomeNeutral, Kind: KindRefused}
	slowly := func(a *actor) func(context.Context, string) (string, error) {
		return func(ctx context.Context, tool string) (string, error) {
			time.Sleep(10 * ms)
			return a.run(ctx, tool)
		}
	}
	for _, c := range []struct {
		name   string
		errs   []error
		before func(*Registry)
		policy func(*Policy)
		events []Event
		counts GuardCounts
	}{
		{"success", nil, nil, nil, []Event{
			{"a", "a", false, 1, Verdict{}, StopNone, 10 * ms, 0, nil},
			{"a", "a", true, 1, Verdict{}, StopNone, 10 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Attempts: 1}},
		{"retried", []error{errBusy}, nil, nil, []Event{
			{"a", "a", false, 1, failed, RetryAllowed, 10 * ms, 100 * ms, errBusy},
			{"a", "a", false, 2, Verdict{}, StopNone, 10 * ms, 0, nil},
			{"a", "a", true, 2, Verdict{}, StopNone, 120 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Attempts: 2, Retries: 1}},
		{"served by the substitute", []error{errBusy, errBusy}, nil, nil, []Event{
			{"a", "a", false, 1, failed, RetryAllowed, 10 * ms, 100 * ms, errBusy},
			{"a", "a", false, 2, failed, StopRetryExhausted, 10 * ms, 0, errBusy},
			{"a", "b", false, 1, Verdict{}, StopNone, 10 * ms, 0, nil},
			{"a", "b", true, 3, Verdict{}, StopNone, 130 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Attempts: 2, Retries: 1, Fallbacks: 1}},
		{"refused, served by the substitute", nil, func(r *Registry) { r.Isolate("a") }, nil, []Event{
			{"a", "b", false, 1, Verdict{}, StopNone, 10 * ms, 0, nil},
			{"a", "b", true, 1, Verdict{}, StopNone, 10 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Refusals: 1, Fallbacks: 1}},
		{"all refused", nil, func(r *Registry) { r.Isolate("a"); r.Isolate("b") }, nil, []Event{
			{"a", "a", true, 0, refused, StopIsolated, 0, 30 * time.Second, nil},
		}, GuardCounts{Calls: 1, Failed: 1, Refusals: 1}},
		{"budget exhausted", []error{errBusy, errBusy}, func(r *Registry) {
			r.table.Get("a").Value.guardStats().tokens.Missing().Store(100)
		}, nil, []Event{
			{"a", "a", false, 1, failed, StopRetryBudgetExhausted, 10 * ms, 0, errBusy},
			{"a", "b", false, 1, failed, StopRetryExhausted, 10 * ms, 0, errBusy},
			{"a", "b", true, 2, failed, StopRetryBudgetExhausted, 20 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Failed: 1, Attempts: 1, BudgetExhausted: 1}},
		{"outcome unknown", []error{errBusy}, nil, func(p *Policy) { p.SideEffects = true }, []Event{
			{"a", "a", false, 1, failed, StopOutcomeUnknown, 10 * ms, 0, errBusy},
			{"a", "a", true, 1, failed, StopOutcomeUnknown, 10 * ms, 0, nil},
		}, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := patient(t)
				require.NoError(t, r.Register("a"))
				require.NoError(t, r.Register("b"))
				if c.before != nil {
					c.before(r)
				}
				var events []Event
				g := guardWithBackups(t, r, func(gc *GuardConfig) {
					if c.policy != nil {
						c.policy(&gc.Default)
					}
					gc.Observe = func(_ context.Context, e Event) { events = append(events, e) }
				}, "b")
				_, err := Call(t.Context(), g, "a", slowly(plays(c.errs...)))
				for i := range events {
					if events[i].Final && events[i].Reason != StopNone { // of the call as a whole
						assert.Equal(t, err, events[i].Err)
						events[i].Err = nil
					}
					if events[i].Reason == StopIsolated { // which candidate it tells of is not fixed
						events[i].Served = "a"
					}
				}
				assert.Equal(t, c.events, events)
				assert.Equal(t, c.counts, healthOf(t, r, "a").Guard)
			})
		})
	}
}

func TestACancelledWaitIsObservedAsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		g := guardOn(t, patient(t), func(c *GuardConfig) { c.Observe = func(_ context.Context, e Event) { events = append(events, e) } })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := Call(ctx, g, "a", failing(errBusy).run)
		require.Error(t, err)
		assert.Equal(t, Event{
			Tool: "a", Served: "a", Final: true, Attempt: 1, Reason: StopCanceled, Took: time.Millisecond,
			Verdict: Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}, Err: err,
		}, events[len(events)-1])
	})
}

func TestAnObserverThatPanicsHarmsNobody(t *testing.T) {
	r := patient(t)
	heard := 0
	g := guardOn(t, r, func(c *GuardConfig) { c.Observe = func(context.Context, Event) { heard++; panic("in the observer") } })
	out, err := Call(t.Context(), g, "a", plays().run)
	require.NoError(t, err)
	assert.Equal(t, "answer of a", out)
	assert.Equal(t, 2, heard)
	assert.Zero(t, healthOf(t, r, "a").Guard.InFlight)
}

func TestRunningCallsAndTheOldestOfThemAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.BackoffBase, c.Default.BackoffMax = 20*time.Second, 0 })
		guard := func() GuardCounts { return healthOf(t, r, "a").Guard }
		time.Sleep(time.Second)
		go func() { _, _ = Call(t.Context(), g, "a", obeys(10*time.Second)) }()
		time.Sleep(4 * time.Second)
		go func() { _, _ = Call(t.Context(), g, "a", plays(errBusy).run) }() // waits until 24s
		synctest.Wait()
		assert.Equal(t, GuardCounts{Calls: 2, Attempts: 2, InFlight: 2, Oldest: 4 * time.Second}, guard())
		time.Sleep(7 * time.Second)
		assert.Equal(t, GuardCounts{Calls: 2, Attempts: 2, InFlight: 1, Oldest: 7 * time.Second}, guard(), "one that waits is still running")
		time.Sleep(20 * time.Second)
		assert.Equal(t, GuardCounts{Calls: 2, Attempts: 3, Retries: 1}, guard())
	})
}

// What a dashboard divides: tool_error_rate = failed/calls, retry_attempts_per_call
// = retries/calls.
func TestTheTwoRatesForAlertsCanBeComputedFromTheSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts, c.Default.RetryBudget = 3, 0 })
		for i := range 10 {
			tool := plays()
			if i < 4 {
				tool = plays(errBusy, errBusy) // rescued by the second retry
			} else if i < 7 {
				tool = failing(errBusy)
			}
			_, _ = Call(t.Context(), g, "a", tool.run)
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

func TestACallThatOnlyAPartialHandlerAnsweredIsAFailedOne(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
	_, err := Call(t.Context(), g, "a", failing(errBusy).run,
		Partial(func(context.Context, *ToolError) (string, error) { return "part", nil }))
	require.NoError(t, err)
	assert.Equal(t, GuardCounts{Calls: 1, Failed: 1, Attempts: 1}, healthOf(t, r, "a").Guard)
}

func TestAToolThatIsTrackedOnlyFromItsRetryOnIsCountedFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
		require.NoError(t, r.Register("kept"))
		time.AfterFunc(50*time.Millisecond, func() { r.Remove("kept") })
		_, err := Call(t.Context(), guardOn(t, r, nil), "a", plays(errBusy).run)
		require.NoError(t, err)
		counts := healthOf(t, r, "a").Guard
		assert.Equal(t, uint64(1), counts.Calls)
		assert.Zero(t, counts.InFlight)
	})
}

func TestRejectedAndCanceledCallsAreNoFailedOnes(t *testing.T) {
	r := patient(t)
	g := guardOn(t, r, nil)
	_, err := Call(t.Context(), g, "a", failing(WithVerdict(errBusy, vInvalid)).run)
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Call(ctx, g, "a", func(context.Context, string) (string, error) {
		cancel()
		return "", ctx.Err()
	})
	require.Error(t, err)
	assert.Equal(t, GuardCounts{Calls: 2, Rejected: 1, Canceled: 1, Attempts: 2}, healthOf(t, r, "a").Guard)
}

func TestDetailsSayWhatTheModelMustNotRead(t *testing.T) {
	g := guardWithBackups(t, patient(t), nil, "b")
	_, err := Call(t.Context(), g, "a", failing(errors.New("dial db-7.internal: no route")).run)
	e := toolError(t, err)
	assert.Equal(t, "tool failed after 2 attempts: unknown error", e.Error())
	assert.Equal(t, `"a": tool_failure:non_retryable, kind unknown, 2 attempts; `+
		`"a": tool_failure:non_retryable: dial db-7.internal: no route; "b": tool_failure:non_retryable: dial db-7.internal: no route`, e.Details())
}
