package fantasyhealth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"charm.land/fantasy"
	"charm.land/fantasy/providers/openai"
	"github.com/stretchr/testify/require"

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

// model is a chat server that calls one tool after the other, then says "done", and keeps
// what it was told.
type model struct {
	calls []string // names of tools

	mu    sync.Mutex
	asked int
	tool  []string // the tool messages of the last request
}

// ServeHTTP answers as the API of OpenAI does, with a stream if that was asked for.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tool = nil
	for _, message := range request.Messages {
		if message.Role == "tool" {
			var text string
			_ = json.Unmarshal(message.Content, &text)
			m.tool = append(m.tool, text)
		}
	}
	says, reason := `"content":"done"`, "stop"
	if m.asked < len(m.calls) {
		says, reason = fmt.Sprintf(`"tool_calls":[{"index":0,"id":"c%d","type":"function","function":{"name":%q,"arguments":"{\"q\":\"x\"}"}}]`,
			m.asked, m.calls[m.asked]), "tool_calls"
	}
	m.asked++
	const answer = `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":%q,%q:{"role":"assistant",%s}}]}`
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, answer, reason, "message", says)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: "+answer+"\n\ndata: [DONE]\n\n", reason, "delta", says)
}

func (m *model) seen() (asked int, tool []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked, m.tool
}

// newAgent returns an agent whose model is m.
func newAgent(t testing.TB, m *model, all ...fantasy.AgentTool) fantasy.Agent {
	t.Helper()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return fantasy.NewAgent(languageAt(server), fantasy.WithTools(all...), fantasy.WithMaxRetries(0))
}

// languageAt returns the model behind a server.
func languageAt(server *httptest.Server) fantasy.LanguageModel {
	provider, err := openai.New(openai.WithAPIKey("key"), openai.WithBaseURL(server.URL), openai.WithHTTPClient(server.Client()))
	if err != nil {
		panic(err)
	}
	language, err := provider.LanguageModel(context.Background(), "m")
	if err != nil {
		panic(err)
	}
	return language
}

// runs are the two ways to run an agent.
var runs = map[string]func(context.Context, fantasy.Agent) (*fantasy.AgentResult, error){
	"generate": func(ctx context.Context, a fantasy.Agent) (*fantasy.AgentResult, error) {
		return a.Generate(ctx, fantasy.AgentCall{Prompt: "go"})
	},
	"stream": func(ctx context.Context, a fantasy.Agent) (*fantasy.AgentResult, error) {
		return a.Stream(ctx, fantasy.AgentStreamCall{Prompt: "go"})
	},
}

type input struct {
	Q string `json:"q"`
}

// newTool returns a tool of one function.
func newTool(name string, run func(ctx context.Context, q string) (fantasy.ToolResponse, error)) fantasy.AgentTool {
	return fantasy.NewAgentTool(name, "does what is asked of "+name, func(ctx context.Context, in input, _ fantasy.ToolCall) (fantasy.ToolResponse, error) {
		return run(ctx, in.Q)
	})
}

// times is a list of n equal names.
func times(n int, name string) []string {
	return strings.Fields(strings.Repeat(name+" ", n))
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
