package httphealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// noted returns the note that is left of requests to these URLs, made one after the other.
func noted(t *testing.T, ctx context.Context, client *http.Client, urls ...string) string {
	t.Helper()
	ctx = toolhealth.WithNotes(ctx)
	for _, url := range urls {
		_, _, _ = get(ctx, client, url)
	}
	v, ok := toolhealth.NoteOf(ctx)
	require.True(t, ok)
	return words(v)
}

func TestWitness_NotesErrors(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(ok))
	down.Close()
	fine, sorry := serve(t, ok), serve(t, status(503))
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, cut(200)) })
	for _, c := range []struct {
		name, note string
		urls       []string
	}{
		{"nothing listens", "failure connection retry unsent", []string{down.URL}},
		{"reset", "failure connection retry", []string{serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, "") })}},
		{"body cut", "failure connection retry", []string{broken}},
		{"body cut, JSON", "failure connection retry", []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
			reset(t, w, strings.Replace(cut(200), "\r\n", "\r\nContent-Type: application/json\r\n", 1))
		})}},
		{"body of a failure cut", "failure server_error retry", []string{serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, cut(503)) })}},
		{"the last one speaks", "success", []string{sorry, broken, fine}},
		{"the last one speaks, failed", "failure server_error retry", []string{fine, sorry}},
		{"one was sent", "failure connection retry", []string{sorry, down.URL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := &http.Client{Transport: httphealth.Witness(newBase(t))}
			assert.Equal(t, c.note, noted(t, t.Context(), client, c.urls...))
		})
	}
}

func TestWitness_NotesClientTimeout(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"no answer": hang, "half an answer": stall} {
		client := &http.Client{Transport: httphealth.Witness(newBase(t)), Timeout: 200 * time.Millisecond}
		assert.Equal(t, "failure timeout retry", noted(t, t.Context(), client, serve(t, handler)), name)
	}
}

// An SDK cancels what it no longer wants. A request that has no answer may have been sent.
func TestWitness_CanceledRequest(t *testing.T) {
	client := &http.Client{Transport: httphealth.Witness(newBase(t))}
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { cancel(); hang(w, r) })
	assert.Equal(t, "failure canceled", noted(t, ctx, client, url))
}

// That the body of a canceled request breaks off is not news.
func TestWitness_CanceledBody(t *testing.T) {
	client := &http.Client{Transport: httphealth.Witness(newBase(t))}
	ctx, cancel := context.WithCancel(toolhealth.WithNotes(t.Context()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, serve(t, stall), nil)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	cancel()
	_, err = io.ReadAll(res.Body)
	require.ErrorIs(t, err, context.Canceled)
	v, ok := toolhealth.NoteOf(ctx)
	require.True(t, ok)
	assert.Equal(t, "success", words(v))
}

// What follows Close is not news either.
func TestWitness_BodyEndsOnce(t *testing.T) {
	client := &http.Client{Transport: httphealth.Witness(newBase(t))}
	ctx := toolhealth.WithNotes(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, serve(t, ok), nil)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	_, err = res.Body.Read(make([]byte, 1))
	require.Error(t, err)
	v, ok := toolhealth.NoteOf(ctx)
	require.True(t, ok)
	assert.Equal(t, "success", words(v))
}

func TestWitness_OtherContextsAreLeftAlone(t *testing.T) {
	client := &http.Client{Transport: httphealth.Witness(newBase(t))}
	code, _, err := get(t.Context(), client, serve(t, status(503)))
	require.NoError(t, err)
	assert.Equal(t, 503, code)
	_, ok := toolhealth.NoteOf(t.Context())
	assert.False(t, ok)
}

func TestWitness_ReturnsWhatBaseReturns(t *testing.T) {
	own := errors.New("own")
	for _, base := range []roundTripper{
		func(*http.Request) (*http.Response, error) { return nil, own },
		func(*http.Request) (*http.Response, error) { return nil, nil },
		func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil },
	} {
		req, err := http.NewRequestWithContext(toolhealth.WithNotes(t.Context()), http.MethodGet, "http://127.0.0.1/", nil)
		require.NoError(t, err)
		want, wantErr := base(req)
		got, err := httphealth.Witness(base).RoundTrip(req)
		assert.Equal(t, want, got)
		assert.Equal(t, wantErr, err)
	}
}

// A tool that reads every answer as JSON gets none. Its error alone may mean that the
// arguments were no JSON.
func TestWitness_TellsWhatJSONTroubleMeans(t *testing.T) {
	for code, want := range map[int]string{
		200: "failure contract", 401: "rejected unauthorized 9s", 429: "throttled rate_limited retry 9s", 502: "failure server_error retry 9s",
	} {
		for body, bare := range map[string]string{
			"": "neutral contract", `"sorry"`: "neutral contract", `{"temp":`: "neutral contract", "<html>sorry</html>": "failure contract",
		} {
			url := serve(t, say(code, "Retry-After: 9", body))
			client := &http.Client{Transport: httphealth.Witness(newBase(t))}
			ctx := toolhealth.WithNotes(t.Context())
			err := weather(ctx, client, url)
			assert.Equal(t, bare, words(toolhealth.Classify(t.Context(), err)), "%d %q, without a note", code, body)
			assert.Equal(t, want, words(toolhealth.Classify(ctx, err)), "%d %q", code, body)
		}
	}
}

// weather is a tool that takes any answer for JSON.
func weather(ctx context.Context, client *http.Client, url string) error {
	_, text, err := get(ctx, client, url)
	if err != nil {
		return err
	}
	var v struct{ Temp float64 }
	return json.Unmarshal([]byte(text), &v)
}

// A Guard takes notes by itself.
func TestWitness_UnderGuard(t *testing.T) {
	url := serve(t, status(404))
	client := &http.Client{Transport: httphealth.Witness(newBase(t))}
	registry := toolhealth.NewRegistry()
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: registry}, toolhealth.GuardConfig{})
	require.NoError(t, err)
	for range 5 {
		_, err := toolhealth.Call(t.Context(), guard, "lookup", func(ctx context.Context, _ string) (string, error) {
			code, text, err := get(ctx, client, url)
			if err == nil && code != http.StatusOK {
				err = errors.New("the lookup did not work") // as SDKs say it
			}
			return text, err
		})
		require.Error(t, err)
	}
	h, _ := registry.Health("lookup")
	assert.EqualValues(t, 5, h.Rejected)
	assert.Equal(t, toolhealth.StateClosed, h.State)
}

// A Transport inside of a tool refuses, and the tool is not to blame.
func TestTransport_UnderGuard(t *testing.T) {
	w := newWorld(t, nil)
	require.True(t, w.registry.Isolate("api", ""))
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: w.registry}, toolhealth.GuardConfig{})
	require.NoError(t, err)
	_, err = toolhealth.Call(t.Context(), guard, "lookup", func(ctx context.Context, _ string) (string, error) {
		_, text, err := get(ctx, w.client, "http://127.0.0.1:1/?key=secret")
		return text, err
	})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
	h, _ := w.registry.Health("lookup")
	assert.Zero(t, h.Failures)
	assert.EqualValues(t, 1, h.Neutral)
}
