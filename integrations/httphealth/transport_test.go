package httphealth_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

func TestTransport_OpensAtThirdFailure(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(503) })
	w := newWorld(t, nil)
	for range 3 {
		code, _, err := get(t.Context(), w.client, url)
		require.NoError(t, err)
		assert.Equal(t, 503, code)
	}
	_, _, err := get(t.Context(), w.client, url)
	var refusal *toolhealth.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, toolhealth.StopCircuitOpen, refusal.Reason)
	assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 30s", refusal.Error())
	assert.EqualValues(t, 3, asked.Load(), "the fourth is not sent")
}

func TestTransport_StatedWaitHoldsOtherRequests(t *testing.T) {
	w := newWorld(t, nil)
	url := serve(t, say(429, "Retry-After: 7", ""))
	_, _, err := get(t.Context(), w.client, url)
	require.NoError(t, err)
	_, _, err = get(t.Context(), w.client, url)
	require.ErrorIs(t, err, toolhealth.ErrRateLimited)
	assert.ErrorContains(t, err, "retry after 7s")
}

func TestTransport_JudgesErrors(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(ok))
	down.Close()
	for _, c := range []struct {
		name, url, verdict string
	}{
		{"nothing listens", down.URL, "failure connection retry unsent"},
		{"reset", serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, "") }), "failure connection retry"},
		{"no HTTP", serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, "hello\r\n\r\n") }), "failure contract"},
		{"header cut", serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n") }), "failure connection retry"},
		{"body cut", serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, cut(200)) }), "failure connection retry"},
		{"body of a failure cut", serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(t, w, cut(503)) }), "failure server_error retry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			_, _, err := get(t.Context(), w.client, c.url)
			require.Error(t, err)
			assert.Equal(t, c.verdict, w.said())
			h := w.health()
			assert.EqualValues(t, 1, h.Failures)
			assert.Zero(t, h.Successes)
			assert.Zero(t, h.InFlight)
		})
	}
}

// Whichever way the client's time limit is noticed, three of them open the breaker.
func TestTransport_ClientTimeoutOpensAtThird(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"no answer": hang, "half an answer": stall} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.gate.DeadlineFloor = -1
			w.client.Timeout = 100 * time.Millisecond
			url := serve(t, handler)
			for range 3 {
				_, _, err := get(t.Context(), w.client, url)
				require.Error(t, err)
				assert.NotErrorIs(t, err, toolhealth.ErrRefused)
			}
			_, _, err := get(t.Context(), w.client, url)
			require.ErrorIs(t, err, toolhealth.ErrCircuitOpen)
			assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindTimeout: 3}, w.health().ByKind)
		})
	}
}

func TestTransport_ShortDeadlineOfCallerIsNeutral(t *testing.T) {
	w := newWorld(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := get(ctx, w.client, serve(t, hang))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	h := w.health()
	assert.EqualValues(t, 1, h.Neutral)
	assert.Zero(t, h.Failures)
}

func TestTransport_CanceledCallerIsNeutral(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"no answer": hang, "half an answer": stall} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			_, _, err := get(ctx, w.client, serve(t, func(w http.ResponseWriter, r *http.Request) {
				time.AfterFunc(20*time.Millisecond, cancel) // at any time from here on
				handler(w, r)
			}))
			require.ErrorIs(t, err, context.Canceled)
			h := w.health()
			assert.EqualValues(t, 1, h.Neutral)
			assert.Zero(t, h.Failures+h.Successes+h.InFlight)
		})
	}
}

// A status stays what it is if the caller goes before it closes the body.
func TestTransport_StatusCountsAfterCallerIsGone(t *testing.T) {
	w := newWorld(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, serve(t, say(503, "", "sorry")), nil)
	require.NoError(t, err)
	res, err := w.client.Do(req)
	require.NoError(t, err)
	cancel()
	require.NoError(t, res.Body.Close())
	assert.EqualValues(t, 1, w.health().Failures)
}

func TestTransport_DoneCtxSendsAndCountsNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.transport.Refuse = func(*http.Request, error) (*http.Response, error) {
		t.Error("Refuse is for refusals")
		return nil, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := &closer{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, serve(t, ok), body)
	require.NoError(t, err)
	res, err := w.transport.RoundTrip(req)
	assert.Nil(t, res)
	assert.Equal(t, context.Canceled, err)
	assert.True(t, body.closed.Load())
	h := w.health()
	assert.Zero(t, h.Successes+h.Failures+h.Neutral+h.Refused)
}

func TestTransport_BodySettlesAtItsEnd(t *testing.T) {
	w := newWorld(t, nil)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	for _, end := range []struct {
		name string
		do   func(io.ReadCloser) error
	}{
		{"read to the end", func(body io.ReadCloser) error { _, err := io.Copy(io.Discard, body); return err }},
		{"closed half-way", func(body io.ReadCloser) error {
			_, err := bufio.NewReader(body).ReadByte()
			return errors.Join(err, body.Close())
		}},
		{"closed unread", io.ReadCloser.Close},
	} {
		t.Run(end.name, func(t *testing.T) {
			before := w.health().Successes
			res, err := w.client.Get(url)
			require.NoError(t, err)
			defer res.Body.Close()
			h := w.health()
			assert.EqualValues(t, 1, h.InFlight, "the body is open")
			assert.Equal(t, before, h.Successes)
			require.NoError(t, end.do(res.Body))
			h = w.health()
			assert.Zero(t, h.InFlight)
			assert.Equal(t, before+1, h.Successes)
			_ = res.Body.Close()
			_, _ = res.Body.Read(make([]byte, 1))
			assert.Equal(t, h, w.health(), "it ends once")
		})
	}
}

// blocked is a body whose Read waits for Close, and whose Close waits for what follows.
type blocked struct {
	closed chan struct{}
	then   func()
}

func (b *blocked) Read([]byte) (int, error) { <-b.closed; return 0, errors.New("closed") }
func (b *blocked) Close() error             { close(b.closed); b.then(); return nil }

// A Read that Close interrupts is no body that broke off.
func TestTransport_CloseDuringReadIsSuccess(t *testing.T) {
	w := newWorld(t, nil)
	read := make(chan error, 1)
	w.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: &blocked{make(chan struct{}), func() { assert.Error(t, <-read) }}}, nil
	})
	res, err := w.client.Get("http://127.0.0.1/")
	require.NoError(t, err)
	go func() {
		_, err := res.Body.Read(make([]byte, 1))
		read <- err
	}()
	require.NoError(t, res.Body.Close())
	h := w.health()
	assert.EqualValues(t, 1, h.Successes)
	assert.Zero(t, h.Failures+h.Neutral)
}

// A client need not close the body of an answer that has none.
func TestTransport_AnswerWithoutBodySettlesAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	for _, code := range []int{204, 304, 503} {
		res, err := w.client.Get(serve(t, say(code, "Content-Length: 0", "")))
		require.NoError(t, err)
		assert.Equal(t, http.NoBody, res.Body)
		assert.Zero(t, w.health().InFlight)
	}
	h := w.health()
	assert.EqualValues(t, 2, h.Successes)
	assert.EqualValues(t, 1, h.Failures)
}

// leaveOpen gets an answer and forgets it.
//
//go:noinline
func leaveOpen(t *testing.T, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil) // the connection ends with the test
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NotNil(t, res.Body)
}

func TestTransport_BodyNeverClosedEndsWithAnswer(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		status   int
		failures uint64
	}{{200, 0}, {503, 1}} {
		w := newWorld(t, nil)
		leaveOpen(t, w.client, serve(t, say(c.status, "", long)))
		assert.EqualValues(t, 1, w.health().InFlight)
		soon(t, func() bool { runtime.GC(); return w.health().InFlight == 0 })
		h := w.health()
		assert.Zero(t, h.Successes+h.Neutral, c.status)
		assert.Equal(t, c.failures, h.Failures, c.status)
	}
}

// newProbeWorld returns a world whose breaker is about to let a probe through.
func newProbeWorld(t *testing.T, lease time.Duration) *world {
	w := newWorld(t, func(c *toolhealth.Config) {
		c.Breaker.RecoveryDuration, c.Breaker.ProbeTimeout = 10*time.Millisecond, lease
	})
	for range 3 {
		w.registry.RecordFailure("api", 0)
	}
	soon(t, func() bool { return w.registry.Available("api") })
	return w
}

func TestTransport_ProbeNeverClosedEndsWithLease(t *testing.T) {
	w := newProbeWorld(t, 500*time.Millisecond)
	res, err := w.client.Get(serve(t, stall))
	require.NoError(t, err)
	assert.Equal(t, toolhealth.StateHalfOpen, w.health().State)
	_, _, err = get(t.Context(), w.client, serve(t, ok))
	require.ErrorIs(t, err, toolhealth.ErrProbeInFlight)
	soon(t, func() bool { return w.registry.Available("api") })
	_, _, err = get(t.Context(), w.client, serve(t, ok))
	require.NoError(t, err)
	assert.Equal(t, toolhealth.StateClosed, w.health().State)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, toolhealth.StateClosed, w.health().State)
}

func TestTransport_LongAnswerKeepsProbeAlive(t *testing.T) {
	const lease = time.Second
	w := newProbeWorld(t, lease)
	start := time.Now()
	_, text, err := get(t.Context(), w.client, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 12 {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(lease / 8) // the lease is of the system's clock
		}
	}))
	require.NoError(t, err)
	assert.Len(t, text, 12)
	require.Greater(t, time.Since(start), lease)
	assert.Equal(t, toolhealth.StateClosed, w.health().State)
}

func TestTransport_RedirectIsFollowed(t *testing.T) {
	w := newProbeWorld(t, time.Minute)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		ok(w, r)
	})
	_, text, err := get(t.Context(), w.client, url)
	require.NoError(t, err, "the probe has ended before the redirect is followed")
	assert.Equal(t, "fine", text)
	h := w.health()
	assert.EqualValues(t, 2, h.Successes)
	assert.Equal(t, toolhealth.StateClosed, h.State)
}

func TestTransport_HeadSettlesAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, serve(t, ok), nil)
	require.NoError(t, err)
	// Other bases than net/http's may give a body to read.
	w.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := newBase(t).RoundTrip(req)
		if err == nil {
			res.Body = struct{ io.ReadCloser }{res.Body}
		}
		return res, err
	})
	res, err := w.client.Do(req)
	require.NoError(t, err)
	assert.EqualValues(t, 4, res.ContentLength)
	h := w.health()
	assert.EqualValues(t, 1, h.Successes)
	assert.Zero(t, h.InFlight)
	require.NoError(t, res.Body.Close())
}

// upgrade answers 101 and sends back the first line.
func upgrade(w http.ResponseWriter, _ *http.Request) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = buffer.Flush()
	line, _ := buffer.ReadString('\n')
	_, _ = buffer.WriteString(line)
	_ = buffer.Flush()
}

func TestUpgrade_BodyStaysConnection(t *testing.T) {
	w := newWorld(t, nil)
	w.transport.Base = httphealth.Witness(w.transport.Base)
	ctx := toolhealth.WithNotes(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, serve(t, upgrade), nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := w.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	h := w.health()
	assert.EqualValues(t, 1, h.Successes)
	assert.Zero(t, h.InFlight)
	note, ok := toolhealth.NoteOf(ctx)
	require.True(t, ok)
	assert.Equal(t, "success", words(note))
	conn, ok := res.Body.(io.ReadWriter)
	require.True(t, ok, "the body can be written to")
	_, err = io.WriteString(conn, "ping\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "ping\n", line)
}

func TestTransport_HTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok(w, r)
		if r.URL.Path == "/cut" {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	w := newWorld(t, nil)
	w.transport.Base = server.Client().Transport
	_, text, err := get(t.Context(), w.client, server.URL)
	require.NoError(t, err)
	assert.Equal(t, "fine", text)
	assert.EqualValues(t, 1, w.health().Successes)
	_, _, err = get(t.Context(), w.client, server.URL+"/cut")
	require.Error(t, err)
	assert.EqualValues(t, 1, w.health().Failures, w.said())
	server.Client().CloseIdleConnections()
}

func TestTransport_NamesHostByDefault(t *testing.T) {
	w := newWorld(t, nil)
	w.transport.Name = nil
	w.transport.Base = roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil })
	for _, url := range []string{"http://Example.com/a", "http://example.com/b", "https://example.com:8443/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		_, err = w.transport.RoundTrip(req)
		require.NoError(t, err)
	}
	a, _ := w.registry.Health("example.com")
	b, _ := w.registry.Health("example.com:8443")
	assert.EqualValues(t, 2, a.Successes)
	assert.EqualValues(t, 1, b.Successes)
}

func TestTransport_EmptyNameIsNotGuarded(t *testing.T) {
	w := newWorld(t, nil)
	w.transport.Name = func(*http.Request) string { return "" }
	for range 5 {
		code, _, err := get(t.Context(), w.client, serve(t, status(503)))
		require.NoError(t, err)
		assert.Equal(t, 503, code)
	}
	assert.Empty(t, w.registry.HealthSummary().Tools)
}

func TestTransport_ZeroValueSendsEverything(t *testing.T) {
	client := &http.Client{Transport: &httphealth.Transport{}}
	defer http.DefaultClient.CloseIdleConnections()
	url := serve(t, status(503))
	for range 5 {
		code, _, err := get(t.Context(), client, url)
		require.NoError(t, err)
		assert.Equal(t, 503, code)
	}
}

func TestTransport_RequestWithoutURLIsErrorOfBase(t *testing.T) {
	tr := &httphealth.Transport{Gate: &toolhealth.Gate{Registry: toolhealth.NewRegistry()}, Base: newBase(t)}
	_, err := tr.RoundTrip(&http.Request{})
	assert.ErrorContains(t, err, "nil Request.URL")
}

func TestTransport_RouterIsNotUsed(t *testing.T) {
	w := newWorld(t, nil)
	router, err := toolhealth.NewHealthRouter(map[string][]string{"api": {"other"}})
	require.NoError(t, err)
	w.gate.Router = router
	require.True(t, w.registry.Isolate("api", ""))
	_, _, err = get(t.Context(), w.client, serve(t, ok))
	require.ErrorIs(t, err, toolhealth.ErrIsolated)
	_, known := w.registry.Health("other")
	assert.False(t, known)
	assert.Same(t, router, w.gate.Router)
}

// The Gate's rules see the status, with a body beside it or without.
func TestTransport_RuleForStatus(t *testing.T) {
	w := newWorld(t, nil)
	w.gate.Classify = toolhealth.ErrorRules{Own: []toolhealth.Rule{
		toolhealth.RuleFor(func(e *toolhealth.StatusError) toolhealth.Verdict { // a proxy says 404 for what is down
			if e.StatusCode == 404 {
				return toolhealth.ClassifyHTTP(503, e.Header)
			}
			return toolhealth.ClassifyHTTP(e.StatusCode, e.Header)
		}),
	}}.Classify
	for _, body := range []string{"", `{"error":"no route"}`} {
		_, _, err := get(t.Context(), w.client, serve(t, say(404, "Content-Type: application/json", body)))
		require.NoError(t, err)
	}
	assert.Equal(t, map[toolhealth.Kind]uint64{toolhealth.KindServerError: 2}, w.health().ByKind)
}

// A base that breaks its contract costs its caller a call, and the breaker nothing.
func TestTransport_BrokenBaseGivesPermitBack(t *testing.T) {
	for name, base := range map[string]roundTripper{
		"panics":             func(*http.Request) (*http.Response, error) { panic("broken") },
		"ends the call":      func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil },
		"returns nothing":    func(*http.Request) (*http.Response, error) { return nil, nil },
		"has no body":        func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil },
		"has no such status": func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: -1}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.transport.Base = base
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
			require.NoError(t, err)
			done := make(chan bool)
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = w.transport.RoundTrip(req)
			}()
			<-done
			assert.Zero(t, w.health().InFlight)
		})
	}
}

func TestTransport_TotalsAddUp(t *testing.T) {
	const callers, calls = 8, 25
	w := newWorld(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1 << 20 })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			reset(t, w, cut(200))
		case "/503":
			w.WriteHeader(503)
		default:
			ok(w, r)
		}
	})
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range calls {
				_, _, _ = get(t.Context(), w.client, url+[]string{"/cut", "/503", "/", "/", "/"}[i%5])
			}
		})
	}
	all.Wait()
	h := w.health()
	assert.EqualValues(t, callers*calls*3/5, h.Successes)
	assert.EqualValues(t, callers*calls*2/5, h.Failures)
	assert.Zero(t, h.InFlight)
}

func TestTransport_ClosesIdleConnections(t *testing.T) {
	var closed atomic.Int64
	base := idleCounter{roundTripper(nil), &closed}
	for _, rt := range []http.RoundTripper{
		&httphealth.Transport{Base: base}, httphealth.Witness(base), &httphealth.Transport{Base: httphealth.Witness(base)},
	} {
		(&http.Client{Transport: rt}).CloseIdleConnections()
	}
	assert.EqualValues(t, 3, closed.Load())
	assert.NotPanics(t, func() {
		(&http.Client{Transport: httphealth.Witness(roundTripper(nil))}).CloseIdleConnections()
	})
}

type idleCounter struct {
	http.RoundTripper
	closed *atomic.Int64
}

func (c idleCounter) CloseIdleConnections() { c.closed.Add(1) }
