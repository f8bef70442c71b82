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

func TestStream_ToItsEndIsSuccess(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveStream(t, p.begin+p.pieces("hel")+p.pieces("lo")+p.end, finish)
		text, err := read(p.stream(t.Context(), guard, s.URL))
		require.NoError(t, err)
		assert.Equal(t, "hello", text)
		h := health(t, guard, p.tool)
		assert.EqualValues(t, 1, h.Successes)
		assert.Zero(t, h.InFlight)
	})
}

// What was said stays said; nothing is repeated, though the policy has two attempts.
func TestStream_CutIsFailure(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, toolhealth.Settings{}), serveStream(t, p.begin+p.pieces("hel"), cut)
		for _, told := range []string{unreachable, unreachable, refusal} { // the third failure opens the breaker
			text, err := read(p.stream(t.Context(), guard, s.URL))
			assert.Equal(t, "hel", text)
			require.Error(t, err)
			said, ok := toolhealth.ModelText(err)
			assert.True(t, ok)
			assert.Equal(t, told, said)
		}
		h := health(t, guard, p.tool)
		assert.Equal(t, toolhealth.StateOpen, h.State)
		assert.EqualValues(t, 3, h.ByKind[toolhealth.KindConnection])
		assert.Zero(t, h.InFlight)
		assert.EqualValues(t, 3, s.hits.Load(), "requests")

		_, err := read(p.stream(t.Context(), guard, s.URL))
		require.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		assert.EqualValues(t, 3, s.hits.Load(), "requests")
	})
}

// The SDKs take the end of the body for the end of the stream.
func TestStream_WithoutLastEventIsFailure(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveStream(t, p.begin+p.pieces("hel"), finish)
		text, err := read(p.stream(t.Context(), guard, s.URL))
		assert.Equal(t, "hel", text)
		require.Error(t, err)
		assert.EqualValues(t, 1, health(t, guard, p.tool).ByKind[toolhealth.KindConnection])
	})
}

func TestStream_ErrorEventIsFailure(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveStream(t, p.begin+p.pieces("hel")+p.broken, finish)
		text, err := read(p.stream(t.Context(), guard, s.URL))
		assert.Equal(t, "hel", text)
		require.Error(t, err)
		assert.EqualValues(t, 1, health(t, guard, p.tool).ByKind[toolhealth.KindServerError])
	})
}

// The server is told, too: it would hang until the client leaves.
func TestStream_ReaderLeavesIsNeutral(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard, s := newGuard(t, once()), serveStream(t, p.begin+p.pieces("hel"), hang)
		for range 3 {
			for text, err := range p.stream(t.Context(), guard, s.URL) {
				require.NoError(t, err)
				assert.Equal(t, "hel", text)
				break
			}
		}
		h := health(t, guard, p.tool)
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 3, h.Neutral)
		assert.Zero(t, h.Failures)
		assert.Zero(t, h.InFlight)
	})
}

func TestStream_CanceledCallerIsNeutral(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		guard, s := newGuard(t, once()), serveStream(t, p.begin+p.pieces("hel"), hang)
		var failed error
		for _, err := range p.stream(ctx, guard, s.URL) {
			cancel()
			failed = err
		}
		require.ErrorIs(t, failed, context.Canceled)
		_, ok := toolhealth.ModelText(failed)
		assert.False(t, ok)
		h := health(t, guard, p.tool)
		assert.EqualValues(t, 1, h.Neutral)
		assert.Zero(t, h.Failures)
	})
}

// A refused opening is repeated by the guard, as any call is.
func TestStream_OpeningIsRepeated(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		guard := newGuard(t, toolhealth.Settings{Policy: toolhealth.Policy{BackoffBase: time.Millisecond}})
		s := serveJSON(t, 529, p.error(529))
		text, err := read(p.stream(t.Context(), guard, s.URL))
		require.Error(t, err)
		assert.Empty(t, text)
		assert.EqualValues(t, 2, health(t, guard, p.tool).ByKind[toolhealth.KindServerError])
		assert.EqualValues(t, 2, s.hits.Load(), "requests")
	})
}

// The Timeout of the policy is the longest silence, not the length of the stream.
func TestStream_TimeoutIsSilence(t *testing.T) {
	forEach(t, func(t *testing.T, p provider) {
		t.Parallel()
		settings := once()
		settings.Policy.Timeout = time.Second
		guard := newGuard(t, settings)

		long := serveStream(t, p.begin, func(w http.ResponseWriter, r *http.Request) {
			for range 12 {
				time.Sleep(100 * time.Millisecond)
				write(w, p.pieces("."))
			}
			write(w, p.end)
		})
		text, err := read(p.stream(t.Context(), guard, long.URL))
		require.NoError(t, err)
		assert.Len(t, text, 12)

		silent := serveStream(t, p.begin+p.pieces("hel"), hang)
		text, err = read(p.stream(t.Context(), guard, silent.URL))
		assert.Equal(t, "hel", text)
		require.Error(t, err)
		assert.EqualValues(t, 1, health(t, guard, p.tool).ByKind[toolhealth.KindTimeout])
	})
}
