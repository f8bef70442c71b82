package httphealth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// closer is the body of a request.
type closer struct {
	io.Reader
	closed atomic.Bool
}

func (c *closer) Close() error { c.closed.Store(true); return nil }

// refused sends a request with a body while the breaker is open.
func refused(t *testing.T, w *world) (*http.Response, error) {
	t.Helper()
	for range 3 {
		w.registry.RecordFailure("api", 0)
	}
	body := &closer{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/?key=secret", body)
	require.NoError(t, err)
	res, err := w.client.Do(req)
	assert.True(t, body.closed.Load(), "the body of a refused request is closed")
	assert.EqualValues(t, 1, w.health().Refused)
	return res, err
}

func TestTransport_RefusalIsError(t *testing.T) {
	w := newWorld(t, nil)
	_, err := refused(t, w)
	var refusal *toolhealth.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, "api", refusal.Tool)
	assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
	assert.NotContains(t, refusal.Error(), "secret")
	assert.Equal(t, toolhealth.OutcomeNeutral, toolhealth.Classify(t.Context(), err).Outcome)
}

func TestTransport_RefuseDecidesWhatClientGets(t *testing.T) {
	w := newWorld(t, nil)
	own := errors.New("own")
	w.transport.Refuse = func(req *http.Request, err error) (*http.Response, error) {
		assert.Equal(t, "/", req.URL.Path)
		assert.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
		return nil, own
	}
	_, err := refused(t, w)
	assert.ErrorIs(t, err, own)
}

func TestUnavailable_IsAnswerThatClientsUnderstand(t *testing.T) {
	w := newWorld(t, nil)
	w.transport.Refuse = httphealth.Unavailable
	res, err := refused(t, w)
	require.NoError(t, err)
	defer res.Body.Close()
	assert.Equal(t, "503 Service Unavailable", res.Status)
	assert.Equal(t, 503, res.StatusCode)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.EqualValues(t, len(text), res.ContentLength)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(text))}, "X-Should-Retry": {"false"}, "Retry-After": {"30"},
	}, res.Header)
	assert.JSONEq(t, `{"error":{"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":30,
		"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 30s"}}`, string(text))
	v := toolhealth.Classify(t.Context(), toolhealth.CheckStatus(res.StatusCode, res.Header))
	assert.Equal(t, "failure server_error retry 30s", words(v))
	assert.Zero(t, w.health().InFlight)
}

func TestUnavailable_StatesNoWaitThatNobodyKnows(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
	require.NoError(t, err)
	for _, reason := range []toolhealth.StopReason{toolhealth.StopIsolated, toolhealth.StopUnknownTool} {
		res, err := httphealth.Unavailable(req, &toolhealth.Refusal{Reason: reason, RetryAfter: time.Minute})
		require.NoError(t, err)
		assert.Empty(t, res.Header.Get("Retry-After"))
		assert.Same(t, req, res.Request)
		require.NoError(t, res.Body.Close())
	}
}

func TestUnavailable_OtherErrorsStayErrors(t *testing.T) {
	for _, err := range []error{context.Canceled, &toolhealth.Refusal{Reason: 250}} {
		res, got := httphealth.Unavailable(nil, err)
		assert.Nil(t, res)
		assert.Equal(t, err, got)
	}
}

func TestUnavailable_IsWholeAnswerWithTheLeastWait(t *testing.T) {
	res, err := httphealth.Unavailable(nil, &toolhealth.Refusal{Tool: "api", Reason: toolhealth.StopCircuitOpen, RetryAfter: 1})
	require.NoError(t, err)
	defer res.Body.Close()
	assert.Equal(t, "1", res.Header.Get("Retry-After"))
	assert.Equal(t, [2]int{1, 1}, [2]int{res.ProtoMajor, res.ProtoMinor})
	assert.Equal(t, "HTTP/1.1", res.Proto)
}
