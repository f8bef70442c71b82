package genkithealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/status"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/genkithealth"
)

// broken is a tool whose backend hangs up, and which counts its runs.
func broken(runs *int) func(*ai.ToolContext, string) (string, error) {
	return func(*ai.ToolContext, string) (string, error) {
		*runs++
		return "", fmt.Errorf("password=hunter2: %w", io.ErrUnexpectedEOF)
	}
}

// That is what the middleware is for: the first error ends everything.
func TestGuard_WithoutItRunEnds(t *testing.T) {
	var runs int
	a := newApp(t.Context(), times(4, "search"), "search", broken(&runs))
	_, err := a.generate(t.Context(), nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, 1, a.model.asked)
}

func TestGuard_RunGoesOnAfterRefusal(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	a := newApp(t.Context(), times(4, "search"), "search", broken(&runs))
	res, err := a.generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	require.Len(t, a.model.told, 4)
	assert.JSONEq(t, `{"reason": "tool_failure:retry_exhausted", "kind": "connection", "attempts": 1,
		"text": "tool failed: the tool cannot be reached"}`, a.model.told[0])
	assert.JSONEq(t, `{"reason": "tool_unavailable:circuit_open", "kind": "refused", "attempts": 0, "retry_after_seconds": 30,
		"text": "tool temporarily unavailable: circuit breaker open; retry after 30s"}`, a.model.told[3])
	assert.Equal(t, 3, runs)
	h := health(guard, "search")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.Equal(t, uint64(3), h.ByKind[toolhealth.KindConnection])
	assert.Equal(t, uint64(1), h.Refused)
}

// Plugins, such as that for Gemini, look for a map.
func TestGuard_OutputIsMap(t *testing.T) {
	var runs int
	a := newApp(t.Context(), times(1, "search"), "search", broken(&runs))
	res, err := a.generate(t.Context(), newGuard(t, nil))
	require.NoError(t, err)
	history := res.History()
	part := history[len(history)-2].Content[0]
	require.True(t, part.IsToolResponse())
	assert.IsType(t, map[string]any{}, part.ToolResponse.Output)
}

func TestGuard_GoodAnswerIsUnchanged(t *testing.T) {
	guard := newGuard(t, nil)
	a := newApp(t.Context(), times(1, "echo"), "echo", func(_ *ai.ToolContext, q string) (string, error) { return q, nil })
	res, err := a.generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	assert.Equal(t, []string{`"x"`}, a.model.told)
	assert.Equal(t, uint64(1), health(guard, "echo").Successes)
}

// Tools of one message run at once.
func TestGuard_ToolsAtOnceAreCountedOnceEach(t *testing.T) {
	guard := newGuard(t, nil)
	m := &model{calls: [][]string{{"echo", "echo", "echo", "echo"}, {"echo", "echo"}}}
	a := newApp(t.Context(), m, "echo", func(_ *ai.ToolContext, q string) (string, error) { return q, nil })
	_, err := a.generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Len(t, m.told, 6)
	assert.Equal(t, uint64(6), health(guard, "echo").Successes)
}

func TestGuard_InventedNameIsNoEntry(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	a := newApp(t.Context(), times(1, "nope"), "search", broken(&runs))
	_, err := a.generate(t.Context(), guard)
	require.ErrorIs(t, err, ai.ErrToolNotFound) // genkit ends the run before any hook
	assert.Zero(t, guard.Registry().Len())
}

func TestGuard_AliasOfNameIsSameEntry(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	a := newApp(t.Context(), &model{calls: [][]string{{"search"}, {"/search"}}}, "search", broken(&runs))
	_, err := a.generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Equal(t, 2, runs)
	assert.Equal(t, 1, guard.Registry().Len())
	assert.Equal(t, uint64(2), health(guard, "search").Failures)
}

func TestGuard_InterruptIsNeutralAndResumes(t *testing.T) {
	failed := toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindUnknown, Retryable: true}
	for name, classify := range map[string]toolhealth.Classifier{
		"default":             nil,
		"with a rule for all": toolhealth.ErrorRules{Own: []toolhealth.Rule{func(error) (toolhealth.Verdict, bool) { return failed, true }}}.Classify,
		"of the user's own":   func(context.Context, error) toolhealth.Verdict { return failed },
	} {
		t.Run(name, func(t *testing.T) {
			guard := newGuard(t, func(s *toolhealth.Settings) { s.Classify = classify })
			a := newApp(t.Context(), times(1, "pay"), "pay", func(tc *ai.ToolContext, _ string) (string, error) {
				if !tc.IsResumed() {
					return "", tc.Interrupt(&ai.InterruptOptions{Metadata: map[string]any{"ask": "may I?"}})
				}
				return "paid", nil
			})
			res, err := a.generate(t.Context(), guard)
			require.NoError(t, err)
			require.Equal(t, ai.FinishReasonInterrupted, res.FinishReason)
			require.Len(t, res.Interrupts(), 1)
			assert.Equal(t, map[string]any{"ask": "may I?"}, res.Interrupts()[0].Metadata["interrupt"])
			assert.Equal(t, name != "of the user's own", health(guard, "pay").NeutralByKind[toolhealth.KindDenied] == 1)

			res, err = a.generate(t.Context(), guard, ai.WithMessages(res.History()...),
				ai.WithToolRestarts(a.tool.Restart(res.Interrupts()[0], &ai.RestartOptions{ResumedMetadata: map[string]any{"yes": true}})))
			require.NoError(t, err)
			assert.Equal(t, "done", res.Text())
			assert.Equal(t, []string{`"paid"`}, a.model.told)
			assert.Equal(t, uint64(1), health(guard, "pay").Successes)
		})
	}
}

// The middleware of genkit that asks a person first, behind the guard and before it.
func TestGuard_ApprovalOfGenkitInterrupts(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprint("the guard is first: ", first), func(t *testing.T) {
			var runs int
			guard := newGuard(t, nil)
			all := []ai.Middleware{&middleware.ToolApproval{}, genkithealth.Guard{Guard: guard}}
			if first {
				slices.Reverse(all)
			}
			a := newApp(t.Context(), times(1, "search"), "search", broken(&runs))
			res, err := a.generate(t.Context(), nil, ai.WithPrompt("go"), ai.WithUse(all...))
			require.NoError(t, err)
			require.Equal(t, ai.FinishReasonInterrupted, res.FinishReason)
			assert.Zero(t, runs)

			res, err = a.generate(t.Context(), nil, ai.WithUse(all...), ai.WithMessages(res.History()...),
				ai.WithToolRestarts(a.tool.Restart(res.Interrupts()[0], &ai.RestartOptions{ResumedMetadata: map[string]any{"toolApproved": true}})))
			require.NoError(t, err)
			assert.Equal(t, "done", res.Text())
			assert.Equal(t, 1, runs)
			h := health(guard, "search")
			assert.Equal(t, first, h.Neutral == 1)
			assert.Equal(t, uint64(1), h.Failures)
		})
	}
}

func TestGuard_InterruptsNeverOpenBreaker(t *testing.T) {
	guard := newGuard(t, nil)
	for range 10 {
		a := newApp(t.Context(), times(1, "pay"), "pay", func(tc *ai.ToolContext, _ string) (string, error) { return "", tc.Interrupt(nil) })
		res, err := a.generate(t.Context(), guard)
		require.NoError(t, err)
		require.Equal(t, ai.FinishReasonInterrupted, res.FinishReason)
	}
	h := health(guard, "pay")
	assert.Equal(t, uint64(10), h.Neutral)
	assert.True(t, h.Available)
}

func TestGuard_DenialEndsRun(t *testing.T) {
	denied := errors.New("the policy says no")
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Classify = toolhealth.ErrorRules{Own: []toolhealth.Rule{toolhealth.NeutralRule(toolhealth.KindDenied,
			func(err error) bool { return errors.Is(err, denied) })}}.Classify
	})
	a := newApp(t.Context(), times(2, "pay"), "pay", func(*ai.ToolContext, string) (string, error) { return "", denied })
	_, err := a.generate(t.Context(), guard)
	require.ErrorIs(t, err, denied)
	assert.Equal(t, 1, a.model.asked)
}

// Whatever the tool makes of it, a run whose caller is gone ends with the caller's error in
// the chain, and the model is not asked again.
func TestGuard_CallerWhoIsGoneEndsRun(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(fmt.Sprint(want, ", an error of its own: ", own), func(t *testing.T) {
				ctx := newLeaver(t, want)
				guard := newGuard(t, nil)
				a := newApp(t.Context(), times(2, "search"), "search", func(tc *ai.ToolContext, _ string) (string, error) {
					close(ctx.left)
					<-tc.Done()
					if own {
						return "", errors.New("stopped")
					}
					return "", tc.Err()
				})
				_, err := a.generate(ctx, guard)
				require.ErrorIs(t, err, want)
				assert.Equal(t, 1, a.model.asked)
				assert.Zero(t, health(guard, "search").Failures)
			})
		}
	}
}

func TestGuard_PanicBecomesSafeText(t *testing.T) {
	guard := newGuard(t, nil)
	a := newApp(t.Context(), times(1, "search"), "search", func(*ai.ToolContext, string) (string, error) { panic("password=hunter2") })
	res, err := a.generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	assert.NotContains(t, a.model.told[0], "hunter2")
	assert.Equal(t, uint64(1), health(guard, "search").ByKind[toolhealth.KindPanic])
}

// Arguments that do not fit the schema are the model's fault, and it reads why.
func TestGuard_WrongArgumentsAreToldAndOpenNothing(t *testing.T) {
	guard := newGuard(t, nil)
	m := times(5, "add")
	g := genkit.Init(t.Context())
	genkit.DefineModelAction(g, "test/scripted", withTools, m.generate)
	add := genkit.DefineTool(g, "add", "adds", func(_ *ai.ToolContext, in struct {
		A int `json:"a"`
	}) (int, error) {
		return in.A, nil
	})
	res, err := (&app{g, m, add}).generate(t.Context(), guard)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	assert.Contains(t, m.told[4], "did not match expected schema")
	h := health(guard, "add")
	assert.Equal(t, uint64(5), h.Rejected)
	assert.True(t, h.Available)
}

// What genkit's own errors mean, at the end of the chain that a hook sees.
func TestGuard_StatusOfGenkitIsUnderstood(t *testing.T) {
	for _, row := range []struct {
		err     *status.Sentinel
		outcome toolhealth.Outcome
		kind    toolhealth.Kind
	}{
		{status.ErrInvalidArgument, toolhealth.OutcomeRejected, toolhealth.KindInvalidRequest},
		{status.ErrNotFound, toolhealth.OutcomeRejected, toolhealth.KindNotFound},
		{status.ErrUnauthenticated, toolhealth.OutcomeRejected, toolhealth.KindUnauthorized},
		{status.ErrPermissionDenied, toolhealth.OutcomeRejected, toolhealth.KindUnauthorized},
		{status.ErrResourceExhausted, toolhealth.OutcomeFailure, toolhealth.KindRateLimited},
		{status.ErrDeadlineExceeded, toolhealth.OutcomeFailure, toolhealth.KindServerError}, // as a 504
		{status.ErrUnavailable, toolhealth.OutcomeFailure, toolhealth.KindServerError},
		{status.ErrInternal, toolhealth.OutcomeFailure, toolhealth.KindServerError},
	} {
		t.Run(string(row.err.Status()), func(t *testing.T) {
			var saw toolhealth.Verdict
			guard := newGuard(t, func(s *toolhealth.Settings) {
				s.Observe = func(_ context.Context, e toolhealth.Event) { saw = e.Verdict }
			})
			a := newApp(t.Context(), times(1, "search"), "search", func(*ai.ToolContext, string) (string, error) {
				return "", status.Errorf(row.err, "no")
			})
			res, err := a.generate(t.Context(), guard)
			require.NoError(t, err)
			assert.Equal(t, "done", res.Text())
			assert.Equal(t, row.outcome, saw.Outcome)
			assert.Equal(t, row.kind, saw.Kind)
		})
	}
}

func TestGuard_ZeroMakesEachCallOnce(t *testing.T) {
	var runs int
	a := newApp(t.Context(), times(5, "search"), "search", broken(&runs))
	res, err := a.generate(t.Context(), nil, ai.WithPrompt("go"), ai.WithUse(genkithealth.Guard{}))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	assert.Equal(t, 5, runs)
}

// A guard that is registered serves where only its name is given, as in a prompt file.
func TestGuard_ServesByName(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	a := newApp(t.Context(), times(4, "search"), "search", broken(&runs))
	genkit.DefineMiddleware(a.Genkit, "breakers", genkithealth.Guard{Guard: guard})
	res, err := genkit.GenerateWithRequest(t.Context(), a.Genkit, &ai.GenerateActionOptions{
		Model: "test/scripted", Tools: []string{"search"}, Messages: []*ai.Message{ai.NewUserTextMessage("go")},
		Use: []*ai.MiddlewareRef{{Name: "toolhealth/guard"}},
	}, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Text())
	assert.Equal(t, toolhealth.StateOpen, health(guard, "search").State)
}

func TestRules_InterruptSaysNothingAboutTool(t *testing.T) {
	rule := genkithealth.Rules()[0]
	v, known := rule(fmt.Errorf("pay: %w", ai.NewToolInterruptError(nil)))
	assert.True(t, known)
	assert.Equal(t, toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}, v)
	_, known = rule(io.ErrUnexpectedEOF)
	assert.False(t, known)
}
