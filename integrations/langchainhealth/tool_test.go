package langchainhealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/tools"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/langchainhealth"
)

// broken is a tool whose backend hangs up, and which counts its runs.
func broken(runs *int) *stub {
	return &stub{"Search", func(context.Context, string) (string, error) {
		*runs++
		return "", fmt.Errorf("password=hunter2: %w", io.ErrUnexpectedEOF)
	}}
}

// That is what a guarded tool is for: the executor gives up at once.
func TestTool_WithoutGuardRunEnds(t *testing.T) {
	var runs int
	_, s, err := run(t.Context(), t, []tools.Tool{broken(&runs)}, act("Search"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, 1, s.asked())
}

func TestTool_RunGoesOnAfterRefusal(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	output, s, err := run(t.Context(), t, []tools.Tool{langchainhealth.Tool(guard, broken(&runs))},
		act("Search"), act("search"), act("SEARCH"), act("Search")) // to the executor, all are one tool
	require.NoError(t, err)
	assert.Equal(t, "done", output)
	assert.Equal(t, []string{
		"tool failed: the tool cannot be reached",
		"tool failed: the tool cannot be reached",
		"tool temporarily unavailable: circuit breaker open; retry after 30s", // by this failure
		"tool temporarily unavailable: circuit breaker open; retry after 30s",
	}, s.observations())
	assert.Equal(t, 3, runs)
	assert.Equal(t, 1, guard.Registry().Len())
	h := health(guard, "Search")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.Equal(t, uint64(3), h.ByKind[toolhealth.KindConnection])
	assert.Equal(t, uint64(1), h.Refused)
}

func TestTool_InventedNameIsNoEntry(t *testing.T) {
	var runs int
	guard := newGuard(t, nil)
	output, s, err := run(t.Context(), t, langchainhealth.Tools(guard, broken(&runs)), act("serach"))
	require.NoError(t, err)
	assert.Equal(t, "done", output)
	assert.Equal(t, []string{"serach is not a valid tool, try another one"}, s.observations())
	assert.Zero(t, guard.Registry().Len())
}

func TestTool_PanicBecomesObservation(t *testing.T) {
	guard := newGuard(t, nil)
	output, s, err := run(t.Context(), t, langchainhealth.Tools(guard,
		&stub{"search", func(context.Context, string) (string, error) { panic("password=hunter2") }}), act("search"))
	require.NoError(t, err)
	assert.Equal(t, "done", output)
	require.Len(t, s.observations(), 1)
	assert.NotContains(t, s.observations()[0], "hunter2")
	assert.Equal(t, uint64(1), health(guard, "search").ByKind[toolhealth.KindPanic])
}

func TestTool_BadRequestIsToldInItsOwnWords(t *testing.T) {
	guard := newGuard(t, nil)
	output, s, err := run(t.Context(), t, langchainhealth.Tools(guard,
		&stub{"weather", func(context.Context, string) (string, error) {
			return "", toolhealth.BadRequest(errors.New("no such city: x"))
		}}), act("weather"), act("weather"), act("weather"), act("weather"))
	require.NoError(t, err)
	assert.Equal(t, "done", output)
	assert.Equal(t, "no such city: x", s.observations()[3])
	h := health(guard, "weather")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Equal(t, uint64(4), h.Rejected)
}

// Whatever the tool makes of it, a run whose caller is gone ends, with the caller's error
// in the chain, and the model is not asked again.
func TestTool_CallerWhoIsGoneEndsRun(t *testing.T) {
	for _, result := range []struct {
		name string
		err  func(context.Context) error
	}{
		{"the tool returns ctx.Err", context.Context.Err},
		{"the tool returns an error of its own", func(context.Context) error { return errors.New("stopped") }},
	} {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(fmt.Sprint(want, ", ", result.name), func(t *testing.T) {
				caller := newLeaver(t, want)
				guard := newGuard(t, nil)
				_, s, err := run(caller, t, langchainhealth.Tools(guard, &stub{"search", func(ctx context.Context, _ string) (string, error) {
					close(caller.left)
					<-ctx.Done()
					return "", result.err(ctx)
				}}), act("search"))
				require.ErrorIs(t, err, want)
				assert.Equal(t, 1, s.asked())
				assert.Zero(t, health(guard, "search").Failures)
			})
		}
	}
}

func TestTool_DenialEndsRun(t *testing.T) {
	denied := errors.New("a person has to say yes")
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Classify = toolhealth.ErrorRules{Own: []toolhealth.Rule{toolhealth.NeutralRule(toolhealth.KindDenied,
			func(err error) bool { return errors.Is(err, denied) })}}.Classify
	})
	_, s, err := run(t.Context(), t, langchainhealth.Tools(guard,
		&stub{"pay", func(context.Context, string) (string, error) { return "", denied }}), act("pay"))
	require.ErrorIs(t, err, denied)
	assert.Equal(t, 1, s.asked())
	assert.Equal(t, uint64(1), health(guard, "pay").Neutral)
}

func TestTool_CheckFindsFailureInResult(t *testing.T) {
	guard := newGuard(t, nil)
	empty := errors.New("the result is empty")
	search := langchainhealth.Tool(guard, &stub{"search", func(_ context.Context, in string) (string, error) { return in, nil }},
		nil, func(result string) error {
			if result == "" {
				return empty
			}
			return nil
		})
	out, err := search.Call(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "x", out)
	out, err = search.Call(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "tool failed: unknown error", out)
	h := health(guard, "search")
	assert.Equal(t, uint64(1), h.Successes)
	assert.Equal(t, uint64(1), h.Failures)
}

func TestTool_NilGuardMakesEachCallOnce(t *testing.T) {
	var runs int
	search := langchainhealth.Tool(nil, broken(&runs))
	for range 5 {
		out, err := search.Call(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, "tool failed: the tool cannot be reached", out)
	}
	assert.Equal(t, 5, runs)
	assert.Equal(t, "Search", search.Name())
	assert.Equal(t, "does what is asked of Search", search.Description())
}

func TestTools_SubstituteServes(t *testing.T) {
	var runs int
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Tools = map[string]toolhealth.ToolSettings{"Search": {Substitutes: []string{"nowhere", "archive"}}}
	})
	archive := &stub{"archive", func(_ context.Context, in string) (string, error) { return "archived " + in, nil }}
	output, s, err := run(t.Context(), t, langchainhealth.Tools(guard, broken(&runs), archive),
		act("search"), act("search"), act("search"), act("search"))
	require.NoError(t, err)
	assert.Equal(t, "done", output)
	assert.Equal(t, "archived x", s.observations()[0])
	assert.Equal(t, "archived x", s.observations()[3])
	assert.Equal(t, 3, runs, "the fourth call is refused, and goes to the substitute")
	_, known := guard.Registry().Health("nowhere")
	assert.False(t, known)
}
