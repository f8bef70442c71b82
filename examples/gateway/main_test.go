package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGateway_TellsStoryAndExitsWithZero(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-log"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	if !strings.Contains(stderr.String(), `"cause":"failure_threshold"`) {
		t.Error("the trip of search is not logged")
	}
	for _, want := range []string{
		"47 of 50", "tool_unavailable:unknown_tool", "tool_unavailable:isolated",
		"tool_failure:non_retryable", "tool_failure:outcome_unknown",
		"retry_attempts_per_call", "served by search_backup", "failure_threshold is -1",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the story does not have %q", want)
		}
	}
}

func TestGateway_ExplainsFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"-h"}, 0, "-price"},
		{[]string{"-nonsense"}, 2, "-pace"},
		{[]string{"stray"}, 2, "no arguments"},
		{[]string{"-pace", "0s"}, 2, "above 0"},
		{[]string{"-price", "NaN"}, 2, "0 or more"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(c.args, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.text) {
			t.Errorf("%v: exit code %d, want %d with %q; it says %s", c.args, code, c.code, c.text, &stderr)
		}
	}
}

func TestGateway_ExplainsDifference(t *testing.T) {
	var out bytes.Buffer
	explain(&out, 3, tally{rescued: 22, reasons: map[string]int{"tool_unavailable:unknown_tool": 4}})
	for _, want := range []string{"search_backup answered 22 calls", "    4  tool_unavailable:unknown_tool", "it went out 3 times"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the explanation does not have %q: %s", want, &out)
		}
	}
}

func TestGateway_JudgesEveryPartOfStory(t *testing.T) {
	good := func() (without, with tally) {
		without = tally{calls: 50, answered: 28, wasted: 60, mails: 3, waited: 2 * time.Second}
		with = tally{calls: 50, answered: 47, rescued: 22, wasted: 8, mails: 1, waited: time.Second, lastServed: "search", reasons: map[string]int{
			"tool_failure:non_retryable": 1, "tool_unavailable:unknown_tool": 1, "tool_failure:outcome_unknown": 1,
		}}
		return without, with
	}
	if err := judge(good()); err != nil {
		t.Fatalf("the good story is not accepted: %v", err)
	}
	for says, spoil := range map[string]func(without, with *tally){
		"46 of 50 calls were answered": func(_, with *tally) { with.answered = 46 },
		"and 47 without":               func(without, _ *tally) { without.answered = 47 },
		"no substitute answered":       func(_, with *tally) { with.rescued = 0 },
		"let 21 requests through":      func(_, with *tally) { with.wasted = 21 },
		"the agent waited":             func(_, with *tally) { with.waited = 3 * time.Second },
		"2 mails went out":             func(_, with *tally) { with.mails = 2 },
		"1 mails went out":             func(without, _ *tally) { without.mails = 1 },
		"did not come back":            func(_, with *tally) { with.lastServed = "search_backup" },
		"no call ended with tool_failure:outcome_unknown": func(_, with *tally) {
			delete(with.reasons, "tool_failure:outcome_unknown")
		},
	} {
		without, with := good()
		spoil(&without, &with)
		if err := judge(without, with); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error with %q, got %v", says, err)
		}
	}
}

// newTestGateway is a gateway in front of one tool.
func newTestGateway(t *testing.T, tool http.HandlerFunc) *gateway {
	t.Helper()
	server := httptest.NewServer(tool)
	t.Cleanup(server.Close)
	g, err := newGateway(server.Client(), addresses(server.URL, "a", "b"), rules(10*time.Second), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func ask(t *testing.T, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body)))
	return w
}

func TestGateway_StopReasonBecomesStatusAndBody(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {}
	g := newTestGateway(t, func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
	for _, c := range []struct {
		name, path string
		tool       http.HandlerFunc
		status     int
		header     string // Retry-After
		body       string
	}{
		{"answered", "/tools/a", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, 200, "", "news"},
		{"rejected", "/tools/a", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", 400) }, 422, "", `"kind":"invalid_request"`},
		{"throttled", "/tools/a", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(429)
		}, 429, "60", `"reason":"tool_unavailable:rate_limited"`},
		{"exhausted", "/tools/b", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", 500) }, 502, "", `"reason":"tool_failure:retry_exhausted"`},
		{"open", "/tools/b", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", 500) }, 503, "30", `"reason":"tool_unavailable:circuit_open"`},
		{"unknown", "/tools/made_up", nil, 404, "", `"reason":"tool_unavailable:unknown_tool"`},
	} {
		answer = c.tool
		w := ask(t, g.handler(), "POST", c.path, "news")
		if w.Code != c.status || w.Header().Get("Retry-After") != c.header || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s: %d, Retry-After %q, %s", c.name, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the tool's error text got to the model", c.name)
		}
	}
	if w := ask(t, g.handler(), "POST", "/tools/a", strings.Repeat("x", maxBody+1)); w.Code != 413 {
		t.Errorf("too long: %d", w.Code)
	}
	if w := ask(t, g.handler(), "POST", "/tools/a/isolate", ""); w.Code != 404 {
		t.Errorf("an agent reached the admin's page: %d", w.Code)
	}
}

func TestGateway_WrongOrdersChangeNothing(t *testing.T) {
	g := newTestGateway(t, func(http.ResponseWriter, *http.Request) {})
	before, err := json.Marshal(g.guard.Settings())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/tools/made_up/isolate", "", 404},
		{"POST", "/tools/made_up/reset", "", 404},
		{"PUT", "/routes", `{"a": ["a"]}`, 400},
		{"PUT", "/routes", `{"a": ["made_up"]}`, 400},
		{"PUT", "/routes", `{"made_up": ["a"]}`, 400},
		{"PUT", "/routes", `not JSON`, 400},
		{"PUT", "/config", `{"breaker": {"no_such_key": 1}}`, 400},
		{"PUT", "/config", `{"max_tools": -1}`, 400},
	} {
		if w := ask(t, g.admin(), c.method, c.path, c.body); w.Code != c.status {
			t.Errorf("%s %s %s: %d, want %d", c.method, c.path, c.body, w.Code, c.status)
		}
	}
	if after, err := json.Marshal(g.guard.Settings()); err != nil || !bytes.Equal(after, before) || g.guard.Registry().Len() != 2 {
		t.Error("something changed")
	}
	if w := ask(t, g.admin(), "PUT", "/config", `{"breaker": {"failure_threshold": 7}}`); w.Code != 204 {
		t.Fatal(w.Code)
	}
	got := g.guard.Settings()
	if got.Breaker.FailureThreshold != 7 || got.Breaker.ProbeTimeout != 30*time.Second || got.Policy.Timeout != 10*time.Second || !got.RegisteredOnly {
		t.Errorf("a key that the body left out did not keep its value: %+v", got)
	}
}

func TestGateway_WrongConfigurationIsRefused(t *testing.T) {
	wrong := rules(time.Second)
	wrong.Breaker.FailureThreshold = -2
	if _, err := newGateway(nil, nil, wrong, nil); err == nil {
		t.Error("a wrong breaker was accepted")
	}
	if _, err := newGateway(nil, nil, rules(-time.Second), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a wrong policy was accepted")
	}
	if _, err := newGateway(nil, map[string]string{"": ""}, rules(0), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a tool without a name was accepted")
	}
}
