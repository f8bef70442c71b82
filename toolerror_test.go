package toolhealth

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
)

// failed returns the error of a guarded call of a tool that fails with err.
func failed(t *testing.T, err error, change func(*GuardConfig)) error {
	t.Helper()
	_, err = Call(t.Context(), guardOn(t, patient(t), change), "a", failing(err).run)
	require.Error(t, err)
	return err
}

func assertModelText(t *testing.T, want string, wantOK bool, err error) {
	t.Helper()
	text, ok := ModelText(err)
	assert.Equal(t, want, text, "%v", err)
	assert.Equal(t, wantOK, ok, "%v", err)
}

func TestModelText_FollowsVerdict(t *testing.T) {
	const own = "no such page; see https://db-7.internal/x?key=s3cret\nand:"
	for _, c := range []struct {
		outcome Outcome
		kind    Kind
		text    string
		ok      bool
	}{
		{OutcomeRejected, KindInvalidRequest, "no such page; see [URL] and:", true},
		{OutcomeRejected, KindNotFound, "no such page; see [URL] and:", true},
		{OutcomeRejected, KindConflict, "no such page; see [URL] and:", true},
		{OutcomeRejected, KindUnauthorized, "tool failed: access was refused", true},
		{OutcomeFailure, KindNotFound, "tool failed: not found", true},
		{OutcomeFailure, KindTimeout, "tool failed: no answer in time", true},
		{OutcomeFailure, KindUnknown, "tool failed: unknown error", true},
		{OutcomeNeutral, KindNotDispatched, "tool failed: the request was not sent", true},
		{OutcomeNeutral, KindDenied, "", false},
	} {
		err := WithVerdict(errors.New(own), Verdict{Outcome: c.outcome, Kind: c.kind})
		assertModelText(t, c.text, c.ok, failed(t, err, nil))
		assertModelText(t, c.text, c.ok, fmt.Errorf("wrapped: %w", failed(t, err, nil)))
		if c.text != "no such page; see [URL] and:" {
			assertModelText(t, c.text, c.ok, fmt.Errorf("wrapped: %w", err)) // of a loop with a Gate, which has no ToolError
		} else {
			assertModelText(t, "wrapped: "+c.text, c.ok, fmt.Errorf("wrapped: %w", err))
		}
	}
	assertModelText(t, "", true, nil)
	assertModelText(t, "tool failed: rate limited; retry after 7s", true, WithVerdict(errBusy, Verdict{
		Outcome: OutcomeThrottled, Kind: KindRateLimited, RetryAfter: 7 * time.Second}))
}

func TestModelText_GoneCallerHasNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Call(ctx, guardOn(t, patient(t), nil), "a", func(context.Context, string) (string, error) {
		cancel()
		return "", errBusy
	})
	assertModelText(t, "", false, err)
	_, err = new(Gate).Allow(ctx, "a")
	assertModelText(t, "", false, err)
	assertModelText(t, "", false, &ToolError{Reason: StopOutcomeUnknown, Canceled: context.Canceled})
	assertModelText(t, "tool failed: no answer in time", true, context.DeadlineExceeded)
}

func TestModelText_RefusalIsSafe(t *testing.T) {
	r := NewRegistry()
	failTimes(r, "a", 3)
	want := "tool temporarily unavailable: circuit breaker open; retry after 30s"
	_, err := Call(t.Context(), guardOn(t, r, nil), "a", plays().run)
	assertModelText(t, want, true, err)
	_, err = (&Gate{Registry: r}).Allow(t.Context(), "a")
	assertModelText(t, want, true, err)
	acts := func(c *GuardConfig) { c.Default.SideEffects = true }
	assertModelText(t, "tool outcome unknown: the action may have been carried out, check before repeating it", true, failed(t, errBusy, acts))
}

// An approval that is pending has to interrupt the run, whichever tool it is of.
func TestModelText_PendingApprovalOfSubstituteHasNone(t *testing.T) {
	g := guardWithBackups(t, patient(t), once, "b")
	_, err := Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
		if tool == "b" {
			return "", WithVerdict(errors.New("ask alice"), vPending)
		}
		return "", errBusy
	})
	assert.Equal(t, OutcomeFailure, toolError(t, err).Verdict.Outcome)
	assertModelText(t, "", false, err)
}

func TestModelText_HostileErrorsDoNoHarm(t *testing.T) {
	wordy := WithVerdict(errors.New(strings.Repeat("ä", 1000)), vInvalid)
	text, ok := ModelText(failed(t, wordy, nil))
	assert.True(t, ok)
	assert.Equal(t, 500, utf8.RuneCountInString(text))
	assertModelText(t, "tool failed: the request was rejected", true, failed(t, WithVerdict(errors.New("\n"), vInvalid), nil))
	assertModelText(t, "tool failed: not found", true, failed(t, WithVerdict(panickingError{}, vNotFound), nil))
	assertModelText(t, "tool failed: unknown error", true, errors.Join((*ToolError)(nil), (*Refusal)(nil)))
	assertModelText(t, "tool failed: unknown error", true, new(ToolError))
}

// panickingError is an error without a text.
type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

func TestToolError_CauseIsErrorBehindReason(t *testing.T) {
	g := guardWithBackups(t, patient(t), once, "b")
	fails := func(primary, substitute error) *ToolError {
		_, err := Call(t.Context(), g, "a", func(_ context.Context, tool string) (string, error) {
			if tool == "b" {
				return "", substitute
			}
			return "", primary
		})
		return toolError(t, err)
	}
	e := fails(errBusy, errBroken)
	assert.Equal(t, error(errBusy), e.Cause(), "the primary's")
	assert.Equal(t, Verdict{Outcome: OutcomeFailure, Kind: KindServerError, Retryable: true}, e.Verdict)
	assert.Equal(t, vUnknown, e.Candidates[1].Verdict)

	gaveUp := WithVerdict(errors.New("the user left"), Verdict{Outcome: OutcomeNeutral, Kind: KindCanceled})
	e = fails(errBusy, gaveUp)
	assert.Equal(t, StopCanceled, e.Reason)
	assert.Equal(t, gaveUp, e.Cause(), "a substitute's that ended the call")
	assert.Equal(t, vCanceled, e.Verdict)

	g.Registry().Isolate("a", "")
	g.Registry().Isolate("b", "")
	e = fails(nil, nil)
	assert.ErrorIs(t, e.Cause(), ErrIsolated)
	assert.Equal(t, vRefused.Outcome, e.Verdict.Outcome)
	assert.Equal(t, KindRefused, e.Verdict.Kind)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Call(ctx, g, "a", plays().run)
	e = toolError(t, err)
	assert.Equal(t, context.Canceled, e.Cause(), "there is no other")
	assert.Equal(t, vCanceled, e.Verdict)
	assert.NoError(t, new(ToolError).Cause())
}
