package einohealth_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/einohealth"
)

// newRunner returns an adk agent whose tools are guarded, in its Runner.
func newRunner(t *testing.T, guard *toolhealth.Guard, streaming bool, m script, tools ...tool.BaseTool) *adk.Runner {
	t.Helper()
	agent, err := adk.NewChatModelAgent(t.Context(), &adk.ChatModelAgentConfig{
		Name: "agent", Description: "for the test", Model: m,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{
			Tools:               tools,
			ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard)},
		}},
	})
	require.NoError(t, err)
	return adk.NewRunner(t.Context(), adk.RunnerConfig{Agent: agent, EnableStreaming: streaming, CheckPointStore: new(store)})
}

// said reads the events of a run, and returns the last message, what
// interrupted it, and its error.
func said(events *adk.AsyncIterator[*adk.AgentEvent]) (text string, pause *adk.InterruptInfo, err error) {
	for {
		e, ok := events.Next()
		if !ok {
			return text, pause, err
		}
		if e.Err != nil {
			err = e.Err
		}
		if e.Action != nil && e.Action.Interrupted != nil {
			pause = e.Action.Interrupted
		}
		if e.Output != nil && e.Output.MessageOutput != nil {
			if m, bad := e.Output.MessageOutput.GetMessage(); bad == nil {
				text = textOf(m)
			}
		}
	}
}

func TestMiddleware_AgentOfADKGoesOn(t *testing.T) {
	for name, streaming := range map[string]bool{"generate": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			guard := newGuard(t)
			bad := invokable{"bad", func(context.Context, string) (string, error) { return "", errCut }}
			cut := streamable{"cut", says(0, errCut, "one ")}
			runner := newRunner(t, guard, streaming, script{turn("bad"), turn("bad"), turn("bad"), turn("bad", "cut")}, bad, cut)
			text, _, err := said(runner.Query(t.Context(), "go"))
			require.NoError(t, err)
			assert.Equal(t, "I read: "+refusal+" | one \n"+unreachable, text)
			assert.Equal(t, toolhealth.StateOpen, health(t, guard, "bad").State)
			assert.EqualValues(t, 1, health(t, guard, "cut").Failures)
		})
	}
}

func TestMiddleware_AgentOfADKResumesWithData(t *testing.T) {
	each(t, asksFirst, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		runner := newRunner(t, guard, how == "Stream", calls("t", 1), tl)
		_, pause, err := said(runner.Query(t.Context(), "go", adk.WithCheckPointID("c")))
		require.NoError(t, err)
		require.NotNil(t, pause)
		id := pause.InterruptContexts[0].ID
		events, err := runner.ResumeWithParams(t.Context(), "c", &adk.ResumeParams{Targets: map[string]any{id: "thanks"}})
		require.NoError(t, err)
		text, _, err := said(events)
		require.NoError(t, err)
		assert.Equal(t, "I read: paid, thanks", text)
		h := health(t, guard, "t")
		assert.EqualValues(t, 1, h.Neutral)
		assert.EqualValues(t, 1, h.Successes)
	})
}

// The caller of adk cancels the run in the middle of a tool's stream. The ctx of the run
// lives on, and that of the tool ends.
func TestMiddleware_CanceledAgentOfADKEnds(t *testing.T) {
	for kind, tl := range enhanced(func(ctx context.Context, _ string) (*schema.StreamReader[string], error) {
		r, w := schema.Pipe[string](1)
		w.Send("one ", nil)
		go func() { <-ctx.Done(); w.Close() }()
		return r, nil
	}) {
		t.Run(kind, func(t *testing.T) {
			guard := newGuard(t)
			option, cancel := adk.WithCancel()
			events := newRunner(t, guard, true, calls("t", 1), tl).Query(t.Context(), "go", option, adk.WithCheckPointID("c"))
			var last error
			for e, ok := events.Next(); ok; e, ok = events.Next() {
				if e.Err != nil {
					last = e.Err
				}
				if e.Output == nil || e.Output.MessageOutput == nil || e.Output.MessageOutput.Role != schema.Tool {
					continue
				}
				chunks := e.Output.MessageOutput.MessageStream
				m, err := chunks.Recv()
				require.NoError(t, err)
				assert.Equal(t, "one ", textOf(m))
				cancel(adk.WithAgentCancelMode(adk.CancelImmediate))
				_, err = chunks.Recv()
				assert.ErrorIs(t, err, adk.ErrStreamCanceled)
				chunks.Close()
			}
			// With or without the middleware: adk may find the stream while it writes the checkpoint.
			if !errors.As(last, new(*adk.CancelError)) {
				assert.ErrorIs(t, last, adk.ErrStreamCanceled)
			}
			h := health(t, guard, "t")
			assert.EqualValues(t, 1, h.NeutralByKind[toolhealth.KindCanceled])
			assert.Zero(t, h.Failures+h.Successes)
			assert.Zero(t, h.InFlight)
		})
	}
}
