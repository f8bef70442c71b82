package einohealth_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/einohealth"
)

// script is a model that calls tools as it is written, one turn after the other, and then
// says what the tools of the last turn said. It is bound to no run: it counts the turns in
// the messages that it is given.
type script [][]schema.ToolCall

func (s script) Generate(_ context.Context, in []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	turn, read := 0, []string(nil)
	for _, m := range in {
		switch m.Role {
		case schema.Assistant:
			turn, read = turn+1, nil
		case schema.Tool:
			read = append(read, textOf(m))
		}
	}
	if turn < len(s) {
		return schema.AssistantMessage("", s[turn]), nil
	}
	return schema.AssistantMessage("I read: "+strings.Join(read, " | "), nil), nil
}

func (s script) Stream(ctx context.Context, in []*schema.Message, o ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	m, err := s.Generate(ctx, in, o...)
	return schema.StreamReaderFromArray([]*schema.Message{m}), err
}

func (s script) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return s, nil }

// calls returns a script that calls one tool in each of its turns.
func calls(tool string, turns int) (s script) {
	for range turns {
		s = append(s, turn(tool))
	}
	return s
}

// turn is the calls of one turn, of each tool one.
func turn(tools ...string) (calls []schema.ToolCall) {
	for _, name := range tools {
		calls = append(calls, schema.ToolCall{
			ID: name + " 1", Type: "function", Function: schema.FunctionCall{Name: name, Arguments: "{}"},
		})
	}
	return calls
}

// textOf returns what a tool has said, enhanced or not.
func textOf(m *schema.Message) string {
	text := m.Content
	for _, part := range m.UserInputMultiContent {
		text += part.Text
	}
	return text
}

type named string

func (n named) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: string(n)}, nil
}

// The four kinds of tools.
type (
	invokable struct {
		named
		run func(ctx context.Context, args string) (string, error)
	}
	streamable struct {
		named
		run func(ctx context.Context, args string) (*schema.StreamReader[string], error)
	}
	enhancedInvokable struct {
		named
		run func(ctx context.Context, args string) (string, error)
	}
	enhancedStreamable struct {
		named
		run func(ctx context.Context, args string) (*schema.StreamReader[string], error)
	}
)

func (t invokable) InvokableRun(ctx context.Context, args string, _ ...tool.Option) (string, error) {
	return t.run(ctx, args)
}

func (t streamable) StreamableRun(ctx context.Context, args string, _ ...tool.Option) (*schema.StreamReader[string], error) {
	return t.run(ctx, args)
}

func (t enhancedInvokable) InvokableRun(ctx context.Context, arg *schema.ToolArgument, _ ...tool.Option) (*schema.ToolResult, error) {
	text, err := t.run(ctx, arg.Text)
	return result(text), err
}

func (t enhancedStreamable) StreamableRun(ctx context.Context, arg *schema.ToolArgument, _ ...tool.Option) (*schema.StreamReader[*schema.ToolResult], error) {
	texts, err := t.run(ctx, arg.Text)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderWithConvert(texts, func(text string) (*schema.ToolResult, error) { return result(text), nil }), nil
}

func result(text string) *schema.ToolResult {
	return &schema.ToolResult{Parts: []schema.ToolOutputPart{{Type: schema.ToolPartTypeText, Text: text}}}
}

// kinds makes a tool of each kind, named "t". run is called once for each attempt.
func kinds(run func(ctx context.Context) (string, error)) map[string]tool.BaseTool {
	once := func(ctx context.Context, _ string) (string, error) { return run(ctx) }
	chunks := func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		text, err := run(ctx)
		if err != nil {
			return nil, err
		}
		return schema.StreamReaderFromArray(strings.SplitAfter(text, " ")), nil
	}
	return map[string]tool.BaseTool{
		"invokable":           invokable{"t", once},
		"streamable":          streamable{"t", chunks},
		"enhanced invokable":  enhancedInvokable{"t", once},
		"enhanced streamable": enhancedStreamable{"t", chunks},
	}
}

// says returns the function of a streamable tool that says the texts and then ends, with
// an error if it is not nil. Each text takes the time that is given. It heeds its ctx.
func says(each time.Duration, end error, texts ...string) func(context.Context, string) (*schema.StreamReader[string], error) {
	return func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		r, w := schema.Pipe[string](0)
		go func() {
			defer w.Close()
			for _, text := range texts {
				select {
				case <-time.After(each):
				case <-ctx.Done():
					w.Send("", ctx.Err())
					return
				}
				if w.Send(text, nil) {
					return
				}
			}
			if end != nil {
				w.Send("", end)
			}
		}()
		return r, nil
	}
}

// newGuard returns a guard whose calls are made once, with the defaults else. Each edit
// changes its settings.
func newGuard(t testing.TB, edits ...func(*toolhealth.Settings)) *toolhealth.Guard {
	t.Helper()
	s := toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}}
	for _, edit := range edits {
		edit(&s)
	}
	guard, err := toolhealth.New(s)
	require.NoError(t, err)
	return guard
}

// health returns what the guard knows of a tool.
func health(t testing.TB, guard *toolhealth.Guard, tool string) toolhealth.ToolHealth {
	t.Helper()
	h, ok := guard.Registry().Health(tool)
	require.True(t, ok, "no entry of "+tool)
	return h
}

// newAgent returns a react agent whose tools are guarded.
func newAgent(t testing.TB, guard *toolhealth.Guard, m script, tools ...tool.BaseTool) *react.Agent {
	t.Helper()
	agent, err := react.NewAgent(t.Context(), &react.AgentConfig{
		ToolCallingModel: m,
		MaxStep:          40,
		ToolsConfig: compose.ToolsNodeConfig{
			Tools:               tools,
			ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard)},
		},
	})
	require.NoError(t, err)
	return agent
}

// run lets the agent answer, by Generate or by Stream.
func run(ctx context.Context, agent *react.Agent, how string) (*schema.Message, error) {
	in := []*schema.Message{schema.UserMessage("go")}
	if how == "Generate" {
		return agent.Generate(ctx, in)
	}
	chunks, err := agent.Stream(ctx, in)
	if err != nil {
		return nil, err
	}
	return schema.ConcatMessageStream(chunks)
}

// newNode returns a ToolsNode of one guarded tool.
func newNode(t testing.TB, guard *toolhealth.Guard, tl tool.BaseTool, opts ...einohealth.Option) *compose.ToolsNode {
	t.Helper()
	node, err := compose.NewToolNode(t.Context(), &compose.ToolsNodeConfig{
		Tools:               []tool.BaseTool{tl},
		ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard, opts...)},
	})
	require.NoError(t, err)
	return node
}

// ask calls the tool "t" of the node once, by Invoke or by Stream, and returns all that
// the model reads.
func ask(ctx context.Context, node *compose.ToolsNode, how string) (text string, err error) {
	in := schema.AssistantMessage("", turn("t"))
	if how == "Invoke" {
		out, err := node.Invoke(ctx, in)
		if err != nil {
			return "", err
		}
		return textOf(out[0]), nil
	}
	chunks, err := node.Stream(ctx, in)
	if err != nil {
		return "", err
	}
	defer chunks.Close()
	for {
		out, err := chunks.Recv()
		if err != nil {
			return text, err // io.EOF where all went well
		}
		text += textOf(out[0])
	}
}

// direct returns the endpoints of the middleware, without eino around them, for a tool that
// fails: when it is called, or in its stream.
func direct(m compose.ToolMiddleware, run func(context.Context) error) map[string]func(context.Context) error {
	in := &compose.ToolInput{Name: "t", Arguments: "{}"}
	cut := func(ctx context.Context) *schema.StreamReader[string] {
		r, w := schema.Pipe[string](1)
		go func() { w.Send("", run(ctx)); w.Close() }()
		return r
	}
	return map[string]func(context.Context) error{
		"invokable": func(ctx context.Context) error {
			_, err := m.Invokable(func(ctx context.Context, _ *compose.ToolInput) (*compose.ToolOutput, error) {
				return nil, run(ctx)
			})(ctx, in)
			return err
		},
		"enhanced invokable": func(ctx context.Context) error {
			_, err := m.EnhancedInvokable(func(ctx context.Context, _ *compose.ToolInput) (*compose.EnhancedInvokableToolOutput, error) {
				return nil, run(ctx)
			})(ctx, in)
			return err
		},
		"streamable": func(ctx context.Context) error {
			_, err := m.Streamable(func(ctx context.Context, _ *compose.ToolInput) (*compose.StreamToolOutput, error) {
				return nil, run(ctx)
			})(ctx, in)
			return err
		},
		"enhanced streamable": func(ctx context.Context) error {
			_, err := m.EnhancedStreamable(func(ctx context.Context, _ *compose.ToolInput) (*compose.EnhancedStreamableToolOutput, error) {
				return nil, run(ctx)
			})(ctx, in)
			return err
		},
		"stream": func(ctx context.Context) error {
			out, err := m.Streamable(func(ctx context.Context, _ *compose.ToolInput) (*compose.StreamToolOutput, error) {
				return &compose.StreamToolOutput{Result: cut(ctx)}, nil
			})(ctx, in)
			if err != nil {
				return err
			}
			defer out.Result.Close()
			_, err = out.Result.Recv()
			return err
		},
	}
}
