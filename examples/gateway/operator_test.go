package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolhealth/toolhealth"
)

// lines decodes a log.
func lines[T any](t *testing.T, log *bytes.Buffer) (all []T) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func TestGateway_OperatorIsolatesAndResets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var out bytes.Buffer
	g, err := newGateway(server.Client(), addresses(server.URL, "search"), rules(10*time.Second), slog.New(slog.NewJSONHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	order := func(path string, want int) {
		t.Helper()
		if w := ask(t, g.admin(), "POST", path, ""); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	order("/tools/serach/isolate", 404)
	order("/tools/search/isolate", 204)
	health := ask(t, g.admin(), "GET", "/health", "")
	if got := health.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("the summary is %s", got)
	}
	var summary toolhealth.Summary
	if err := json.Unmarshal(health.Body.Bytes(), &summary); err != nil {
		t.Fatal(err)
	}
	if len(summary.Tools) != 1 || summary.Tools[0].Reason != toolhealth.StopIsolated || summary.Tools[0].Trips != 1 {
		t.Errorf("an operator's Isolate is one trip: %+v", summary.Tools)
	}
	if page := ask(t, g.admin(), "GET", "/page/", "").Body.String(); !strings.Contains(page, "The tool cannot be called.") {
		t.Errorf("the page does not show it: %s", page)
	}
	order("/page/reset", 403) // without credentials
	order("/tools/search/reset", 204)
	if !g.guard.Registry().Available("search") {
		t.Error("a Reset does not make search available")
	}
	order("/tools/search/reset", 204)

	var causes []string
	for _, e := range lines[struct{ Tool, From, To, Cause string }](t, &out) {
		causes = append(causes, strings.Join([]string{e.Tool, e.From, e.To, e.Cause}, " "))
	}
	want := []string{
		"search closed open isolated",
		"search open closed reset",
		"search closed closed reset", // a Reset of a closed breaker is an event, too
	}
	if !slices.Equal(causes, want) {
		t.Errorf("logged %q, want %q", causes, want)
	}
}

func TestGateway_CallLogHasErrorsOfTools(t *testing.T) {
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	var out bytes.Buffer
	g, err := newGateway(server.Client(), addresses(server.URL, "search"), rules(10*time.Second), slog.New(slog.NewJSONHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if w := ask(t, g.handler(), "POST", "/tools/search", "go"); w.Code != 502 {
		t.Errorf("a call of a tool that is down: %d", w.Code)
	}
	status = http.StatusOK
	if w := ask(t, g.handler(), "POST", "/tools/search", "go"); w.Code != 200 {
		t.Errorf("a call of a tool that is well: %d", w.Code)
	}
	type candidate struct{ Reason, Err string }
	logged := lines[struct {
		Msg, Tool, Reason string
		Attempts          int
		Candidates        map[string]candidate
	}](t, &out)
	if len(logged) != 1 {
		t.Fatalf("want the call that failed, and nothing of what works: %s", &out)
	}
	l := logged[0]
	if l.Msg != "call failed" || l.Tool != "search" || l.Attempts != 2 || l.Candidates["search"].Err != "HTTP status 503" {
		t.Errorf("the call: %+v", l)
	}
}

func TestGateway_RerouteKeepsWhatIsKnown(t *testing.T) {
	g := newTestGateway(t, func(w http.ResponseWriter, r *http.Request) {})
	if !g.guard.Registry().Isolate("a", "") {
		t.Fatal("a is not isolated")
	}
	if w := ask(t, g.handler(), "POST", "/tools/a", "go"); w.Code != 503 || !strings.Contains(w.Body.String(), "tool_unavailable:isolated") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := g.reroute(map[string][]string{"a": {"b"}}); err != nil {
		t.Fatal(err)
	}
	if w := ask(t, g.handler(), "POST", "/tools/a", "go"); w.Code != 200 || w.Header().Get("X-Served-By") != "b" {
		t.Errorf("%d, served by %q", w.Code, w.Header().Get("X-Served-By"))
	}
	if err := g.reroute(map[string][]string{"a": {"a"}}); err == nil || g.guard.Settings().Tools["a"].Substitutes[0] != "b" {
		t.Error("a route that cannot be was accepted")
	}
	if h, _ := g.guard.Registry().Health("a"); h.Reason != toolhealth.StopIsolated {
		t.Errorf("a is no longer isolated: %v", h.Reason)
	}
}

func TestGateway_LogsOnlyIfAsked(t *testing.T) {
	for _, on := range []bool{false, true} {
		var out bytes.Buffer
		newLog(on, &out).Warn("x")
		if got := out.Len() > 0; got != on {
			t.Errorf("on %v: logged %v", on, got)
		}
	}
}
