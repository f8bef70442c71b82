package langchainhealth_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"
	"github.com/tmc/langchaingo/tools"

	"github.com/toolhealth/toolhealth"
)

// newGuard returns a guard that tries each call once.
func newGuard(t testing.TB, change func(*toolhealth.Settings)) *toolhealth.Guard {
	t.Helper()
	s := toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}}
	if change != nil {
		change(&s)
	}
	guard, err := toolhealth.New(s)
	require.NoError(t, err)
	return guard
}

func health(g *toolhealth.Guard, tool string) toolhealth.ToolHealth {
	h, _ := g.Registry().Health(tool)
	return h
}

// serve returns the URL of a server on loopback, and a client whose connections end with
// the test.
func serve(t testing.TB, h http.HandlerFunc) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

// script is a chat server that says one answer after the other, the last one again and
// again, and keeps the prompts.
type script struct {
	t       testing.TB
	mu      sync.Mutex
	answers []string
	prompts []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	assert.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts = append(s.prompts, string(body))
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	assert.NoError(s.t, json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{
		"finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": answer},
	}}}))
}

// asked is how often the model was asked.
func (s *script) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.prompts)
}

// observations are those in the last prompt.
func (s *script) observations() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var request struct {
		Messages []struct{ Content string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(s.prompts[len(s.prompts)-1]), &request))
	for line := range strings.Lines(request.Messages[0].Content) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "Observation: "); ok {
			all = append(all, said)
		}
	}
	return all[1:] // the first one explains the form
}

// act is a model's answer that asks for a tool.
func act(tool string) string { return "Thought: go\nAction: " + tool + "\nAction Input: x" }

// run runs an agent of langchaingo, with a model of langchaingo that a server plays, until
// the model says "done". The model says answers before that.
func run(ctx context.Context, t testing.TB, all []tools.Tool, answers ...string) (output any, s *script, err error) {
	t.Helper()
	s = &script{t: t, answers: append(answers, "Final Answer: done")}
	url, client := serve(t, s.ServeHTTP)
	agent := agents.NewOneShotAgent(newOpenAI(t, url, client), all)
	out, err := chains.Call(ctx, agents.NewExecutor(agent, agents.WithMaxIterations(20)), map[string]any{"input": "?"})
	return out["output"], s, err
}

func newOpenAI(t testing.TB, url string, client *http.Client) llms.Model {
	t.Helper()
	m, err := openai.New(openai.WithBaseURL(url), openai.WithToken("k"), openai.WithModel("m"), openai.WithHTTPClient(client))
	require.NoError(t, err)
	return m
}

// leaver is the ctx of a caller who is gone once left is closed, and whose Err is err then.
type leaver struct {
	context.Context
	err  error
	left chan struct{}
}

func newLeaver(t testing.TB, err error) *leaver {
	return &leaver{t.Context(), err, make(chan struct{})}
}

func (l *leaver) Done() <-chan struct{} { return l.left }

func (l *leaver) Err() error {
	select {
	case <-l.left:
		return l.err
	default:
		return nil
	}
}
