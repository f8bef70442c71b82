package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// flagged is a result with a flag that says that the tool failed, as MCP has it.
type flagged struct {
	IsError bool
	Text    string
}

func flaggedIs(v toolhealth.Verdict) toolhealth.CallOption[flagged] {
	return toolhealth.CheckResult(func(f flagged) error {
		if f.IsError {
			return toolhealth.WithVerdict(errors.New(f.Text), v)
		}
		return nil
	})
}

func TestGuard_FlaggedResultFailsAndReachesCaller(t *testing.T) {
	r := toolhealth.NewRegistry()
	g := guardOn(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 5 })
	want := flagged{true, "no such page"}
	runs := 0
	tool := func(context.Context, string) (flagged, error) { runs++; return want, nil }
	for range 3 {
		out, err := toolhealth.Call(t.Context(), g, "a", tool, flaggedIs(toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}))
		assert.Equal(t, want, out)
		assert.Equal(t, toolhealth.StopNonRetryable, toolError(t, err).Reason)
		assert.ErrorContains(t, toolError(t, err).Candidates[0].Err, "no such page")
	}
	assert.Equal(t, 3, runs)
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(3), h.Failures)
	assert.Zero(t, h.Successes, "nothing is credited before the check has seen the result")
	assert.Equal(t, toolhealth.StateOpen, h.State)
}

func TestGuard_CheckErrorMeansWhatItIsMarkedAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			v      toolhealth.Verdict
			runs   int
			reason toolhealth.StopReason
			state  toolhealth.State
		}{
			{toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}, 3, toolhealth.StopCircuitOpen, toolhealth.StateOpen},
			{toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}, 1, toolhealth.StopNonRetryable, toolhealth.StateClosed},
			{toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}, 1, toolhealth.StopNonRetryable, toolhealth.StateClosed},
		} {
			r := toolhealth.NewRegistry()
			runs := 0
			_, err := toolhealth.Call(t.Context(), guardOn(t, r, func(gc *toolhealth.GuardConfig) { gc.Default.MaxAttempts = 5 }), "a",
				func(context.Context, string) (flagged, error) { runs++; return flagged{IsError: true}, nil }, flaggedIs(c.v))
			e := toolError(t, err)
			assert.Equal(t, c.runs, runs, "%v", c.v)
			assert.Equal(t, c.reason, e.Reason, "%v", c.v)
			assert.Equal(t, c.v.Kind, e.Verdict.Kind)
			assert.Equal(t, c.state, healthOf(t, r, "a").State, "%v", c.v)
			assert.Zero(t, healthOf(t, r, "a").Successes, "%v", c.v)
		}
	})
}

// What the check marks is its word, also that the tool was not reached.
func TestGuard_CheckErrorMarkedAsNotSentIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.SideEffects = true })
		_, err := toolhealth.Call(t.Context(), g, "a", func(context.Context, string) (flagged, error) { runs++; return flagged{IsError: true}, nil }, flaggedIs(unreachable))
		assert.Equal(t, 2, runs)
		assert.True(t, toolError(t, err).Verdict.NotSent)
	})
}

func TestGuard_RetriedGoodResultIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		out, err := toolhealth.Call(t.Context(), guardOn(t, patient(t), nil), "a",
			func(context.Context, string) (flagged, error) {
				runs++
				return flagged{IsError: runs == 1, Text: "x"}, nil
			},
			flaggedIs(retryable))
		require.NoError(t, err)
		assert.Equal(t, flagged{false, "x"}, out)
	})
}

func TestGuard_BrokenContractFallsBack(t *testing.T) {
	g := guardWithBackups(t, patient(t), nil, "b")
	out, err := toolhealth.Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
		return map[string]string{"a": "<html>", "b": `{"ok":true}`}[tool], nil
	}, toolhealth.CheckContract(func(s string) error { return json.Unmarshal([]byte(s), new(any)) }))
	require.NoError(t, err)
	assert.Equal(t, `{"ok":true}`, out)
}

func TestGuard_ChecksRunInOrderAndOnlyOnResults(t *testing.T) {
	var ran []string
	check := func(name string, err error) toolhealth.CallOption[string] {
		return toolhealth.CheckResult(func(string) error { ran = append(ran, name); return err })
	}
	bad := errors.New("second")
	g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 })
	_, err := toolhealth.Call(t.Context(), g, "a", plays().Run, check("1", nil), toolhealth.CheckResult[string](nil), toolhealth.CheckContract[string](nil), check("2", bad), check("3", nil))
	assert.ErrorIs(t, err, bad)
	assert.Equal(t, []string{"1", "2"}, ran)
	_, err = toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run, check("never", nil))
	assert.ErrorIs(t, err, errBusy)
	assert.Len(t, ran, 2)

}

// The exit code 1 of grep means that it found nothing. That is an answer: the call
// succeeds, and no substitute runs.
func TestGuard_ErrorClassifiedAsSuccessIsReturned(t *testing.T) {
	nothingFound := &exec.ExitError{}
	r := toolhealth.NewRegistry()
	router, err := toolhealth.NewHealthRouter(map[string][]string{"grep": {"b"}})
	require.NoError(t, err)
	rules := toolhealth.ErrorRules{Own: []toolhealth.Rule{toolhealth.RuleFor(func(e *exec.ExitError) toolhealth.Verdict {
		if e == nothingFound {
			return toolhealth.Verdict{}
		}
		return serverError
	})}}
	var final toolhealth.Event
	g := guardOverGate(t, &toolhealth.Gate{Registry: r, Router: router, Classify: rules.Classify}, func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) { final = e }
	})
	for range 8 {
		ctx, info := toolhealth.WithCallInfo(t.Context())
		out, err := toolhealth.Call(ctx, g, "grep", func(context.Context, string) (string, error) { return "0 lines", nothingFound })
		assert.Equal(t, "0 lines", out)
		assert.Same(t, nothingFound, err, "the error is returned unchanged")
		assert.Equal(t, toolhealth.CallInfo{Requested: "grep", Served: "grep", Attempts: 1}, *info)
		assert.Equal(t, toolhealth.StopNone, final.Reason)
	}
	_, err = toolhealth.Call(t.Context(), g, "grep", func(context.Context, string) (string, error) { return "", &exec.ExitError{} })
	require.Error(t, err)
	h := healthOf(t, r, "grep")
	assert.Equal(t, uint64(8), h.Successes)
	assert.Equal(t, uint64(1), h.Failures)
	assert.Equal(t, uint64(1), h.Guard.Failed)
}

func TestGuard_PanickingClassifierMeansUnknown(t *testing.T) {
	g := guardOverGate(t, &toolhealth.Gate{Registry: patient(t), Classify: func(context.Context, error) toolhealth.Verdict { panic("mine") }}, nil)
	_, err := toolhealth.Call(t.Context(), g, "a", plays(errBusy).Run)
	assert.Equal(t, toolhealth.KindUnknown, toolError(t, err).Verdict.Kind)
	assert.ErrorIs(t, err, errBusy)
}
