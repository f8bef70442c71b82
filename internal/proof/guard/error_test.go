package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestGuard_ToolErrorJSON(t *testing.T) {
	for _, c := range []struct {
		e    *toolhealth.ToolError
		want string
	}{
		{&toolhealth.ToolError{Reason: toolhealth.StopCircuitOpen, Verdict: toolhealth.Verdict{Kind: toolhealth.KindRefused}, RetryAfter: 11100 * time.Millisecond}, `{"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":12,"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 12s"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopRetryExhausted, Verdict: toolhealth.Verdict{Kind: toolhealth.KindTimeout}, Attempts: 2}, `{"reason":"tool_failure:retry_exhausted","kind":"timeout","attempts":2,"text":"tool failed after 2 attempts: no answer in time"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopCanceled, Verdict: toolhealth.Verdict{Kind: toolhealth.KindCanceled}, Attempts: 1}, `{"reason":"tool_canceled","kind":"canceled","attempts":1,"text":"tool call canceled"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopUnknownTool, Verdict: toolhealth.Verdict{Kind: toolhealth.KindRefused}}, `{"reason":"tool_unavailable:unknown_tool","kind":"refused","attempts":0,"text":"unknown tool"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopNonRetryable, Verdict: toolhealth.Verdict{Kind: toolhealth.KindInvalidRequest}, Attempts: 1}, `{"reason":"tool_failure:non_retryable","kind":"invalid_request","attempts":1,"text":"tool failed: the request was rejected"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopNonRetryable, Verdict: toolhealth.Verdict{Kind: 200}}, `{}`},
	} {
		got, err := json.Marshal(c.e)
		if c.e.Verdict.Kind == 200 {
			assert.Error(t, err, "an invalid kind has no text")
			assert.Equal(t, "tool failed: unknown error", c.e.Error())
			continue
		}
		require.NoError(t, err)
		assert.JSONEq(t, c.want, string(got))
	}
}

func TestGuard_ToolErrorUnwrapsToErrorsOnly(t *testing.T) {
	e := &toolhealth.ToolError{Candidates: []toolhealth.Candidate{{}, {Err: errBusy}}}
	assert.Equal(t, []error{errBusy}, e.Unwrap())
	e.Canceled = context.Canceled
	assert.Equal(t, []error{errBusy, context.Canceled}, e.Unwrap())
}

func TestGuard_InvalidKindBecomesUnknown(t *testing.T) {
	g := guardOn(t, patient(t), nil)
	_, err := toolhealth.Call(t.Context(), g, "a", failing(toolhealth.WithVerdict(errBusy, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: 200})).Run)
	e := toolError(t, err)
	assert.Equal(t, toolhealth.KindUnknown, e.Verdict.Kind)
	_, err = json.Marshal(e)
	assert.NoError(t, err)
}

func TestGuard_DetailsNameWhatModelMustNotRead(t *testing.T) {
	g := guardWithBackups(t, patient(t), nil, "b")
	_, err := toolhealth.Call(t.Context(), g, "a", failing(errors.New("dial db-7.internal: no route")).Run)
	e := toolError(t, err)
	assert.Equal(t, "tool failed after 2 attempts: unknown error", e.Error())
	assert.Equal(t, `"a": tool_failure:non_retryable, kind unknown, 2 attempts; `+
		`"a": tool_failure:non_retryable: "dial db-7.internal: no route"; "b": tool_failure:non_retryable: "dial db-7.internal: no route"`, e.Details())
}

func TestGuard_ErrorTextHasNothingOfToolErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), nil)
		_, err := toolhealth.Call(t.Context(), g, "a", failing(errBusy).Run)
		assert.Equal(t, "tool failed after 2 attempts: internal error of the tool", err.Error())
		assert.False(t, strings.Contains(err.Error(), "db-7"))
	})
}

func TestGuard_NilToolErrorInTreeIsHarmless(t *testing.T) {
	var none *toolhealth.ToolError
	_, err := toolhealth.Call(t.Context(), guardOn(t, patient(t), nil), "a", plays(errors.Join(none, statusErr(404))).Run)
	assert.Equal(t, toolhealth.StopNonRetryable, toolError(t, err).Reason)
}

func TestGuard_DetailsOfCandidateWithoutError(t *testing.T) {
	e := &toolhealth.ToolError{Tool: "a", Reason: toolhealth.StopCanceled, Verdict: toolhealth.Verdict{Kind: toolhealth.KindCanceled}, Candidates: []toolhealth.Candidate{{Tool: "a", Reason: toolhealth.StopCanceled}}}
	assert.Equal(t, `"a": tool_canceled, kind canceled, 0 attempts; "a": tool_canceled`, e.Details())
}

// silentError panics when its text is asked for.
type silentError struct{}

func (silentError) Error() string { panic("no text") }

// pointerError is an error of a user by pointer; its text needs one that is not nil.
type pointerError struct{ text string }

func (e *pointerError) Error() string { return e.text }

// Whatever names and errors there are, Details is one line of printable text.
func TestGuard_DetailsIsOneLine(t *testing.T) {
	var none *pointerError
	var noCall *toolhealth.ToolError
	for name, err := range map[string]error{
		"lines":        errors.New("line 1\nline 2\r\nline 3"),
		"a terminal":   errors.New("\x1b[2J\x07 cleared"),
		"separators":   errors.New("a\u2028b\u2029c\u0085d"),
		"no UTF-8":     errors.New("\xff\xfe"),
		"a typed nil":  none,
		"a panic":      silentError{},
		"a nil call":   noCall,
		"quotes":       errors.New(`say "no"`),
		"joined lines": errors.Join(errBusy, errBroken),
	} {
		g := guardWithBackups(t, patient(t), nil, "b\nc")
		_, failed := toolhealth.Call(t.Context(), g, "a", failing(err).Run)
		e := toolError(t, failed)
		details := e.Details()
		require.NotEmpty(t, details, name)
		for _, r := range details {
			assert.True(t, strconv.IsPrint(r), "%s: %q in %s", name, r, details)
		}
		assert.Contains(t, details, `"b\nc"`, name)
		assert.NotContains(t, e.Error(), "\n", name)
	}
	assert.Equal(t, `"a\nb": tool_canceled, kind canceled, 0 attempts`, (&toolhealth.ToolError{
		Tool: "a\nb", Reason: toolhealth.StopCanceled, Verdict: toolhealth.Verdict{Kind: toolhealth.KindCanceled},
	}).Details())
}

// How long an isolated or an unknown tool will stay so is not known: the cooldown that
// stands for it is no wait of the call.
func TestGuard_IsolatedAndUnknownToolsLendNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *toolhealth.Config) {
			c.RegisteredOnly = true
			a := c.Breaker
			a.RecoveryDuration = 5 * time.Minute
			c.Tools = map[string]toolhealth.BreakerConfig{"a": a, "b": c.Breaker}
		})
		var final toolhealth.Event
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) {
			c.Observe = func(_ context.Context, e toolhealth.Event) { final = e }
		}, "b", "unheard of")
		failTimes(r, "a", 3)
		require.True(t, r.Isolate("b", ""))
		_, err := toolhealth.Call(t.Context(), g, "a", plays().Run)
		e := toolError(t, err)
		require.Len(t, e.Candidates, 3)
		assert.Equal(t, 5*time.Minute, e.RetryAfter)
		assert.Equal(t, 5*time.Minute, final.Wait)
		assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 300s", err.Error())

		r.Isolate("a", "")
		_, err = toolhealth.Call(t.Context(), g, "a", plays().Run)
		e = toolError(t, err)
		assert.Equal(t, toolhealth.StopIsolated, e.Reason)
		assert.Zero(t, e.RetryAfter)
		assert.NotContains(t, err.Error(), "retry after")
		text, jsonErr := json.Marshal(e)
		require.NoError(t, jsonErr)
		assert.NotContains(t, string(text), "retry_after_seconds")
	})
}

// A caller's deadline is not the fault of the arguments.
func TestGuard_CallerDeadlineInSubstituteIsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := patient(t)
		g := guardWithBackups(t, r, func(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }, "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var names []string
		_, err := toolhealth.Call(ctx, g, "a", func(ctx context.Context, tool string) (string, error) {
			if names = append(names, tool); tool == "a" {
				return "", errBusy
			}
			return obeys(time.Minute)(ctx, tool)
		})
		e := toolError(t, err)
		assert.Equal(t, []string{"a", "b"}, names)
		assert.Equal(t, toolhealth.StopTimeout, e.Reason)
		assert.Equal(t, toolhealth.KindTimeout, e.Verdict.Kind)
		assert.Equal(t, context.DeadlineExceeded, e.Canceled)
		assert.Equal(t, "tool failed after 2 attempts: no answer in time", err.Error())
		assert.Equal(t, uint64(1), healthOf(t, r, "b").Failures)
	})
}

// A tool that may have acted when the caller's time was up has an unknown outcome; an
// answer of the tool that it timed out is the tool's.
func TestGuard_TimeoutIsReasonOnlyIfCallersTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), func(c *toolhealth.GuardConfig) {
			c.Tools = map[string]toolhealth.Policy{"pay": bare(toolhealth.Policy{SideEffects: true}), "short": bare(toolhealth.Policy{Timeout: time.Second})}
		})
		for tool, want := range map[string]toolhealth.StopReason{"pay": toolhealth.StopOutcomeUnknown, "short": toolhealth.StopRetryExhausted} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := toolhealth.Call(ctx, g, tool, obeys(time.Minute))
			cancel()
			assert.Equal(t, want, toolError(t, err).Reason, tool)
		}
		_, err := toolhealth.Call(t.Context(), g, "a", failing(toolhealth.WithVerdict(errBusy, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout,
		})).Run)
		assert.Equal(t, toolhealth.StopNonRetryable, toolError(t, err).Reason)
	})
}
