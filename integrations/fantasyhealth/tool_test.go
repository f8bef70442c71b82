package fantasyhealth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"charm.land/fantasy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/fantasyhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
)

// broken is a tool whose backend hangs up, and which counts its runs.
func broken(ran *int) fantasy.AgentTool {
	return newTool("search", func(context.Context, string) (fantasy.ToolResponse, error) {
		*ran++
		return fantasy.ToolResponse{}, fmt.Errorf("password=hunter2: %w", io.ErrUnexpectedEOF)
	})
}

// That is what a guarded tool is for: the run ends at once, and Generate does not even say
// why.
func TestTool_WithoutGuardRunEnds(t *testing.T) {
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			var ran int
			m := &model{calls: times(4, "search")}
			res, err := run(t.Context(), newAgent(t, m, broken(&ran)))
			if name == "generate" {
				require.NoError(t, err)
				assert.Empty(t, res.Response.Content.Text())
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
			asked, _ := m.seen()
			assert.Equal(t, 1, asked)
		})
	}
}

func TestTool_RunGoesOnAfterRefusal(t *testing.T) {
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			var ran int
			guard := newGuard(t, nil)
			m := &model{calls: times(4, "search")}
			res, err := run(t.Context(), newAgent(t, m, fantasyhealth.Tool(guard, broken(&ran))))
			require.NoError(t, err)
			assert.Equal(t, "done", res.Response.Content.Text())
			_, told := m.seen()
			assert.Equal(t, []string{
				"tool failed: the tool cannot be reached",
				"tool failed: the tool cannot be reached",
				"tool temporarily unavailable: circuit breaker open; retry after 30s", // by this failure
				"tool temporarily unavailable: circuit breaker open; retry after 30s",
			}, told)
			assert.Equal(t, 3, ran)
			h := health(guard, "search")
			assert.Equal(t, toolhealth.StateOpen, h.State)
			assert.Equal(t, uint64(3), h.ByKind[toolhealth.KindConnection])
			assert.Equal(t, uint64(1), h.Refused)
		})
	}
}

func TestTool_InventedNameIsNoEntry(t *testing.T) {
	var ran int
	guard := newGuard(t, nil)
	m := &model{calls: []string{"serach"}}
	res, err := runs["generate"](t.Context(), newAgent(t, m, fantasyhealth.Tool(guard, broken(&ran))))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Response.Content.Text())
	assert.Zero(t, guard.Registry().Len())
}

func TestTool_PanicBecomesSafeText(t *testing.T) {
	guard := newGuard(t, nil)
	m := &model{calls: []string{"search"}}
	res, err := runs["stream"](t.Context(), newAgent(t, m, fantasyhealth.Tool(guard,
		newTool("search", func(context.Context, string) (fantasy.ToolResponse, error) { panic("password=hunter2") }))))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Response.Content.Text())
	_, told := m.seen()
	require.Len(t, told, 1)
	assert.NotContains(t, told[0], "hunter2")
	assert.Equal(t, uint64(1), health(guard, "search").ByKind[toolhealth.KindPanic])
}

func TestTool_ErrorResponseReachesModelAsItIs(t *testing.T) {
	const said = "no such city: x\nsee https://weather.example/cities"
	guard := newGuard(t, nil)
	m := &model{calls: times(10, "weather")}
	res, err := runs["generate"](t.Context(), newAgent(t, m, fantasyhealth.Tool(guard,
		newTool("weather", func(context.Context, string) (fantasy.ToolResponse, error) {
			return fantasy.NewTextErrorResponse(said), nil
		}))))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Response.Content.Text())
	_, told := m.seen()
	require.Len(t, told, 10)
	assert.Equal(t, said, told[9])
	h := health(guard, "weather")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.Equal(t, uint64(10), h.Rejected)
	assert.Zero(t, h.Failures)
}

// A tool that puts what its server did into an error response would hide an outage.
func TestTool_ErrorResponseCountsAsNoteSays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	t.Cleanup(server.Close)
	client := server.Client()
	client.Transport = httphealth.Witness(client.Transport)
	search := newTool("search", func(ctx context.Context, _ string) (fantasy.ToolResponse, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return fantasy.ToolResponse{}, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return fantasy.ToolResponse{}, err
		}
		return fantasy.NewTextErrorResponse("search.internal says " + resp.Status), resp.Body.Close()
	})
	guard := newGuard(t, nil)
	m := &model{calls: times(4, "search")}
	res, err := runs["generate"](t.Context(), newAgent(t, m, fantasyhealth.Tool(guard, search)))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Response.Content.Text())
	_, told := m.seen()
	assert.Equal(t, []string{
		"tool failed: internal error of the tool",
		"tool failed: internal error of the tool",
		"tool temporarily unavailable: circuit breaker open; retry after 30s",
		"tool temporarily unavailable: circuit breaker open; retry after 30s",
	}, told)
	assert.Equal(t, uint64(3), health(guard, "search").ByKind[toolhealth.KindServerError])
}

// A tool that makes an error response of its time-out, too.
func TestTool_ErrorResponseAfterTimeoutIsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, func(s *toolhealth.Settings) { s.Policy.Timeout = time.Second })
		search := fantasyhealth.Tool(guard, newTool("search", func(ctx context.Context, _ string) (fantasy.ToolResponse, error) {
			<-ctx.Done()
			return fantasy.NewTextErrorResponse("search.internal: " + ctx.Err().Error()), nil
		}))
		res, err := search.Run(t.Context(), fantasy.ToolCall{Input: "{}"})
		require.NoError(t, err)
		assert.Equal(t, fantasy.NewTextErrorResponse("tool failed: no answer in time"), res)
		assert.Equal(t, uint64(1), health(guard, "search").ByKind[toolhealth.KindTimeout])
	})
}

func TestTool_StopTurnEndsRun(t *testing.T) {
	for _, failed := range []bool{false, true} {
		for name, run := range runs {
			t.Run(fmt.Sprint(name, ", error ", failed), func(t *testing.T) {
				guard := newGuard(t, nil)
				m := &model{calls: times(2, "pay")}
				res, err := run(t.Context(), newAgent(t, m, fantasyhealth.Tool(guard,
					newTool("pay", func(context.Context, string) (fantasy.ToolResponse, error) {
						return fantasy.ToolResponse{Type: "text", Content: "a person said no", IsError: failed, StopTurn: true, Metadata: "{}"}, nil
					}))))
				require.NoError(t, err)
				asked, _ := m.seen()
				assert.Equal(t, 1, asked)
				results := res.Response.Content.ToolResults()
				require.Len(t, results, 1)
				assert.True(t, results[0].StopTurn)
				assert.Equal(t, "{}", results[0].ClientMetadata)
				h := health(guard, "pay")
				assert.Equal(t, failed, h.NeutralByKind[toolhealth.KindDenied] == 1)
				assert.Equal(t, failed, h.Successes == 0)
				assert.True(t, h.Available)
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
	m := &model{calls: times(2, "pay")}
	_, err := runs["stream"](t.Context(), newAgent(t, m, fantasyhealth.Tool(guard,
		newTool("pay", func(context.Context, string) (fantasy.ToolResponse, error) { return fantasy.ToolResponse{}, denied }))))
	require.ErrorIs(t, err, denied)
	asked, _ := m.seen()
	assert.Equal(t, 1, asked)
	assert.Equal(t, uint64(1), health(guard, "pay").Neutral)
}

// Whatever the tool makes of it, a call whose caller is gone ends with an error, and the
// model is not asked again.
func TestTool_CallerWhoIsGoneEndsRun(t *testing.T) {
	for _, result := range []struct {
		name string
		of   func(context.Context) (fantasy.ToolResponse, error)
	}{
		{"error of ctx", func(ctx context.Context) (fantasy.ToolResponse, error) { return fantasy.ToolResponse{}, ctx.Err() }},
		{"another error", func(context.Context) (fantasy.ToolResponse, error) {
			return fantasy.ToolResponse{}, errors.New("stopped")
		}},
		{"an error response", func(context.Context) (fantasy.ToolResponse, error) {
			return fantasy.NewTextErrorResponse("stopped"), nil
		}},
	} {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			for name, run := range runs {
				t.Run(fmt.Sprint(name, ", ", want, ", ", result.name), func(t *testing.T) {
					caller := newLeaver(t, want)
					guard := newGuard(t, nil)
					m := &model{calls: times(2, "search")}
					guarded := fantasyhealth.Tool(guard, newTool("search", func(ctx context.Context, _ string) (fantasy.ToolResponse, error) {
						close(caller.left)
						<-ctx.Done()
						return result.of(ctx)
					}))
					_, err := run(caller, newAgent(t, m, guarded))
					if name == "stream" { // Generate drops the error of a tool
						require.ErrorIs(t, err, want)
					}
					asked, _ := m.seen()
					assert.Equal(t, 1, asked)
					assert.Zero(t, health(guard, "search").Failures)

					_, err = guarded.Run(caller, fantasy.ToolCall{Input: "{}"}) // to the caller of the next one
					require.ErrorIs(t, err, want)
				})
			}
		}
	}
}

func TestTool_NilGuardMakesEachCallOnce(t *testing.T) {
	var ran int
	search := fantasyhealth.Tool(nil, broken(&ran))
	for range 5 {
		res, err := search.Run(t.Context(), fantasy.ToolCall{Name: "search", Input: "{}"})
		require.NoError(t, err)
		assert.True(t, res.IsError)
		assert.Equal(t, "tool failed: the tool cannot be reached", res.Content)
	}
	assert.Equal(t, 5, ran)
}

func TestTool_InfoAndOptionsAreThoseOfTool(t *testing.T) {
	parallel := fantasy.NewParallelAgentTool("search", "searches", func(context.Context, input, fantasy.ToolCall) (fantasy.ToolResponse, error) {
		return fantasy.ToolResponse{}, nil
	})
	guarded := fantasyhealth.Tool(nil, parallel)
	assert.Equal(t, parallel.Info(), guarded.Info())
	assert.True(t, guarded.Info().Parallel)
	guarded.SetProviderOptions(fantasy.ProviderOptions{"x": nil})
	assert.Equal(t, parallel.ProviderOptions(), guarded.ProviderOptions())
	assert.Len(t, parallel.ProviderOptions(), 1)
}

func TestTools_SubstituteServes(t *testing.T) {
	var ran int
	var called []string
	guard := newGuard(t, func(s *toolhealth.Settings) {
		s.Tools = map[string]toolhealth.ToolSettings{"search": {Substitutes: []string{"nowhere", "archive"}}}
	})
	archive := fantasy.NewAgentTool("archive", "searches an archive", func(_ context.Context, in input, call fantasy.ToolCall) (fantasy.ToolResponse, error) {
		called = append(called, call.Name)
		return fantasy.NewTextResponse("archived " + in.Q), nil
	})
	m := &model{calls: times(4, "search")}
	res, err := runs["generate"](t.Context(), newAgent(t, m, fantasyhealth.Tools(guard, broken(&ran), archive)...))
	require.NoError(t, err)
	assert.Equal(t, "done", res.Response.Content.Text())
	_, told := m.seen()
	assert.Equal(t, []string{"archived x", "archived x", "archived x", "archived x"}, told)
	assert.Equal(t, 3, ran, "the fourth call is refused, and goes to the substitute")
	assert.Equal(t, []string{"archive", "archive", "archive", "archive"}, called)
	_, known := guard.Registry().Health("nowhere")
	assert.False(t, known)
}
