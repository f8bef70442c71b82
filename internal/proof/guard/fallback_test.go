package guard_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_RescueBySubstituteStillCountsAgainstPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
		var names []string
		for range 4 {
			out, err := toolhealth.Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
				names = append(names, tool)
				if tool == "a" {
					return "", errBusy
				}
				return tool, nil
			})
			require.NoError(t, err)
			require.Equal(t, "b", out)
		}
		assert.Equal(t, []string{"a", "b", "a", "b", "a", "b", "b"}, names, "the fourth call skips the tool whose breaker is open")
		a, b := healthOf(t, r, "a"), healthOf(t, r, "b")
		assert.Equal(t, toolhealth.StateOpen, a.State)
		assert.Equal(t, [2]uint64{0, 3}, [2]uint64{a.Successes, a.Failures})
		assert.Equal(t, [2]uint64{4, 0}, [2]uint64{b.Successes, b.Failures})
		assert.Equal(t, toolhealth.GuardCounts{Calls: 4, Attempts: 3, Refusals: 1, Fallbacks: 4}, a.Guard)
		assert.Equal(t, toolhealth.GuardCounts{Attempts: 4}, b.Guard)
	})
}

func TestGuard_ErrorListsRefusalsAndSmallestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		g := guardWithBackups(t, r, nil, "b", "c", "d")
		failTimes(r, "a", 3)
		failTimes(r, "d", 3)
		r.RecordSuccess("b", 0)
		r.Isolate("b", "")
		r.Record("c", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: 5 * time.Second}, 0)
		tool := plays()
		start := time.Now()
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		assert.Zero(t, tool.Runs())
		assert.Zero(t, time.Since(start))
		e := toolError(t, err)
		assert.Equal(t, toolhealth.StopCircuitOpen, e.Reason, "the primary's")
		assert.Equal(t, toolhealth.KindRefused, e.Verdict.Kind)
		assert.Equal(t, 5*time.Second, e.RetryAfter)
		assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 5s", err.Error())
		var got []toolhealth.Candidate
		for _, c := range e.Candidates {
			var refusal *toolhealth.Refusal
			require.ErrorAs(t, c.Err, &refusal)
			assert.Equal(t, c.Tool, refusal.Tool)
			c.Err = nil
			got = append(got, c)
		}
		refused := func(wait time.Duration) toolhealth.Verdict {
			return toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindRefused, NotSent: true, RetryAfter: wait}
		}
		assert.Equal(t, refused(30*time.Second), e.Verdict)
		assert.Equal(t, []toolhealth.Candidate{
			{Tool: "a", Reason: toolhealth.StopCircuitOpen, Verdict: refused(30 * time.Second), RetryAfter: 30 * time.Second},
			{Tool: "b", Reason: toolhealth.StopIsolated, Verdict: refused(30 * time.Second), RetryAfter: 30 * time.Second},
			{Tool: "c", Reason: toolhealth.StopRateLimited, Verdict: refused(5 * time.Second), RetryAfter: 5 * time.Second},
			{Tool: "d", Reason: toolhealth.StopCircuitOpen, Verdict: refused(30 * time.Second), RetryAfter: 30 * time.Second},
		}, got)
		for _, sentinel := range []error{toolhealth.ErrCircuitOpen, toolhealth.ErrIsolated, toolhealth.ErrRateLimited, toolhealth.ErrRefused} {
			assert.ErrorIs(t, err, sentinel)
		}
		r.Reset("d", "")
		out, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		require.NoError(t, err)
		assert.Equal(t, "answer of d", out)
		assert.Equal(t, []string{"d"}, tool.Names)
	})
}

func TestGuard_RejectedRequestDoesNotFallBack(t *testing.T) {
	for name, answer := range map[string]error{
		"rejected": statusErr(400), "denied by the host": toolhealth.WithVerdict(errors.New("no"), denied),
		"canceled": toolhealth.WithVerdict(errors.New("stop"), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}),
	} {
		g := guardWithBackups(t, patient(t), nil, "b")
		tool, partial := failing(answer), false
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run,
			toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) { partial = true; return "", nil }))
		assert.ErrorIs(t, err, answer, name)
		assert.Equal(t, []string{"a"}, tool.Names, name)
		assert.False(t, partial, name)
	}
}

func TestGuard_RejectionBySubstituteTriesNext(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	tool := plays(errBusy, statusErr(400))
	out, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
	require.NoError(t, err)
	assert.Equal(t, "answer of c", out)
	assert.Equal(t, uint64(1), healthOf(t, r, "b").Rejected)
	assert.Zero(t, healthOf(t, r, "b").Failures)
}

func TestGuard_CancellationEndsFallback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	var names []string
	_, err := toolhealth.Call(ctx, g, "a", func(_ context.Context, tool string) (string, error) {
		names = append(names, tool)
		if tool == "b" {
			cancel()
		}
		return "", errBusy
	})
	e := toolError(t, err)
	assert.Equal(t, []string{"a", "b"}, names)
	assert.Equal(t, toolhealth.StopCanceled, e.Reason, "not the reason of the primary")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestGuard_FallbackIsOneHop(t *testing.T) {
	router, err := toolhealth.NewHealthRouter(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}})
	require.NoError(t, err)
	g := guardOverGate(t, &toolhealth.Gate{Registry: patient(t), Router: router}, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	tool := failing(errBusy)
	_, err = toolhealth.Call(t.Context(), g, "a", tool.Run)
	require.Error(t, err)
	assert.Equal(t, []string{"a", "b"}, tool.Names)
}

func TestGuard_WithoutFallback(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
	tool := failing(errBusy)
	ctx := toolhealth.WithoutFallback(t.Context())
	_, err := toolhealth.Call(ctx, g, "a", tool.Run)
	assert.Len(t, toolError(t, err).Candidates, 1)
	_, err = toolhealth.Call(ctx, g, "outer", func(ctx context.Context, _ string) (string, error) { return toolhealth.Call(ctx, g, "a", tool.Run) })
	require.Error(t, err)
	assert.Equal(t, []string{"a", "a"}, tool.Names, "inner calls obey it")
	out, err := toolhealth.Call(ctx, g, "a", tool.Run, toolhealth.Partial(func(context.Context, *toolhealth.ToolError) (string, error) { return "part", nil }))
	assert.NoError(t, err, "a Partial handler still runs")
	assert.Equal(t, "part", out)
}

func TestGuard_NoSubstituteRunsAfterAnswer(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	tool := plays(errBusy)
	out, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
	require.NoError(t, err)
	assert.Equal(t, "answer of b", out)
	assert.Equal(t, []string{"a", "b"}, tool.Names)
}

func TestGuard_ToolWithRefusedDependencyFallsBack(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardWithBackups(t, r, nil, "b")
	failTimes(r, "needed", 3)
	out, err := toolhealth.Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
		if tool == "a" {
			return toolhealth.Call(ctx, g, "needed", plays().Run)
		}
		return tool, nil
	})
	require.NoError(t, err)
	assert.Equal(t, "b", out)
	assert.Equal(t, uint64(1), healthOf(t, r, "a").Neutral)
}

func TestGuard_SmallestWaitIsOfKnownWaits(t *testing.T) {
	for _, c := range []struct {
		waits []time.Duration // of the tool and its substitutes
		want  time.Duration
	}{
		{[]time.Duration{7, 0, 9}, 7},
		{[]time.Duration{7, 0, 9, 1}, 1},
	} {
		g := guardWithBackups(t, patient(t), func(gc *toolhealth.GuardConfig) { gc.Default.MaxAttempts = 1 },
			[]string{"b", "c", "d"}[:len(c.waits)-1]...)
		tool := plays()
		for _, wait := range c.waits {
			tool.Errs = append(tool.Errs, toolhealth.WithVerdict(errBusy, toolhealth.Verdict{
				Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, RetryAfter: wait,
			}))
		}
		_, err := toolhealth.Call(t.Context(), g, "a", tool.Run)
		e := toolError(t, err)
		require.Len(t, e.Candidates, len(c.waits))
		assert.Equal(t, c.want, e.RetryAfter, "%v", c.waits)
	}
}

func TestGuard_PartialHandlerHasCallersContext(t *testing.T) {
	type key struct{}
	plain := context.WithValue(t.Context(), key{}, "the caller's")
	informed, _ := toolhealth.WithCallInfo(plain)
	for name, ctx := range map[string]context.Context{"plain": plain, "informed": informed} {
		out, err := toolhealth.Call(ctx, guardOn(t, toolhealth.NewRegistry(), nil), "a", failing(io.EOF).Run,
			toolhealth.Partial(func(ctx context.Context, _ *toolhealth.ToolError) (string, error) {
				return ctx.Value(key{}).(string), nil
			}))
		require.NoError(t, err, name)
		assert.Equal(t, "the caller's", out, name)
	}
}

// After a success, CallInfo says of each candidate why it did not serve.
func TestGuard_CallInfoSaysWhyOthersDidNotServe(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c", "d")
	ctx, info := toolhealth.WithCallInfo(t.Context())
	_, err := toolhealth.Call(ctx, g, "a", plays().Run)
	require.NoError(t, err)
	assert.Empty(t, info.Skipped)

	failTimes(r, "a", 3)
	require.True(t, r.Isolate("b", ""))
	_, err = toolhealth.Call(ctx, g, "a", plays(errBusy).Run)
	require.NoError(t, err)
	assert.Equal(t, "d", info.Served)
	require.Len(t, info.Skipped, 3)
	for i, want := range []toolhealth.Candidate{
		{Tool: "a", Reason: toolhealth.StopCircuitOpen, Verdict: toolhealth.Verdict{Kind: toolhealth.KindRefused}},
		{Tool: "b", Reason: toolhealth.StopIsolated, Verdict: toolhealth.Verdict{Kind: toolhealth.KindRefused}},
		{Tool: "c", Reason: toolhealth.StopRetryExhausted, Verdict: toolhealth.Verdict{Kind: toolhealth.KindServerError}},
	} {
		got := info.Skipped[i]
		assert.Equal(t, want, toolhealth.Candidate{Tool: got.Tool, Reason: got.Reason, Verdict: toolhealth.Verdict{Kind: got.Verdict.Kind}})
		assert.Error(t, got.Err)
	}
	assert.ErrorIs(t, info.Skipped[0].Err, toolhealth.ErrCircuitOpen)
	assert.ErrorIs(t, info.Skipped[2].Err, errBusy)

	_, err = toolhealth.Call(ctx, g, "a", failing(errBusy).Run)
	assert.Len(t, toolError(t, err).Candidates, 4)
	assert.Empty(t, info.Skipped, "the error has them")
}
