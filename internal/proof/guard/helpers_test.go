package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/setup"
	"github.com/toolhealth/toolhealth/internal/proof/tooltest"
)

// What setup makes, by short names.
var (
	registryWith  = setup.Registry
	failTimes     = setup.Fail
	healthOf      = setup.Health
	guardOn       = setup.Guard
	guardOverGate = setup.GuardOver
)

// What tooltest has, by short names.
type (
	actor     = tooltest.Actor
	statusErr = tooltest.StatusError
)

var (
	plays         = tooltest.Plays
	failing       = tooltest.Failing
	endsGoroutine = tooltest.EndsGoroutine
)

// patient returns a registry whose breakers do not open, so that a test of retries
// sees nothing but retries.
func patient(t testing.TB) *toolhealth.Registry {
	t.Helper()
	return registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1_000_000 })
}

// guardWithBackups is guardOn with substitutes for the tool "a".
func guardWithBackups(t testing.TB, r *toolhealth.Registry, change func(*toolhealth.GuardConfig), substitutes ...string) *toolhealth.Guard {
	t.Helper()
	return guardOverGate(t, &toolhealth.Gate{Registry: r, Router: setup.Router(t, map[string][]string{"a": substitutes})}, change)
}

// bare returns p with every rule switched off that it does not set.
func bare(p toolhealth.Policy) toolhealth.Policy {
	for _, n := range []*int{&p.MaxAttempts, &p.RetryBudget} {
		if *n == 0 {
			*n = toolhealth.Off
		}
	}
	for _, d := range []*time.Duration{&p.Timeout, &p.MaxDuration, &p.BackoffBase, &p.BackoffMax, &p.MaxWait, &p.RetryRefill} {
		if *d == 0 {
			*d = toolhealth.Off
		}
	}
	for _, f := range []*float64{&p.BackoffFactor, &p.Jitter} {
		if *f == 0 {
			*f = toolhealth.Off
		}
	}
	return p
}

// ignoreEvents is an observer that does nothing.
func ignoreEvents(context.Context, toolhealth.Event) {}

// Verdicts for the errors of tools and for Next.
var (
	serverError   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}
	retryable     = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}
	unreachable   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}
	unknown       = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindUnknown}
	invalid       = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}
	collided      = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindConflict, Retryable: true}
	denied        = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}
	hostExhausted = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, Retryable: true}
)

var (
	errUnsent = toolhealth.WithVerdict(errors.New("refused by 10.0.0.7"), unreachable)
	errBusy   = statusErr(503)
	errBroken = errors.New("broken")
)

// throttledFor returns the error of a tool that is rate limited and asks for this
// wait.
func throttledFor(wait time.Duration) error {
	return toolhealth.WithVerdict(errors.New("429"), toolhealth.Verdict{
		Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: wait,
	})
}

// toolFunc is a tool function.
type toolFunc = func(context.Context, string) (string, error)

// obeys returns a tool function that takes this long and returns early when its ctx
// is done.
func obeys(d time.Duration) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) {
		select {
		case <-time.After(d):
			return "late", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// ignores returns a tool function that takes this long and ignores its ctx.
func ignores(d time.Duration) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) {
		time.Sleep(d)
		return "late", nil
	}
}

// toolError returns err as a *ToolError, or fails the test.
func toolError(t testing.TB, err error) *toolhealth.ToolError {
	t.Helper()
	var e *toolhealth.ToolError
	require.ErrorAs(t, err, &e)
	return e
}

// retriesLeft takes all tokens out of the tool's budget and returns how many there
// were. The tool's breaker must be closed. A neutral verdict takes a token and
// changes nothing else.
func retriesLeft(t testing.TB, g *toolhealth.Guard, tool string) (left int) {
	t.Helper()
	d := g.Next(tool, 1, hostExhausted)
	for ; d.Reason == toolhealth.RetryAllowed; d = g.Next(tool, 1, hostExhausted) {
		left++
	}
	assert.Equal(t, toolhealth.StopRetryBudgetExhausted, d.Reason)
	return left
}

// takeTokens takes n tokens out of the tool's budget.
func takeTokens(t testing.TB, g *toolhealth.Guard, tool string, n int) {
	t.Helper()
	for range n {
		require.Equal(t, toolhealth.RetryAllowed, g.Next(tool, 1, hostExhausted).Reason)
	}
}

// giveTenths puts n tenths of a token into the tool's budget, which n successes do.
func giveTenths(g *toolhealth.Guard, tool string, n int) {
	for range n {
		g.Next(tool, 1, toolhealth.Verdict{})
	}
}
