package llm_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

func TestChat_Answers(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveJSON(t, http.StatusOK, p.good)
		answer, err := p.chat(t.Context(), guard, s.URL)
		require.NoError(t, err)
		assert.Equal(t, "hello", answer)
		assert.EqualValues(t, 1, health(t, guard, p.tool).Successes)
	})
}

// The fourth call is refused, and no request more has reached the server.
func TestChat_OverloadOpensBreaker(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveJSON(t, 529, p.error(529))
		for range 3 {
			_, err := p.chat(t.Context(), guard, s.URL)
			require.Error(t, err)
		}
		_, err := p.chat(t.Context(), guard, s.URL)
		require.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		text, ok := toolhealth.ModelText(err)
		assert.True(t, ok)
		assert.Equal(t, refusal, text)

		h := health(t, guard, p.tool)
		assert.Equal(t, toolhealth.StateOpen, h.State)
		assert.Equal(t, toolhealth.KindServerError, h.LastFailure)
		assert.EqualValues(t, 3, h.Failures)
		assert.EqualValues(t, 1, h.Refused)
		assert.EqualValues(t, 3, s.hits.Load(), "requests")
	})
}

// Two attempts of the guard are two requests: the SDK adds none.
func TestChat_OnlyGuardRepeats(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard := newGuard(t, toolhealth.Settings{Policy: toolhealth.Policy{BackoffBase: time.Millisecond}})
		s := serveJSON(t, 529, p.error(529))
		_, err := p.chat(t.Context(), guard, s.URL)
		require.Error(t, err)
		assert.EqualValues(t, 2, health(t, guard, p.tool).Failures)
		assert.EqualValues(t, 2, s.hits.Load(), "requests")
	})
}

func TestChat_RetryAfterThrottles(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveJSON(t, http.StatusTooManyRequests, p.error(429), "Retry-After", "7")
		_, err := p.chat(t.Context(), guard, s.URL)
		require.Error(t, err)
		_, err = p.chat(t.Context(), guard, s.URL) // another caller
		require.ErrorIs(t, err, toolhealth.ErrRateLimited)

		h := health(t, guard, p.tool)
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.Equal(t, toolhealth.StopRateLimited, h.Reason)
		assert.LessOrEqual(t, h.RetryAfter, 7*time.Second)
		assert.Greater(t, h.RetryAfter, time.Duration(0))
		assert.EqualValues(t, 1, h.Throttled)
		assert.EqualValues(t, 1, h.Refused)
		assert.Zero(t, h.Failures)
		assert.EqualValues(t, 1, s.hits.Load(), "requests")
	})
}

// The wait holds no longer than it was stated.
func TestChat_ThrottleEnds(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		t.Parallel()
		guard := newGuard(t, once())
		busy := serveJSON(t, http.StatusTooManyRequests, p.error(429), "Retry-After", "1")
		well := serveJSON(t, http.StatusOK, p.good)
		sent := time.Now()
		_, err := p.chat(t.Context(), guard, busy.URL)
		require.Error(t, err)
		require.Eventually(t, func() bool { return guard.Registry().Available(p.tool) }, wait, 10*time.Millisecond)
		assert.GreaterOrEqual(t, time.Since(sent), time.Second)
		_, err = p.chat(t.Context(), guard, well.URL)
		assert.NoError(t, err)
	})
}

// A dead key is not the provider's failure, is not tried twice, and is no secret of the
// model's.
func TestChat_DeadKeyIsRejected(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, toolhealth.Settings{}), serveJSON(t, http.StatusUnauthorized, p.error(401))
		for range 10 {
			_, err := p.chat(t.Context(), guard, s.URL)
			require.Error(t, err)
			text, _ := toolhealth.ModelText(err)
			assert.Equal(t, "tool failed: access was refused", text)
		}
		h := health(t, guard, p.tool)
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 10, h.Rejected)
		assert.EqualValues(t, 10, h.RejectedByKind[toolhealth.KindUnauthorized])
		assert.Equal(t, toolhealth.Degraded, h.Status, "a dead key is shown")
		assert.EqualValues(t, 10, s.hits.Load(), "requests")
	})
}

// An empty quota comes with the status of a rate limit, but is not tried twice.
func TestChat_EmptyQuotaIsNotRepeated(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		if p.quota == "" {
			t.Skip("this provider has no code of its own for it")
		}
		guard, s := newGuard(t, toolhealth.Settings{}), serveJSON(t, http.StatusTooManyRequests, p.quota)
		_, err := p.chat(t.Context(), guard, s.URL)
		require.Error(t, err)
		assert.EqualValues(t, 1, health(t, guard, p.tool).ByKind[toolhealth.KindQuotaExhausted])
		assert.EqualValues(t, 1, s.hits.Load(), "requests")
	})
}

// There is nothing to tell the model, and nothing counts against the provider.
func TestChat_CanceledCallerEndsRun(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		ctx, cancel := context.WithCancel(t.Context())
		guard := newGuard(t, toolhealth.Settings{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			hang(w, r)
		})
		_, err := p.chat(ctx, guard, s.URL)
		require.ErrorIs(t, err, context.Canceled)
		_, ok := toolhealth.ModelText(err)
		assert.False(t, ok)
		h := health(t, guard, p.tool)
		assert.EqualValues(t, 1, h.Neutral)
		assert.Zero(t, h.Failures)
		assert.EqualValues(t, 1, s.hits.Load(), "requests")
	})
}

// Google states the wait in the body of the answer, and not in its header.
func TestGenAIChat_RetryInfoThrottles(t *testing.T) {
	guard := newGuard(t, once())
	s := serveJSON(t, http.StatusTooManyRequests, `{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"21s"}]}}`)
	_, err := gemini.chat(t.Context(), guard, s.URL)
	require.Error(t, err)
	h := health(t, guard, "genai")
	assert.EqualValues(t, 1, h.Throttled)
	assert.LessOrEqual(t, h.RetryAfter, 21*time.Second)
	assert.Greater(t, h.RetryAfter, 10*time.Second)
}
