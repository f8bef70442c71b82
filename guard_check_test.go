package toolhealth

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flagged is a result as MCP has it: it came, and says that the tool failed.
type flagged struct {
	IsError bool
	Text    string
}

func flaggedIs(v Verdict) CallOption[flagged] {
	return CheckResult(func(f flagged) error {
		if f.IsError {
			return WithVerdict(errors.New(f.Text), v)
		}
		return nil
	})
}

func TestAFlaggedResultIsASoftFailureAndReachesTheCallerAsItIs(t *testing.T) {
	r := NewRegistry()
	g := guardOn(t, r, func(c *GuardConfig) { c.Default.MaxAttempts = 5 })
	want := flagged{true, "no such page"}
	runs := 0
	tool := func(context.Context, string) (flagged, error) { runs++; return want, nil }
	for range 3 {
		out, err := Call(t.Context(), g, "a", tool, flaggedIs(Verdict{Outcome: OutcomeFailure, Kind: KindServerError}))
		assert.Equal(t, want, out)
		assert.Equal(t, StopNonRetryable, toolError(t, err).Reason)
		assert.ErrorContains(t, toolError(t, err).Candidates[0].Err, "no such page")
	}
	assert.Equal(t, 3, runs)
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(3), h.Failures)
	assert.Zero(t, h.Successes, "nothing is credited before the check has seen the result")
	assert.Equal(t, StateOpen, h.State)
}

func TestWhatACheckFindsIsWhatItsErrorIsMarkedAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			v      Verdict
			runs   int
			reason StopReason
			state  State
		}{
			{Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true}, 3, StopCircuitOpen, StateOpen},
			{Verdict{Outcome: OutcomeRejected, Kind: KindNotFound}, 1, StopNonRetryable, StateClosed},
			{Verdict{Outcome: OutcomeNeutral, Kind: KindDenied}, 1, StopNonRetryable, StateClosed},
		} {
			r := NewRegistry()
			runs := 0
			_, err := Call(t.Context(), guardOn(t, r, func(gc *GuardConfig) { gc.Default.MaxAttempts = 5 }), "a",
				func(context.Context, string) (flagged, error) { runs++; return flagged{IsError: true}, nil }, flaggedIs(c.v))
			e := toolError(t, err)
			assert.Equal(t, c.runs, runs, "%v", c.v)
			assert.Equal(t, c.reason, e.Reason, "%v", c.v)
			assert.Equal(t, c.v.Kind, e.Kind)
			assert.Equal(t, c.state, healthOf(t, r, "a").State, "%v", c.v)
			assert.Zero(t, healthOf(t, r, "a").Successes, "%v", c.v)
		}
	})
}

func TestARetriedResultThatIsFineIsTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		out, err := Call(t.Context(), guardOn(t, patient(t), nil), "a",
			func(context.Context, string) (flagged, error) {
				runs++
				return flagged{IsError: runs == 1, Text: "x"}, nil
			},
			flaggedIs(vRetry))
		require.NoError(t, err)
		assert.Equal(t, flagged{false, "x"}, out)
	})
}

func TestAnEmptyAnswerIsTheThirdFailureNotASuccess(t *testing.T) {
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
	assert.Equal(t, KindContract, e.Kind)
	assert.Equal(t, "tool failed: the answer was not in the agreed format", err.Error())
	assert.Equal(t, StateOpen, healthOf(t, r, "a").State)
	assert.Equal(t, KindContract, healthOf(t, r, "a").LastFailure)
}

func TestABrokenContractFallsBack(t *testing.T) {
	g := guardWithBackups(t, patient(t), nil, "b")
	out, err := Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
		return map[string]string{"a": "<html>", "b": `{"ok":true}`}[tool], nil
	}, CheckContract(func(s string) error { return json.Unmarshal([]byte(s), new(any)) }))
	require.NoError(t, err)
	assert.Equal(t, `{"ok":true}`, out)
}

func TestChecksRunInOrderAndOnlyOnResults(t *testing.T) {
	var ran []string
	check := func(name string, err error) CallOption[string] {
		return CheckResult(func(string) error { ran = append(ran, name); return err })
	}
	bad := errors.New("second")
	g := guardOn(t, patient(t), func(c *GuardConfig) { c.Default.MaxAttempts = 1 })
	_, err := Call(t.Context(), g, "a", plays().run, check("1", nil), CheckResult[string](nil), CheckContract[string](nil), check("2", bad), check("3", nil))
	assert.ErrorIs(t, err, bad)
	assert.Equal(t, []string{"1", "2"}, ran)
	_, err = Call(t.Context(), g, "a", plays(errBusy).run, check("never", nil))
	assert.ErrorIs(t, err, errBusy)
	assert.Len(t, ran, 2)

	_, err = Wrap(g, "a", func(context.Context, int) (string, error) { return "x", nil },
		WithCallOptions(check("wrapped", bad)))(t.Context(), 1)
	assert.ErrorIs(t, err, bad)
	assert.Equal(t, []string{"1", "2", "wrapped"}, ran)
}

// grep says with exit code 1 that it found nothing: that used to come back as a
// failed call and went on to the substitutes.
func TestAnErrorThatTheClassifierCallsASuccessIsOne(t *testing.T) {
	nothingFound := &exec.ExitError{}
	r := NewRegistry()
	router, err := NewHealthRouter(map[string][]string{"grep": {"b"}})
	require.NoError(t, err)
	rules := ErrorRules{Own: []Rule{For(func(e *exec.ExitError) Verdict {
		if e == nothingFound {
			return Verdict{}
		}
		return vFailed
	})}}
	var final Event
	g := guardOverGate(t, &Gate{Registry: r, Router: router, Classify: rules.Classify}, func(c *GuardConfig) {
		c.Observe = func(_ context.Context, e Event) { final = e }
	})
	for range 8 {
		ctx, info := WithCallInfo(t.Context())
		out, err := Call(ctx, g, "grep", func(context.Context, string) (string, error) { return "0 lines", nothingFound })
		assert.Equal(t, "0 lines", out)
		assert.Same(t, nothingFound, err, "the error is handed on as it is")
		assert.Equal(t, CallInfo{Requested: "grep", Served: "grep", Attempts: 1}, *info)
		assert.Equal(t, StopNone, final.Reason)
	}
	_, err = Call(t.Context(), g, "grep", func(context.Context, string) (string, error) { return "", &exec.ExitError{} })
	require.Error(t, err)
	h := healthOf(t, r, "grep")
	assert.Equal(t, uint64(8), h.Successes)
	assert.Equal(t, uint64(1), h.Failures)
	assert.Equal(t, uint64(1), h.Guard.Failed)
}

func TestAClassifierThatPanicsIsNotTheCallersProblem(t *testing.T) {
	g := guardOverGate(t, &Gate{Registry: patient(t), Classify: func(context.Context, error) Verdict { panic("mine") }}, nil)
	_, err := Call(t.Context(), g, "a", plays(errBusy).run)
	assert.Equal(t, KindUnknown, toolError(t, err).Kind)
	assert.ErrorIs(t, err, errBusy)
}
