package einohealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/einohealth"
)

const (
	refusal     = "tool temporarily unavailable: circuit breaker open; retry after 30s"
	unreachable = "tool failed: the tool cannot be reached"
)

var errCut = fmt.Errorf("reading from db-7.internal: %w", io.ErrUnexpectedEOF)

// settled is the error with which ask returns if all went well.
func settled(how string) error {
	if how == "Stream" {
		return io.EOF
	}
	return nil
}

// each runs a test for the four kinds of tools, each by Invoke and by Stream.
func each(t *testing.T, run func(context.Context) (string, error), test func(t *testing.T, tl tool.BaseTool, how string)) {
	for kind, tl := range kinds(run) {
		for _, how := range []string{"Invoke", "Stream"} {
			t.Run(kind+" by "+how, func(t *testing.T) { test(t, tl, how) })
		}
	}
}

func TestMiddleware_FailingToolEndsNoRun(t *testing.T) {
	for _, how := range []string{"Generate", "Stream"} {
		t.Run(how, func(t *testing.T) {
			ran := 0
			bad := invokable{"bad", func(context.Context, string) (string, error) { ran++; return "", errCut }}
			good := invokable{"good", func(context.Context, string) (string, error) { return "fine", nil }}
			guard := newGuard(t)
			m := script{turn("bad", "good"), turn("bad"), turn("bad"), turn("bad", "good")}
			answer, err := run(t.Context(), newAgent(t, guard, m, bad, good), how)
			require.NoError(t, err)
			assert.Equal(t, schema.Assistant, answer.Role)
			assert.Equal(t, "I read: "+refusal+" | fine", answer.Content)
			assert.Equal(t, 3, ran)
			h := health(t, guard, "bad")
			assert.Equal(t, toolhealth.StateOpen, h.State)
			assert.EqualValues(t, 3, h.ByKind[toolhealth.KindConnection])
			assert.EqualValues(t, 1, h.Refused)
			h = health(t, guard, "good")
			assert.Equal(t, toolhealth.StateClosed, h.State)
			assert.EqualValues(t, 2, h.Successes)
		})
	}
}

func TestMiddleware_FourKindsCountOnce(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "all is well", nil }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		text, err := ask(t.Context(), newNode(t, guard, tl), how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, "all is well", text)
		h := health(t, guard, "t")
		assert.EqualValues(t, 1, h.Successes)
		assert.EqualValues(t, 1, h.Guard.Calls)
		assert.Zero(t, h.Failures+h.Rejected+h.Neutral+h.Throttled+h.Refused)
		assert.Zero(t, h.InFlight)
	})
}

func TestMiddleware_FourKindsFailAndAreRefused(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "", errCut }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		node := newNode(t, guard, tl)
		for _, want := range []string{unreachable, unreachable, refusal, refusal} { // the third call opens it
			text, err := ask(t.Context(), node, how)
			assert.Equal(t, settled(how), err)
			assert.Equal(t, want, text)
		}
		h := health(t, guard, "t")
		assert.EqualValues(t, 3, h.Failures)
		assert.EqualValues(t, 1, h.Refused)
		assert.Zero(t, h.InFlight)
	})
}

func TestMiddleware_CanceledCallerEndsRun(t *testing.T) {
	var stop context.CancelFunc
	each(t, func(ctx context.Context) (string, error) {
		stop()
		<-ctx.Done()
		return "", errors.New("gave up") // which does not say why
	}, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop = cancel
		_, err := ask(ctx, newNode(t, guard, tl), how)
		assert.ErrorIs(t, err, context.Canceled)
		h := health(t, guard, "t")
		assert.EqualValues(t, 1, h.Neutral)
		assert.Zero(t, h.Failures)
	})
}

// What the tool says to a caller that is gone ends the run, too, also if a model could act on it.
func TestMiddleware_CanceledCallerGetsErrorOfContext(t *testing.T) {
	for _, last := range []error{toolhealth.BadRequest(errors.New("no such city")), errCut} {
		var stop context.CancelFunc
		for name, call := range direct(einohealth.Middleware(newGuard(t)), func(context.Context) error { stop(); return last }) {
			ctx, cancel := context.WithCancel(t.Context())
			stop = cancel
			assert.True(t, call(ctx) == context.Canceled, name)
		}
	}
}

func TestMiddleware_CallerThatIsGoneBeforeEndsRun(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "", errCut }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		guard.Registry().Isolate("t", "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ask(ctx, newNode(t, guard, tl), how)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

func TestMiddleware_ModelReadsWhatItCanActOn(t *testing.T) {
	for _, c := range []struct {
		name, text string
		err        error
	}{
		{"rejected", "there is no city Atlantis", toolhealth.BadRequest(errors.New("there is no city Atlantis"))},
		{"unknown", "tool failed: unknown error", errors.New("password=hunter2")},
		{"unauthorized", "tool failed: access was refused", toolhealth.CheckStatus(401, nil)},
		{"canceled inside", "tool failed: canceled", context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, how := range []string{"Invoke", "Stream"} {
				guard := newGuard(t)
				for _, tl := range []tool.BaseTool{
					invokable{"t", func(context.Context, string) (string, error) { return "", c.err }},
					streamable{"t", says(0, c.err)},
				} {
					text, err := ask(t.Context(), newNode(t, guard, tl), how)
					assert.Equal(t, settled(how), err)
					assert.Equal(t, c.text, text)
				}
				h := health(t, guard, "t")
				assert.EqualValues(t, 2, h.Failures+h.Rejected+h.Neutral)
			}
		})
	}
}

func TestMiddleware_PanicIsFailure(t *testing.T) {
	each(t, func(context.Context) (string, error) { panic("password=hunter2") }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		text, err := ask(t.Context(), newNode(t, guard, tl), how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, "tool failed: the tool crashed", text)
		assert.EqualValues(t, 1, health(t, guard, "t").ByKind[toolhealth.KindPanic])
	})
}

func TestMiddleware_DenialOfHostEndsRun(t *testing.T) {
	denied := errors.New("not on a Sunday")
	each(t, func(context.Context) (string, error) { return "", denied }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t, func(s *toolhealth.Settings) {
			rule := toolhealth.NeutralRule(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, denied) })
			s.Classify = toolhealth.ErrorRules{Own: []toolhealth.Rule{rule}}.Classify
		})
		_, err := ask(t.Context(), newNode(t, guard, tl), how)
		assert.ErrorIs(t, err, denied)
		assert.EqualValues(t, 1, health(t, guard, "t").Neutral)
	})
}

func TestMiddleware_ErrorThatIsSuccessIsAsItIs(t *testing.T) {
	own := errors.New("nothing new")
	each(t, func(context.Context) (string, error) { return "", own }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t, func(s *toolhealth.Settings) {
			s.Classify = func(context.Context, error) toolhealth.Verdict { return toolhealth.Verdict{} }
		})
		_, err := ask(t.Context(), newNode(t, guard, tl), how)
		assert.ErrorIs(t, err, own)
		assert.EqualValues(t, 1, health(t, guard, "t").Successes)
		for name, call := range direct(einohealth.Middleware(guard), func(context.Context) error { return own }) {
			assert.True(t, call(t.Context()) == own, name)
		}
	})
}

func TestMiddleware_AttemptsGetInputOfTheirOwn(t *testing.T) {
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Policy = toolhealth.Policy{MaxAttempts: 2, BackoffBase: toolhealth.Off}
	})
	var got []string
	tl := invokable{"t", func(_ context.Context, args string) (string, error) {
		got = append(got, args)
		if len(got) == 1 {
			return "", errCut
		}
		return "fine", nil
	}}
	inner := compose.ToolMiddleware{Invokable: func(next compose.InvokableToolEndpoint) compose.InvokableToolEndpoint {
		return func(ctx context.Context, in *compose.ToolInput) (*compose.ToolOutput, error) {
			in.Arguments += "!"
			return next(ctx, in)
		}
	}}
	node, err := compose.NewToolNode(t.Context(), &compose.ToolsNodeConfig{
		Tools: []tool.BaseTool{tl}, ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard), inner},
	})
	require.NoError(t, err)
	text, err := ask(t.Context(), node, "Invoke")
	require.NoError(t, err)
	assert.Equal(t, "fine", text)
	assert.Equal(t, []string{"{}!", "{}!"}, got)
	h := health(t, guard, "t")
	assert.EqualValues(t, 1, h.Guard.Calls)
	assert.EqualValues(t, 1, h.Guard.Retries)
}

func TestMiddleware_SubstitutesArePassedOver(t *testing.T) {
	ran := 0
	each(t, func(context.Context) (string, error) { ran++; return "", errCut }, func(t *testing.T, tl tool.BaseTool, how string) {
		ran = 0
		guard := newGuard(t, func(s *toolhealth.Settings) {
			s.Tools = map[string]toolhealth.ToolSettings{"t": {Substitutes: []string{"backup"}}}
		})
		_, err := ask(t.Context(), newNode(t, guard, tl), how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, 1, ran, "the endpoint of t is not that of backup")
		h, known := guard.Registry().Health("backup")
		assert.False(t, known && h.Neutral+h.Failures+h.Successes > 0)
	})
}

func TestMiddleware_NilGuardCallsOnce(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "fine", nil }, func(t *testing.T, tl tool.BaseTool, how string) {
		text, err := ask(t.Context(), newNode(t, nil, tl, nil), how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, "fine", text)
	})
}

func TestText_IsWhatModelReads(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "", errCut }, func(t *testing.T, tl tool.BaseTool, how string) {
		guard := newGuard(t)
		node := newNode(t, guard, tl, einohealth.Text(func(err error) string {
			failed := err.(*toolhealth.ToolError)
			return fmt.Sprint(failed.Tool, " is out: ", failed.Verdict.Kind, " ", errors.Is(err, io.ErrUnexpectedEOF))
		}))
		text, err := ask(t.Context(), node, how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, "t is out: connection true", text)
	})
}

func TestText_PanicIsSafeText(t *testing.T) {
	each(t, func(context.Context) (string, error) { return "", errCut }, func(t *testing.T, tl tool.BaseTool, how string) {
		node := newNode(t, newGuard(t), tl, einohealth.Text(func(error) string { panic("ouch") }))
		text, err := ask(t.Context(), node, how)
		assert.Equal(t, settled(how), err)
		assert.Equal(t, unreachable, text)
	})
}

// The model calls a tool by three names, of which one is its own.
func TestAliases_CountForTool(t *testing.T) {
	config := map[string]compose.ToolAliasConfig{"search": {NameAliases: []string{"find", "look_up"}}}
	guard := newGuard(t)
	node, err := compose.NewToolNode(t.Context(), &compose.ToolsNodeConfig{
		Tools:               []tool.BaseTool{invokable{"search", func(context.Context, string) (string, error) { return "", errCut }}},
		ToolAliases:         config,
		ToolCallMiddlewares: []compose.ToolMiddleware{einohealth.Middleware(guard, einohealth.Aliases(config))},
	})
	require.NoError(t, err)
	_, err = node.Invoke(t.Context(), schema.AssistantMessage("", turn("search", "find", "look_up")))
	require.NoError(t, err)
	assert.Equal(t, 1, guard.Registry().Len())
	assert.Equal(t, toolhealth.StateOpen, health(t, guard, "search").State)
}

// The model calls two tools by aliases, of which each Aliases has one.
func TestAliases_AddUpForAllKinds(t *testing.T) {
	guard := newGuard(t)
	find := map[string]compose.ToolAliasConfig{"t": {NameAliases: []string{"find"}}}
	finds, looksUp := einohealth.Aliases(find), einohealth.Aliases(map[string]compose.ToolAliasConfig{"u": {NameAliases: []string{"look_up"}}})
	find["t"].NameAliases[0] = "changed"
	m := einohealth.Middleware(guard, finds, looksUp)
	for _, alias := range []string{"find", "look_up"} {
		in := &compose.ToolInput{Name: alias}
		_, err := m.Invokable(func(context.Context, *compose.ToolInput) (*compose.ToolOutput, error) { return nil, errCut })(t.Context(), in)
		require.NoError(t, err)
		out, err := m.Streamable(func(context.Context, *compose.ToolInput) (*compose.StreamToolOutput, error) { return nil, errCut })(t.Context(), in)
		require.NoError(t, err)
		out.Result.Close()
	}
	assert.Equal(t, 2, guard.Registry().Len())
	assert.EqualValues(t, 2, health(t, guard, "t").Failures)
	assert.EqualValues(t, 2, health(t, guard, "u").Failures)
}
