package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// A call whose failures open the group stops there, and a substitute behind another
// server serves.
func TestGuard_CallStopsWhenItsGroupOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{
			GroupSeparator: "/",
			Policy:         toolhealth.Policy{MaxAttempts: 10, Timeout: toolhealth.Off},
			Breaker:        toolhealth.BreakerConfig{FailureThreshold: 100, RecoveryDuration: time.Second},
		})
		require.NoError(t, err)
		runs := 0
		reset := toolhealth.WithVerdict(errors.New("reset"), toolhealth.Verdict{
			Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true,
		})
		search := toolhealth.Wrap(g, "dead/search", func(context.Context, int) (string, error) { runs++; return "", reset })
		_, err = search.Call(t.Context(), 0)
		failed, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, []any{3, toolhealth.StopCircuitOpen}, []any{runs, failed.Reason})
		assert.Equal(t, toolhealth.StateClosed, healthOf(t, g.Registry(), "dead/search").State)
		_, err = search.Call(t.Context(), 0)
		refusal, ok := errors.AsType[*toolhealth.Refusal](err)
		require.True(t, ok)
		assert.Equal(t, "dead", refusal.Group)
		assert.Equal(t, 3, runs)
		both := search.Substitute("alive/search", func(context.Context, int) (string, error) { return "found", nil })
		out, err := both.Call(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, "found", out)
		time.Sleep(time.Minute)
		_, err = search.Call(t.Context(), 0)
		require.Error(t, err)
		assert.Equal(t, 4, runs, "the probe of the group has failed, so there is no second attempt")
		assert.True(t, g.Registry().IsolateGroup("dead", "ada"))
		_, err = search.Call(t.Context(), 0)
		assert.ErrorIs(t, err, toolhealth.ErrIsolated)
		assert.Zero(t, healthOf(t, g.Registry(), "dead/search").InFlight)
	})
}

// A call whose group an operator takes out while it runs does not wait for what the tool
// has stated.
func TestGuard_NoWaitBesideGroupThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/"})
		require.NoError(t, err)
		search := toolhealth.Wrap(g, "mcp/search", func(context.Context, int) (string, error) {
			g.Registry().IsolateGroup("mcp", "ada")
			return "", toolhealth.WithVerdict(errors.New("wait"), toolhealth.Verdict{
				Outcome: toolhealth.OutcomeThrottled, Retryable: true, RetryAfter: 20 * time.Second,
			})
		})
		began := time.Now()
		_, err = search.Call(t.Context(), 0)
		failed, ok := errors.AsType[*toolhealth.ToolError](err)
		require.True(t, ok)
		assert.Equal(t, []any{toolhealth.StopIsolated, time.Duration(0)}, []any{failed.Reason, time.Since(began)})
	})
}
