package httphealth_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// serve returns the URL of a server on loopback that lives as long as the test.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// newBase returns a RoundTripper whose connections end with the test.
func newBase(t testing.TB) *http.Transport {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// world is a client with a Transport whose only breaker is "api".
type world struct {
	t         testing.TB
	registry  *toolhealth.Registry
	gate      *toolhealth.Gate
	transport *httphealth.Transport
	client    *http.Client

	mu   sync.Mutex
	last toolhealth.Verdict // of the last error
}

func newWorld(t testing.TB, change func(*toolhealth.Config)) *world {
	t.Helper()
	config := toolhealth.DefaultConfig()
	if change != nil {
		change(&config)
	}
	registry, err := toolhealth.NewRegistryWithConfig(config)
	require.NoError(t, err)
	w := &world{t: t, registry: registry}
	w.gate = &toolhealth.Gate{Registry: registry, Classify: func(ctx context.Context, err error) toolhealth.Verdict {
		v := toolhealth.Classify(ctx, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = v
		return v
	}}
	w.transport = &httphealth.Transport{Gate: w.gate, Base: newBase(t), Name: func(*http.Request) string { return "api" }}
	w.client = &http.Client{Transport: w.transport}
	return w
}

// health is that of the breaker.
func (w *world) health() toolhealth.ToolHealth {
	h, _ := w.registry.Health("api")
	return h
}

// said returns the verdict on the last error in words.
func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return words(w.last)
}

// words writes a verdict as "throttled rate_limited retry 7s".
func words(v toolhealth.Verdict) string {
	text := v.Outcome.String()
	if v.Kind != toolhealth.KindNone {
		text += " " + v.Kind.String()
	}
	if v.Retryable {
		text += " retry"
	}
	if v.NotSent {
		text += " unsent"
	}
	if v.RetryAfter > 0 {
		text += " " + v.RetryAfter.String()
	}
	return text
}

// get reads a whole answer.
func get(ctx context.Context, client *http.Client, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// reset answers with a connection reset, after as much of an answer as is given.
func reset(t testing.TB, w http.ResponseWriter, answer string) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = buffer.WriteString(answer)
	_ = buffer.Flush()
	if answer == "" {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	_ = conn.Close()
}

// cut is an answer whose body ends too soon.
func cut(status int) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: 1000\r\n\r\n%s", status, http.StatusText(status), strings.Repeat("x", 100))
}

// hang answers when the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// stall sends some of an answer and hangs.
func stall(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "some")
	_ = http.NewResponseController(w).Flush()
	hang(w, r)
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// roundTripper is a function as a RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// soon waits for what another goroutine or the garbage collector brings about.
func soon(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 10*time.Second, 5*time.Millisecond)
}
