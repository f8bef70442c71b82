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

func TestSubstitutesAreTriedInOrderEachOnceUnderItsOwnBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 2 }, "b", "c", "d")
		tool := failing(errBusy)
		_, err := Call(t.Context(), g, "a", tool.run)
		assert.Equal(t, []string{"a", "a", "b", "c", "d"}, tool.names, "a substitute has one chance")
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
			assert.Equal(t, GuardCounts{Attempts: 1}, h.Guard, "nobody asked for %s", name)
		}
	})
}

func TestARescueByASubstituteDoesNotHideTheIllTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
		var names []string
		for range 4 {
			out, err := Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
				names = append(names, tool)
				if tool == "a" {
					return "", errBusy
				}
				return tool, nil
			})
			require.NoError(t, err)
			require.Equal(t, "b", out)
		}
		assert.Equal(t, []string{"a", "b", "a", "b", "a", "b", "b"}, names, "the fourth call spares the open one")
		a, b := healthOf(t, r, "a"), healthOf(t, r, "b")
		assert.Equal(t, StateOpen, a.State)
		assert.Equal(t, [2]uint64{0, 3}, [2]uint64{a.Successes, a.Failures})
		assert.Equal(t, [2]uint64{4, 0}, [2]uint64{b.Successes, b.Failures})
		assert.Equal(t, GuardCounts{Calls: 4, Attempts: 3, Refusals: 1, Fallbacks: 4}, a.Guard)
		assert.Equal(t, GuardCounts{Attempts: 4}, b.Guard)
	})
}

func TestTheErrorListsEveryRefusalAndTheSmallestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		g := guardWithBackups(t, r, nil, "b", "c", "d")
		failTimes(r, "a", 3)
		failTimes(r, "d", 3)
		r.RecordSuccess("b", 0)
		r.Isolate("b")
		r.Record("c", Verdict{Outcome: OutcomeThrottled, RetryAfter: 5 * time.Second}, 0)
		tool := plays()
		start := time.Now()
		_, err := Call(t.Context(), g, "a", tool.run)
		assert.Zero(t, tool.runs())
		assert.Zero(t, time.Since(start))
		e := toolError(t, err)
		assert.Equal(t, StopCircuitOpen, e.Reason, "the primary's")
		assert.Equal(t, KindRefused, e.Kind)
		assert.Equal(t, 5*time.Second, e.RetryAfter)
		assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 5s", err.Error())
		var got []Candidate
		for _, c := range e.Candidates {
			var refusal *Refusal
			require.ErrorAs(t, c.Err, &refusal)
			assert.Equal(t, c.Tool, refusal.Tool)
			c.Err = nil
			got = append(got, c)
		}
		assert.Equal(t, []Candidate{
			{"a", StopCircuitOpen, KindRefused, 30 * time.Second, nil},
			{"b", StopIsolated, KindRefused, 30 * time.Second, nil},
			{"c", StopRateLimited, KindRefused, 5 * time.Second, nil},
			{"d", StopCircuitOpen, KindRefused, 30 * time.Second, nil},
		}, got)
		for _, sentinel := range []error{ErrCircuitOpen, ErrIsolated, ErrRateLimited, ErrRefused} {
			assert.ErrorIs(t, err, sentinel)
		}
		r.Reset("d")
		out, err := Call(t.Context(), g, "a", tool.run)
		require.NoError(t, err)
		assert.Equal(t, "answer of d", out)
		assert.Equal(t, []string{"d"}, tool.names)
	})
}

func TestARejectedRequestDoesNotFallBack(t *testing.T) {
	for name, answer := range map[string]error{
		"rejected": statusErr(400), "denied by the host": WithVerdict(errors.New("no"), vPending),
		"cancelled": WithVerdict(errors.New("stop"), Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled}),
	} {
		g := guardWithBackups(t, patient(t), nil, "b")
		tool, partial := failing(answer), false
		_, err := Call(t.Context(), g, "a", tool.run,
			Partial(func(context.Context, *ToolError) (string, error) { partial = true; return "", nil }))
		assert.ErrorIs(t, err, answer, name)
		assert.Equal(t, []string{"a"}, tool.names, name)
		assert.False(t, partial, name)
	}
}

func TestASubstitutesRejectionGoesOnToTheNext(t *testing.T) {
	r := patient(t)
	g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	tool := plays(errBusy, statusErr(400))
	out, err := Call(t.Context(), g, "a", tool.run)
	require.NoError(t, err)
	assert.Equal(t, "answer of c", out)
	assert.Equal(t, uint64(1), healthOf(t, r, "b").Rejected)
	assert.Zero(t, healthOf(t, r, "b").Failures)
}

func TestTheCallersCancellationEndsTheSubstitutesToo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	var names []string
	_, err := Call(ctx, g, "a", func(_ context.Context, tool string) (string, error) {
		names = append(names, tool)
		if tool == "b" {
			cancel()
		}
		return "", errBusy
	})
	e := toolError(t, err)
	assert.Equal(t, []string{"a", "b"}, names)
	assert.Equal(t, StopCanceled, e.Reason, "not the primary's, which is older")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestOneHopOnly(t *testing.T) {
	router, err := NewHealthRouter(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}})
	require.NoError(t, err)
	g := guardOverGate(t, &Gate{Registry: patient(t), Router: router}, func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
	tool := failing(errBusy)
	_, err = Call(t.Context(), g, "a", tool.run)
	require.Error(t, err)
	assert.Equal(t, []string{"a", "b"}, tool.names)
}

func TestWithoutFallbackNoSubstituteServes(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
	tool := failing(errBusy)
	ctx := WithoutFallback(t.Context())
	_, err := Call(ctx, g, "a", tool.run)
	assert.Len(t, toolError(t, err).Candidates, 1)
	_, err = Call(ctx, g, "outer", func(ctx context.Context, _ string) (string, error) { return Call(ctx, g, "a", tool.run) })
	require.Error(t, err)
	assert.Equal(t, []string{"a", "a"}, tool.names, "calls further in heed it")
	out, err := Call(ctx, g, "a", tool.run, Partial(func(context.Context, *ToolError) (string, error) { return "part", nil }))
	assert.NoError(t, err, "a Partial handler is asked all the same")
	assert.Equal(t, "part", out)
}

func TestPartialIsTheLastResort(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b")
	var told *ToolError
	partial := func(out string, err error) CallOption[string] {
		return Partial(func(_ context.Context, e *ToolError) (string, error) { told = e; return out, err })
	}
	ctx, info := WithCallInfo(t.Context())
	out, err := Call(ctx, g, "a", failing(errBusy).run, partial("from the cache", nil))
	require.NoError(t, err)
	assert.Equal(t, "from the cache", out)
	assert.Len(t, told.Candidates, 2, "only after the substitutes")
	assert.Equal(t, CallInfo{Requested: "a", Attempts: 2, Partial: true, Reason: StopRetryExhausted}, *info)

	_, err = Call(t.Context(), g, "a", failing(errBusy).run, partial("", errors.New("empty cache")))
	assert.ErrorIs(t, err, errBusy)
	assert.NotContains(t, err.Error(), "cache")
	_, err = Call(t.Context(), g, "a", failing(errBusy).run,
		Partial(func(context.Context, *ToolError) (string, error) { panic("in the handler") }))
	assert.ErrorIs(t, err, errBusy, "its panic is not the caller's")

	told = nil
	_, err = Call(t.Context(), g, "a", plays().run, partial("", nil))
	assert.NoError(t, err)
	assert.Nil(t, told)
}

func TestCallInfoSaysHowTheCallWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 3 }, "b")
		ctx, info := WithCallInfo(t.Context())
		_, err := Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
			_, _ = Call(ctx, g, "inner", plays(errBusy).run) // writes nothing there
			if tool == "a" {
				return "", errBusy
			}
			return "x", nil
		})
		require.NoError(t, err)
		assert.Equal(t, CallInfo{
			Requested: "a", Served: "b", Attempts: 4,
			Waits: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond},
		}, *info)

		ctx, info = WithCallInfo(WithoutFallback(t.Context()))
		_, err = Call(ctx, g, "a", failing(statusErr(404)).run)
		require.Error(t, err)
		assert.Equal(t, CallInfo{Requested: "a", Attempts: 1, Reason: StopNonRetryable}, *info)

		var own *CallInfo
		_, err = Call(t.Context(), g, "outer", func(ctx context.Context, _ string) (string, error) {
			ctx, own = WithCallInfo(ctx)
			return Call(ctx, g, "inner", failing(errBusy).run)
		})
		require.Error(t, err)
		assert.Equal(t, "inner", own.Requested)
		assert.Equal(t, 1, own.Attempts, "asking for it does not make an inner call an outermost one")
	})
}

func TestAToolErrorAsJSONIsOneSmallObject(t *testing.T) {
	for _, c := range []struct {
		e    *ToolError
		want string
	}{
		{&ToolError{Reason: StopCircuitOpen, Kind: KindRefused, RetryAfter: 11100 * time.Millisecond}, `{"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":12,"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 12s"}`},
		{&ToolError{Reason: StopRetryExhausted, Kind: KindTimeout, Attempts: 2}, `{"reason":"tool_failure:retry_exhausted","kind":"timeout","attempts":2,"text":"tool failed after 2 attempts: no answer in time"}`},
		{&ToolError{Reason: StopCanceled, Kind: KindCanceled, Attempts: 1}, `{"reason":"tool_canceled","kind":"canceled","attempts":1,"text":"tool call canceled"}`},
		{&ToolError{Reason: StopUnknownTool, Kind: KindRefused}, `{"reason":"tool_unavailable:unknown_tool","kind":"refused","attempts":0,"text":"unknown tool"}`},
		{&ToolError{Reason: StopNonRetryable, Kind: KindInvalidRequest, Attempts: 1}, `{"reason":"tool_failure:non_retryable","kind":"invalid_request","attempts":1,"text":"tool failed: the request was rejected"}`},
		{&ToolError{Reason: StopNonRetryable, Kind: 200}, `{}`},
	} {
		got, err := json.Marshal(c.e)
		if c.e.Kind >= numKinds {
			assert.Error(t, err, "a kind that is none has no text")
			assert.Equal(t, "tool failed: unknown error", c.e.Error())
			continue
		}
		require.NoError(t, err)
		assert.JSONEq(t, c.want, string(got))
	}
}

func TestEveryKindHasItsWordsForTheModel(t *testing.T) {
	seen := make(map[string]Kind)
	for k := KindTimeout; k < KindUnknown; k++ {
		text := (&ToolError{Reason: StopNonRetryable, Kind: k, Attempts: 1}).Error()
		assert.NotContains(t, text, "unknown error", k.String())
		assert.NotContains(t, seen, text, k.String())
		seen[text] = k
	}
	assert.Equal(t, "tool failed: unknown error", (&ToolError{Kind: numKinds}).Error())
	for r := StopCircuitOpen; r < StopUnknownTool; r++ {
		retry := "; retry after 5s"
		if r == StopIsolated {
			retry = "" // nobody knows when
		}
		assert.Equal(t, refusals[r].Error()+retry, (&ToolError{Reason: r, Attempts: 2, RetryAfter: 5 * time.Second}).Error())
	}
	for r := StopCircuitOpen; r <= RetryAllowed; r++ {
		e := &ToolError{Reason: r}
		assert.NotEmpty(t, e.Error())
		assert.Equal(t, r <= StopUnknownTool, errors.Is(e, ErrRefused), r.String())
		for other := StopCircuitOpen; other <= StopUnknownTool; other++ {
			assert.Equal(t, r == other, errors.Is(e, refusals[other]), "%s is %s", r, other)
		}
	}
}

func TestWrapServesSubstitutesThroughTheirAdapters(t *testing.T) {
	type query struct{ q string }
	r := patient(t)
	g := guardWithBackups(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "none", "b")
	search := Wrap(g, "a", func(context.Context, query) (string, error) { return "", errBusy },
		Substitute("b", func(_ context.Context, in query) (string, error) { return "b has " + in.q, nil }),
		Substitute("unlisted", func(context.Context, query) (string, error) { panic("never") }))
	out, err := search(t.Context(), query{"x"})
	require.NoError(t, err)
	assert.Equal(t, "b has x", out)
	_, ran := r.Health("none")
	assert.False(t, ran, "a substitute without a function is not run with another's arguments")

	r.Isolate("b")
	_, err = search(t.Context(), query{"x"})
	e := toolError(t, err)
	require.Len(t, e.Candidates, 3)
	assert.Equal(t, Candidate{"none", StopNonRetryable, KindNotDispatched, 0, errNoAdapter}, e.Candidates[1])
	assert.ErrorIs(t, err, errBusy)

	plain := Wrap(g, "a", func(context.Context, query) (string, error) { return "", errBusy })
	_, err = plain(t.Context(), query{})
	e = toolError(t, err)
	require.Len(t, e.Candidates, 3)
	assert.Equal(t, []error{errNoAdapter, errNoAdapter}, []error{e.Candidates[1].Err, e.Candidates[2].Err}, "without any adapter, too")
}

func TestWrapSaysAtEachCallThatAnOptionHasTheWrongTypes(t *testing.T) {
	ran := false
	tool := func(context.Context, string) (int, error) { ran = true; return 1, nil }
	for name, option := range map[string]WrapOption{
		"Substitute with another input":  Substitute("b", func(context.Context, int) (int, error) { return 0, nil }),
		"Substitute with another output": Substitute("b", func(context.Context, string) (string, error) { return "", nil }),
		"option for another output":      WithCallOptions(CheckResult(func(string) error { return nil })),
	} {
		r := patient(t)
		g := guardWithBackups(t, r, nil, "b")
		_, err := Wrap(g, "a", tool, option)(t.Context(), "x")
		e := toolError(t, err)
		assert.Equal(t, KindNotDispatched, e.Kind, name)
		assert.Equal(t, StopNonRetryable, e.Reason, name)
		require.Len(t, e.Candidates, 1)
		assert.ErrorContains(t, e.Candidates[0].Err, "must be a", name)
		assert.False(t, ran, name)
		assert.Zero(t, r.Len(), name)
	}
}

func TestTheSubstituteThatServesIsTheLastToRun(t *testing.T) {
	g := guardWithBackups(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
	tool := plays(errBusy)
	out, err := Call(t.Context(), g, "a", tool.run)
	require.NoError(t, err)
	assert.Equal(t, "answer of b", out)
	assert.Equal(t, []string{"a", "b"}, tool.names)
}

func TestAToolThatCouldNotWorkForLackOfAnotherIsReplaced(t *testing.T) {
	r := NewRegistry()
	g := guardWithBackups(t, r, nil, "b")
	failTimes(r, "needed", 3)
	out, err := Call(t.Context(), g, "a", func(ctx context.Context, tool string) (string, error) {
		if tool == "a" {
			return Call(ctx, g, "needed", plays().run)
		}
		return tool, nil
	})
	require.NoError(t, err)
	assert.Equal(t, "b", out)
	assert.Equal(t, uint64(1), healthOf(t, r, "a").Neutral)
}

func TestAToolFunctionSeesTheValuesOfItsCallersContext(t *testing.T) {
	type key struct{}
	ctx, _ := WithCallInfo(context.WithValue(t.Context(), key{}, "request 7"))
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.Timeout = time.Minute })
	out, err := Call(WithoutFallback(ctx), g, "a", func(ctx context.Context, _ string) (string, error) {
		v, _ := ctx.Value(key{}).(string)
		return v, nil
	})
	require.NoError(t, err)
	assert.Equal(t, "request 7", out)
}

func TestAToolErrorUnwrapsToErrorsOnly(t *testing.T) {
	e := &ToolError{Candidates: []Candidate{{}, {Err: errBusy}}}
	assert.Equal(t, []error{errBusy}, e.Unwrap())
	e.Canceled = context.Canceled
	assert.Equal(t, []error{errBusy, context.Canceled}, e.Unwrap())
}

func TestAKindThatIsNoneBecomesUnknownSoThatTheErrorCanBeWritten(t *testing.T) {
	g := guardOn(t, patient(t), nil)
	_, err := Call(t.Context(), g, "a", failing(WithVerdict(errBusy, Verdict{Outcome: OutcomeFailure, Kind: 200})).run)
	e := toolError(t, err)
	assert.Equal(t, KindUnknown, e.Kind)
	_, err = json.Marshal(e)
	assert.NoError(t, err)
}
