package genkithealth_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/genkithealth"
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

// model calls one list of tools after the other, then says "done", and keeps the outputs
// of the tools as JSON.
type model struct {
	calls [][]string

	mu    sync.Mutex
	asked int
	told  []string
}

func (m *model) generate(_ context.Context, q *ai.ModelRequest, _ struct{}, _ ai.ModelStreamCallback) (*ai.ModelResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = nil
	for _, message := range q.Messages {
		for _, part := range message.Content {
			if part.IsToolResponse() {
				text, err := json.Marshal(part.ToolResponse.Output)
				if err != nil {
					return nil, err
				}
				m.told = append(m.told, string(text))
			}
		}
	}
	said := []*ai.Part{ai.NewTextPart("done")}
	if m.asked < len(m.calls) {
		said = nil
		for _, name := range m.calls[m.asked] {
			said = append(said, ai.NewToolRequestPart(&ai.ToolRequest{Name: name, Input: map[string]any{"q": "x"}}))
		}
	}
	m.asked++
	return &ai.ModelResponse{Request: q, FinishReason: ai.FinishReasonStop, Message: &ai.Message{Role: ai.RoleModel, Content: said}}, nil
}

// times is a model that calls one tool n times.
func times(n int, tool string) *model {
	m := new(model)
	for range n {
		m.calls = append(m.calls, []string{tool})
	}
	return m
}

// app is an application with a model and one tool.
type app struct {
	*genkit.Genkit
	model *model
	tool  ai.Tool
}

var withTools = &ai.ModelOptions{Supports: &ai.ModelSupports{Tools: true, Multiturn: true}}

type query struct {
	Q string `json:"q"`
}

// newApp lives as long as the ctx.
func newApp(ctx context.Context, m *model, tool string, run func(tc *ai.ToolContext, q string) (string, error)) *app {
	g := genkit.Init(ctx)
	genkit.DefineModelAction(g, "test/scripted", withTools, m.generate)
	return &app{g, m, genkit.DefineTool(g, tool, "does what is asked of "+tool, func(tc *ai.ToolContext, in query) (string, error) {
		return run(tc, in.Q)
	})}
}

// generate runs the agent loop with the guard as its middleware; without one if it is nil.
func (a *app) generate(ctx context.Context, guard *toolhealth.Guard, more ...ai.GenerateOption) (*ai.ModelResponse, error) {
	options := []ai.GenerateOption{ai.WithModelName("test/scripted"), ai.WithTools(a.tool), ai.WithMaxTurns(20)}
	if guard != nil {
		options = append(options, ai.WithUse(genkithealth.Guard{Guard: guard}))
	}
	if more == nil {
		more = []ai.GenerateOption{ai.WithPrompt("go")}
	}
	return genkit.Generate(ctx, a.Genkit, append(options, more...)...)
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
