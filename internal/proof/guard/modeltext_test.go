package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// failed returns the error of a guarded call of a tool that fails with err.
func failed(t *testing.T, err error, change func(*toolhealth.GuardConfig)) error {
	t.Helper()
	_, err = toolhealth.Call(t.Context(), guardOn(t, patient(t), change), "a", failing(err).Run)
	require.Error(t, err)
	return err
}

// once is a GuardConfig without retries.
func once(c *toolhealth.GuardConfig) { c.Default.MaxAttempts = 1 }

// canceled is the verdict of a call whose caller left.
var canceled = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}

func assertModelText(t *testing.T, want string, wantOK bool, err error) {
	t.Helper()
	text, ok := toolhealth.ModelText(err)
	assert.Equal(t, want, text, "%v", err)
	assert.Equal(t, wantOK, ok, "%v", err)
}

func TestModelText_FollowsVerdict(t *testing.T) {
	const own = "no such page; see https://db-7.internal/x?key=s3cret\nand:"
	for _, c := range []struct {
		outcome toolhealth.Outcome
		kind    toolhealth.Kind
		text    string
		ok      bool
	}{
		{toolhealth.OutcomeRejected, toolhealth.KindInvalidRequest, "no such page; see [URL] and:", true},
		{toolhealth.OutcomeRejected, toolhealth.KindNotFound, "no such page; see [URL] and:", true},
		{toolhealth.OutcomeRejected, toolhealth.KindConflict, "no such page; see [URL] and:", true},
		{toolhealth.OutcomeRejected, toolhealth.KindUnauthorized, "tool failed: access was refused", true},
		{toolhealth.OutcomeFailure, toolhealth.KindNotFound, "tool failed: not found", true},
		{toolhealth.OutcomeFailure, toolhealth.KindTimeout, "tool failed: no answer in time", true},
		{toolhealth.OutcomeFailure, toolhealth.KindUnknown, "tool failed: unknown error", true},
		{toolhealth.OutcomeNeutral, toolhealth.KindNotDispatched, "tool failed: the request was not sent", true},
		{toolhealth.OutcomeNeutral, toolhealth.KindDenied, "", false},
	} {
		err := toolhealth.WithVerdict(errors.New(own), toolhealth.Verdict{Outcome: c.outcome, Kind: c.kind})
		assertModelText(t, c.text, c.ok, failed(t, err, nil))
		assertModelText(t, c.text, c.ok, fmt.Errorf("wrapped: %w", failed(t, err, nil)))
		if c.text != "no such page; see [URL] and:" {
			assertModelText(t, c.text, c.ok, fmt.Errorf("wrapped: %w", err)) // of a loop with a toolhealth.Gate, which has no toolhealth.ToolError
		} else {
			assertModelText(t, "wrapped: "+c.text, c.ok, fmt.Errorf("wrapped: %w", err))
		}
	}
	assertModelText(t, "", true, nil)
	assertModelText(t, "tool failed: rate limited; retry after 7s", true, toolhealth.WithVerdict(errBusy, toolhealth.Verdict{
		Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, RetryAfter: 7 * time.Second}))
}

func TestModelText_GoneCallerHasNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := toolhealth.Call(ctx, guardOn(t, patient(t), nil), "a", func(context.Context, string) (string, error) {
		cancel()
		return "", errBusy
	})
	assertModelText(t, "", false, err)
	_, err = new(toolhealth.Gate).Allow(ctx, "a")
	assertModelText(t, "", false, err)
	assertModelText(t, "", false, &toolhealth.ToolError{Reason: toolhealth.StopOutcomeUnknown, Canceled: context.Canceled})
	assertModelText(t, "tool failed: no answer in time", true, context.DeadlineExceeded)
}

func TestModelText_RefusalIsSafe(t *testing.T) {
	r := toolhealth.NewRegistry()
	failTimes(r, "a", 3)
	want := "tool temporarily unavailable: circuit breaker open; retry after 30s"
	_, err := toolhealth.Call(t.Context(), guardOn(t, r, nil), "a", plays().Run)
	assertModelText(t, want, true, err)
	_, err = (&toolhealth.Gate{Registry: r}).Allow(t.Context(), "a")
	assertModelText(t, want, true, err)
	acts := func(c *toolhealth.GuardConfig) { c.Default.SideEffects = true }
	assertModelText(t, "tool outcome unknown: the action may have been carried out, check before repeating it", true, failed(t, errBusy, acts))
}

// An approval that is pending has to interrupt the run, whichever tool it is of.
func TestModelText_PendingApprovalOfSubstituteHasNone(t *testing.T) {
	g := guardWithBackups(t, patient(t), once, "b")
	_, err := toolhealth.Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
		if tool == "b" {
			return "", toolhealth.WithVerdict(errors.New("ask alice"), denied)
		}
		return "", errBusy
	})
	assert.Equal(t, toolhealth.OutcomeFailure, toolError(t, err).Verdict.Outcome)
	assertModelText(t, "", false, err)
}

func TestModelText_HostileErrorsDoNoHarm(t *testing.T) {
	wordy := toolhealth.WithVerdict(errors.New(strings.Repeat("ä", 1000)), invalid)
	text, ok := toolhealth.ModelText(failed(t, wordy, nil))
	assert.True(t, ok)
	assert.Equal(t, 500, utf8.RuneCountInString(text))
	assertModelText(t, "tool failed: the request was rejected", true, failed(t, toolhealth.WithVerdict(errors.New("\n"), invalid), nil))
	assertModelText(t, "tool failed: not found", true, failed(t, toolhealth.WithVerdict(panickingError{}, toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindNotFound}), nil))
	assertModelText(t, "tool failed: unknown error", true, errors.Join((*toolhealth.ToolError)(nil), (*toolhealth.Refusal)(nil)))
	assertModelText(t, "tool failed: unknown error", true, new(toolhealth.ToolError))
}

// panickingError is an error without a text.
type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

func TestToolError_CauseIsErrorBehindReason(t *testing.T) {
	g := guardWithBackups(t, patient(t), once, "b")
	fails := func(primary, substitute error) *toolhealth.ToolError {
		_, err := toolhealth.Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
			if tool == "b" {
				return "", substitute
			}
			return "", primary
		})
		return toolError(t, err)
	}
	e := fails(errBusy, errBroken)
	assert.Equal(t, error(errBusy), e.Cause(), "the primary's")
	assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}, e.Verdict)
	assert.Equal(t, unknown, e.Candidates[1].Verdict)

	gaveUp := toolhealth.WithVerdict(errors.New("the user left"), toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled})
	e = fails(errBusy, gaveUp)
	assert.Equal(t, toolhealth.StopCanceled, e.Reason)
	assert.Equal(t, gaveUp, e.Cause(), "a substitute's that ended the call")
	assert.Equal(t, canceled, e.Verdict)

	g.Registry().Isolate("a", "")
	g.Registry().Isolate("b", "")
	e = fails(nil, nil)
	assert.ErrorIs(t, e.Cause(), toolhealth.ErrIsolated)
	assert.Equal(t, toolhealth.OutcomeNeutral, e.Verdict.Outcome)
	assert.Equal(t, toolhealth.KindRefused, e.Verdict.Kind)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := toolhealth.Call(ctx, g, "a", plays().Run)
	e = toolError(t, err)
	assert.Equal(t, context.Canceled, e.Cause(), "there is no other")
	assert.Equal(t, canceled, e.Verdict)
	assert.NoError(t, new(toolhealth.ToolError).Cause())
}

func TestModelText_OfEachReason(t *testing.T) {
	own := statusErr(409)
	for reason, want := range map[toolhealth.StopReason]string{
		toolhealth.StopNonRetryable: own.Error(), toolhealth.StopRetryExhausted: own.Error(), toolhealth.StopRetryBudgetExhausted: own.Error(),
		toolhealth.StopCanceled: "",
	} {
		e := &toolhealth.ToolError{
			Tool: "a", Reason: reason, Verdict: collided,
			Candidates: []toolhealth.Candidate{{Tool: "a", Reason: reason, Verdict: collided, Err: own}},
		}
		text, ok := toolhealth.ModelText(e)
		assert.Equal(t, want, text, "%v", reason)
		assert.Equal(t, want != "", ok, "%v", reason)
	}
}
