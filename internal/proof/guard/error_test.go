package guard_test

import (
	"context"
	"encoding/json"
	"errors"
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
		{&toolhealth.ToolError{Reason: toolhealth.StopCircuitOpen, Kind: toolhealth.KindRefused, RetryAfter: 11100 * time.Millisecond}, `{"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":12,"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 12s"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopRetryExhausted, Kind: toolhealth.KindTimeout, Attempts: 2}, `{"reason":"tool_failure:retry_exhausted","kind":"timeout","attempts":2,"text":"tool failed after 2 attempts: no answer in time"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopCanceled, Kind: toolhealth.KindCanceled, Attempts: 1}, `{"reason":"tool_canceled","kind":"canceled","attempts":1,"text":"tool call canceled"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopUnknownTool, Kind: toolhealth.KindRefused}, `{"reason":"tool_unavailable:unknown_tool","kind":"refused","attempts":0,"text":"unknown tool"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopNonRetryable, Kind: toolhealth.KindInvalidRequest, Attempts: 1}, `{"reason":"tool_failure:non_retryable","kind":"invalid_request","attempts":1,"text":"tool failed: the request was rejected"}`},
		{&toolhealth.ToolError{Reason: toolhealth.StopNonRetryable, Kind: 200}, `{}`},
	} {
		got, err := json.Marshal(c.e)
		if c.e.Kind == 200 {
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
	_, err := toolhealth.Call(t.Context(), g, "a", failing(toolhealth.WithVerdict(errBusy, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: 200})).run)
	e := toolError(t, err)
	assert.Equal(t, toolhealth.KindUnknown, e.Kind)
	_, err = json.Marshal(e)
	assert.NoError(t, err)
}

func TestGuard_DetailsNameWhatModelMustNotRead(t *testing.T) {
	g := guardWithBackups(t, patient(t), nil, "b")
	_, err := toolhealth.Call(t.Context(), g, "a", failing(errors.New("dial db-7.internal: no route")).run)
	e := toolError(t, err)
	assert.Equal(t, "tool failed after 2 attempts: unknown error", e.Error())
	assert.Equal(t, `"a": tool_failure:non_retryable, kind unknown, 2 attempts; `+
		`"a": tool_failure:non_retryable: "dial db-7.internal: no route"; "b": tool_failure:non_retryable: "dial db-7.internal: no route"`, e.Details())
}

func TestGuard_ErrorTextHasNothingOfToolErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOn(t, patient(t), nil)
		_, err := toolhealth.Call(t.Context(), g, "a", failing(errBusy).run)
		assert.Equal(t, "tool failed after 2 attempts: internal error of the tool", err.Error())
		assert.False(t, strings.Contains(err.Error(), "db-7"))
	})
}

func TestGuard_NilToolErrorInTreeIsHarmless(t *testing.T) {
	var none *toolhealth.ToolError
	_, err := toolhealth.Call(t.Context(), guardOn(t, patient(t), nil), "a", plays(errors.Join(none, statusErr(404))).run)
	assert.Equal(t, toolhealth.StopNonRetryable, toolError(t, err).Reason)
}

func TestGuard_DetailsOfCandidateWithoutError(t *testing.T) {
	e := &toolhealth.ToolError{Tool: "a", Reason: toolhealth.StopCanceled, Kind: toolhealth.KindCanceled, Candidates: []toolhealth.Candidate{{Tool: "a", Reason: toolhealth.StopCanceled}}}
	assert.Equal(t, `"a": tool_canceled, kind canceled, 0 attempts; "a": tool_canceled`, e.Details())
}
