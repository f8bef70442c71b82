package einohealth_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// store keeps checkpoints.
type store struct{ m sync.Map }

func (s *store) Get(_ context.Context, id string) ([]byte, bool, error) {
	b, ok := s.m.Load(id)
	if !ok {
		return nil, false, nil
	}
	return b.([]byte), true, nil
}

func (s *store) Set(_ context.Context, id string, b []byte) error { s.m.Store(id, b); return nil }

// asksFirst is the work of a tool that asks a person, and goes on with what the person
// has said.
func asksFirst(ctx context.Context) (string, error) {
	if was, _, _ := tool.GetInterruptState[any](ctx); !was {
		return "", tool.Interrupt(ctx, "may I?")
	}
	if target, has, data := tool.GetResumeContext[string](ctx); target && has {
		return "paid, " + data, nil
	}
	return "", tool.Interrupt(ctx, "may I?")
}

// newGraph returns a graph that does nothing but call a tool, with checkpoints.
func newGraph(t *testing.T, node *compose.ToolsNode) compose.Runnable[*schema.Message, []*schema.Message] {
	t.Helper()
	g := compose.NewGraph[*schema.Message, []*schema.Message]()
	require.NoError(t, g.AddToolsNode("tools", node))
	require.NoError(t, g.AddEdge(compose.START, "tools"))
	require.NoError(t, g.AddEdge("tools", compose.END))
	r, err := g.Compile(t.Context(), compose.WithCheckPointStore(new(store)), compose.WithGraphName("g"))
	require.NoError(t, err)
	return r
}

// drive runs the graph and returns what the tool said.
func drive(ctx context.Context, r compose.Runnable[*schema.Message, []*schema.Message], how, checkpoint string) (string, error) {
	in := schema.AssistantMessage("", turn("t"))
	if how == "Invoke" {
		out, err := r.Invoke(ctx, in, compose.WithCheckPointID(checkpoint))
		if err != nil {
			return "", err
		}
		return textOf(out[0]), nil
	}
	chunks, err := r.Stream(ctx, in, compose.WithCheckPointID(checkpoint))
	if err != nil {
		return "", err
	}
	defer chunks.Close()
	text := ""
	for {
		out, err := chunks.Recv()
		if err != nil {
			return text, err
		}
		text += textOf(out[0])
	}
}

func TestMiddleware_InterruptResumesWithData(t *testing.T) {
	for _, acts := range []bool{false, true} {
		each(t, asksFirst, func(t *testing.T, tl tool.BaseTool, how string) {
			guard := newGuard(t, func(s *toolhealth.Settings) { s.Policy = toolhealth.Policy{SideEffects: acts} })
			r := newGraph(t, newNode(t, guard, tl))
			for i := range 3 {
				checkpoint := fmt.Sprint("run ", i)
				_, err := drive(t.Context(), r, how, checkpoint)
				info, ok := compose.ExtractInterruptInfo(err)
				require.True(t, ok, err)
				require.Len(t, info.InterruptContexts, 1)
				assert.Equal(t, "may I?", info.InterruptContexts[0].Info)
				ctx := compose.ResumeWithData(t.Context(), info.InterruptContexts[0].ID, "thanks")
				text, err := drive(ctx, r, how, checkpoint)
				assert.Equal(t, settled(how), err)
				assert.Equal(t, "paid, thanks", text)
			}
			h := health(t, guard, "t")
			assert.Equal(t, toolhealth.StateClosed, h.State)
			assert.EqualValues(t, 3, h.NeutralByKind[toolhealth.KindDenied])
			assert.EqualValues(t, 3, h.Successes)
			assert.Zero(t, h.Failures)
			assert.EqualValues(t, 6, h.Guard.Attempts)
		})
	}
}

// Two tools in one turn, of which one asks: the other is not called again.
func TestMiddleware_InterruptKeepsWhatOthersSaid(t *testing.T) {
	guard := newGuard(t)
	node, err := compose.NewToolNode(t.Context(), &compose.ToolsNodeConfig{
		Tools: []tool.BaseTool{
			invokable{"pay", func(ctx context.Context, _ string) (string, error) { return asksFirst(ctx) }},
			invokable{"bad", func(context.Context, string) (string, error) { return "", errCut }},
		},
		ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard)},
	})
	require.NoError(t, err)
	r := newGraph(t, node)
	in := schema.AssistantMessage("", turn("pay", "bad"))
	_, err = r.Invoke(t.Context(), in, compose.WithCheckPointID("c"))
	info, ok := compose.ExtractInterruptInfo(err)
	require.True(t, ok, err)
	ctx := compose.ResumeWithData(t.Context(), info.InterruptContexts[0].ID, "thanks")
	out, err := r.Invoke(ctx, in, compose.WithCheckPointID("c"))
	require.NoError(t, err)
	assert.Equal(t, "paid, thanks", out[0].Content)
	assert.Equal(t, unreachable, out[1].Content)
	assert.EqualValues(t, 1, health(t, guard, "bad").Failures)
}

func TestRules_KnowErrorsOfRuntime(t *testing.T) {
	classify := toolhealth.ErrorRules{Own: einohealth.Rules()}.Classify
	for _, err := range []error{
		//lint:ignore SA1019 tools in use return it
		compose.InterruptAndRerun,
		compose.NewInterruptAndRerunErr("why"),
		tool.Interrupt(t.Context(), "why"),
		tool.StatefulInterrupt(t.Context(), "why", "state"),
		compose.CompositeInterrupt(t.Context(), nil, nil, tool.Interrupt(t.Context(), "why")),
		fmt.Errorf("agent: %w", tool.Interrupt(t.Context(), "why")),
	} {
		assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}, classify(t.Context(), err), err)
	}
	for _, err := range []error{adk.ErrStreamCanceled, &adk.CancelError{}, fmt.Errorf("agent: %w", adk.ErrStreamCanceled)} {
		assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindCanceled}, classify(t.Context(), err), err)
	}
	assert.Equal(t, toolhealth.OutcomeFailure, classify(t.Context(), errors.New("interrupt and rerun")).Outcome)
	einohealth.Rules()[0] = nil
	assert.NotNil(t, einohealth.Rules()[0], "each caller has rules of its own")
}

// A graph inside a tool has been interrupted: its error is neither a failure nor a text.
func TestMiddleware_InterruptOfInnerGraphEndsRun(t *testing.T) {
	inner := newGraph(t, newNode(t, newGuard(t), invokable{"t", func(ctx context.Context, _ string) (string, error) { return asksFirst(ctx) }}))
	guard := newGuard(t)
	outer := newNode(t, guard, invokable{"t", func(context.Context, string) (string, error) {
		return drive(context.Background(), inner, "Invoke", "inner")
	}})
	_, err := ask(t.Context(), outer, "Invoke")
	_, ok := compose.ExtractInterruptInfo(err)
	assert.True(t, ok, err)
	assert.EqualValues(t, 1, health(t, guard, "t").NeutralByKind[toolhealth.KindDenied])
}

// eino gets the very error of the tool, and the guard's Classify sees into it.
func TestMiddleware_SignalIsAsToolReturnedIt(t *testing.T) {
	for _, own := range []error{
		tool.Interrupt(t.Context(), "why"),
		fmt.Errorf("agent: %w", tool.Interrupt(t.Context(), "why")),
		adk.ErrStreamCanceled,
		&adk.CancelError{},
	} {
		heard := 0
		guard := newGuard(t, func(s *toolhealth.Settings) {
			s.Classify = func(ctx context.Context, err error) toolhealth.Verdict {
				if errors.Is(err, own) {
					heard++
				}
				return toolhealth.Classify(ctx, err)
			}
		})
		for name, call := range direct(einohealth.Middleware(guard), func(context.Context) error { return own }) {
			assert.True(t, call(t.Context()) == own, "%s: %T", name, own)
		}
		assert.Equal(t, 5, heard)
		h := health(t, guard, "t")
		assert.EqualValues(t, 5, h.Neutral)
		assert.Zero(t, h.Failures+h.Successes)
	}
}
