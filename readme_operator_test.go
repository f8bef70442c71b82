package toolhealth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The functions between the marks are the ones in README.md, word for word.

// README mail
func carefulWithMail() toolhealth.GuardConfig {
	config := toolhealth.DefaultGuardConfig()
	config.Default.Timeout = 10 * time.Second
	mail := config.Default
	mail.SideEffects = true
	config.Tools = map[string]toolhealth.Policy{"mail": mail}
	return config
}

// README port
func operatorPort(r *toolhealth.Registry) http.Handler { // where only operators can reach it
	operate := func(do func(tool string) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			tool := q.PathValue("tool")
			if _, known := r.Health(tool); !known || !do(tool) { // isolating a misspelt name helps nobody
				http.NotFound(w, q)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.HealthSummary())
	})
	mux.HandleFunc("POST /isolate/{tool}", operate(r.Isolate))
	mux.HandleFunc("POST /reset/{tool}", operate(r.Reset))
	return mux
}

// README breakers
func logBreakers(r *toolhealth.Registry, log *slog.Logger) (stop func()) {
	return r.OnTransition(func(t toolhealth.Transition) {
		log.Warn("breaker", "tool", t.Tool, "from", t.From, "to", t.To, "cause", t.Cause,
			"streak", t.Streak, "kind", t.Kind, "wait", t.Wait)
	})
}

// README calls
func logCalls(config *toolhealth.GuardConfig, log *slog.Logger) {
	config.Observe = func(ctx context.Context, e toolhealth.Event) {
		if failed, ok := e.Err.(*toolhealth.ToolError); e.Final && ok {
			log.ErrorContext(ctx, "call failed", "details", failed.Details())
		} else if e.Err != nil {
			log.WarnContext(ctx, "attempt failed", "tool", e.Served, "reason", e.Reason, "err", e.Err)
		}
	}
}

// README end

func TestTheOperatorsCodeInTheREADMEIsCodeThatRuns(t *testing.T) {
	source, readme := readmeHas(t, "readme_operator_test.go", 4)
	lines := 0
	for line := range strings.Lines(source) {
		if code, found := strings.CutSuffix(line, " // as in the README\n"); found {
			lines++
			assert.Contains(t, readme, "\n"+strings.TrimSpace(code)+"\n")
		}
	}
	assert.Equal(t, 3, lines)
}

func TestTheREADMEsMailIsSentOnce(t *testing.T) {
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry()}, carefulWithMail())
	require.NoError(t, err)
	sent := 0
	_, err = toolhealth.Call(t.Context(), guard, "mail", func(ctx context.Context, _ string) (string, error) {
		sent++
		_, limited := ctx.Deadline()
		assert.True(t, limited, "a policy of its own is a copy of the default")
		return "", &apiError{503}
	})
	require.Error(t, err)
	assert.Equal(t, 1, sent)
}

func TestTheREADMEsPortAndLogServeAnOperator(t *testing.T) {
	r := toolhealth.NewRegistry()
	var out bytes.Buffer
	stop := logBreakers(r, slog.New(slog.NewJSONHandler(&out, nil)))
	defer stop()
	r.RecordSuccess("search", time.Second)
	port := operatorPort(r)
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		port.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	assert.Equal(t, http.StatusNotFound, ask("POST", "/isolate/serach").Code)
	assert.Equal(t, http.StatusOK, ask("POST", "/isolate/search").Code)
	var summary toolhealth.Summary
	health := ask("GET", "/health")
	assert.Equal(t, "application/json", health.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(health.Body.Bytes(), &summary))
	require.Len(t, summary.Tools, 1)
	assert.Equal(t, toolhealth.StopIsolated, summary.Tools[0].Reason)
	assert.Equal(t, uint64(1), summary.Tools[0].Trips, "an operator's Isolate is one")
	assert.Equal(t, http.StatusOK, ask("POST", "/reset/search").Code)
	assert.True(t, r.Available("search"))
	assert.Equal(t, http.StatusOK, ask("POST", "/reset/search").Code)

	var causes []string
	for line := range strings.Lines(out.String()) {
		var e struct{ Tool, From, To, Cause string }
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		causes = append(causes, strings.Join([]string{e.Tool, e.From, e.To, e.Cause}, " "))
	}
	assert.Equal(t, []string{
		"search closed open isolated",
		"search open closed reset",
		"search closed closed reset", // a Reset of a closed breaker is an event, too
	}, causes)
}

func TestTheREADMEsLogOfCallsHasTheToolsOwnErrors(t *testing.T) {
	var out bytes.Buffer
	config := toolhealth.DefaultGuardConfig()
	config.Default.BackoffBase = 0
	logCalls(&config, slog.New(slog.NewJSONHandler(&out, nil)))
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry()}, config)
	require.NoError(t, err)
	_, err = toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) {
		return "", &apiError{503}
	})
	require.Error(t, err)
	_, err = toolhealth.Call(t.Context(), guard, "search", func(context.Context, string) (string, error) {
		return "", nil
	})
	require.NoError(t, err)
	var lines []struct{ Msg, Tool, Reason, Err, Details string }
	for line := range strings.Lines(out.String()) {
		lines = append(lines, struct{ Msg, Tool, Reason, Err, Details string }{})
		require.NoError(t, json.Unmarshal([]byte(line), &lines[len(lines)-1]))
	}
	require.Len(t, lines, 3, "two attempts that failed and their call, nothing of what works")
	own := (&apiError{503}).Error()
	assert.Equal(t, own, lines[0].Err)
	assert.Equal(t, "tool_retry:allowed", lines[0].Reason)
	assert.Equal(t, "search", lines[1].Tool)
	assert.Equal(t, "call failed", lines[2].Msg)
	assert.Contains(t, lines[2].Details, own)
}

func TestAFlaggedResultCountsAsRejectedAtEveryLevel(t *testing.T) {
	ctx := t.Context()
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry}
	guard, err := toolhealth.NewGuard(gate, toolhealth.DefaultGuardConfig())
	require.NoError(t, err)
	result, took := &mcpResult{Content: "no such page", IsError: true}, time.Second
	runMCP := func(context.Context, string) (*mcpResult, error) { return result, nil }
	rejected := func() uint64 {
		h, _ := registry.Health("search")
		return h.Rejected
	}

	call := toolhealth.Wrap(guard, "search", runMCP, toolhealth.WithCallOptions(toolhealth.CheckResult(flaggedResult))) // as in the README
	out, err := call(ctx, "go")
	require.Error(t, err)
	assert.Equal(t, result, out, "what to show to the model")
	assert.NotContains(t, err.Error(), "no such page")
	assert.Equal(t, uint64(1), rejected())

	permit, err := gate.Allow(ctx, "search")
	require.NoError(t, err)
	permit.Done(ctx, flaggedResult(result)) // as in the README
	assert.Equal(t, uint64(2), rejected())

	registry.Record("search", toolhealth.Classify(ctx, flaggedResult(result)), took) // as in the README
	assert.Equal(t, uint64(3), rejected())
}
