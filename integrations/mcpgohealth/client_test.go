package mcpgohealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

func TestSession_RefusesAfterThreeFailures(t *testing.T) {
	ran := 0
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ran++
		return nil, errors.New("secret: the database is down")
	})))
	const refused = "tool temporarily unavailable: circuit breaker open; retry after 30s"
	for _, want := range []string{"tool failed: internal error of the tool", "tool failed: internal error of the tool", refused} {
		assert.Equal(t, want, call(t, s, "t"))
	}
	r := result(t, s, "t")
	assert.True(t, r.IsError)
	assert.Equal(t, refused, text(r))
	var about map[string]any
	require.NoError(t, json.Unmarshal(r.Meta.AdditionalFields[mcpgohealth.MetaKey].(json.RawMessage), &about))
	assert.Equal(t, "tool_unavailable:circuit_open", about["reason"])
	assert.Equal(t, 30.0, about["retry_after_seconds"])
	h := w.health("t")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.EqualValues(t, 3, h.Failures)
	assert.EqualValues(t, 1, h.Refused)
	assert.Equal(t, 3, ran)
	assert.Equal(t, toolhealth.StateClosed, w.group().State, "the server has answered")
}

func TestSession_KeepsFlaggedResults(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("no such city"), nil
	})))
	for range 10 {
		r := result(t, s, "t")
		assert.True(t, r.IsError)
		assert.Equal(t, "no such city", text(r))
		assert.NotContains(t, r.Meta.AdditionalFields, mcpgohealth.MetaKey)
	}
	h := w.health("t")
	assert.Equal(t, toolhealth.StateClosed, h.State)
	assert.EqualValues(t, 10, h.Rejected)
	assert.EqualValues(t, 0, h.Failures)
}

func TestSession_FlaggedAsFailure(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("upstream said 503"), nil
	})), mcpgohealth.FlaggedAs(toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}))
	for range 3 {
		assert.Equal(t, "upstream said 503", call(t, s, "t"))
	}
	assert.Equal(t, toolhealth.StateOpen, w.health("t").State)
}

func TestSession_UnknownNameHasNoEntry(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(say("hello"))))
	for range 5 {
		r := result(t, s, "invented")
		assert.True(t, r.IsError)
		assert.Contains(t, text(r), "tool 'invented' not found")
	}
	assert.Equal(t, 0, w.guard.Registry().Len())
	assert.Equal(t, "hello", call(t, s, "t"))
	assert.Equal(t, 1, w.guard.Registry().Len())
}

func TestSession_RejectedArgumentsHaveOwnWords(t *testing.T) {
	w := newWorld(t, nil)
	url := newFake(t).answer(func(x *exchange) { x.rpc(200, x.id, -32602, `city must be a text`, "") }).url
	s := w.dial(overHTTP(t, url))
	for range 5 {
		assert.Equal(t, "invalid params: city must be a text", call(t, s, "t"))
	}
	assert.EqualValues(t, 5, w.health("t").Rejected)
	assert.Equal(t, toolhealth.StateClosed, w.health("t").State)
}

func TestSession_CanceledCallerEndsRun(t *testing.T) {
	w := newWorld(t, nil)
	begun := make(chan struct{})
	s := w.dial(inProcess(newServer(func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	r, err := s.CallTool(ctx, request("t", nil))
	assert.Nil(t, r)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, toolhealth.OutcomeNeutral, w.last().Outcome)

	_, err = s.CallTool(ctx, request("t", nil)) // canceled before
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.CallTool(ctx, request("invented", nil))
	require.ErrorIs(t, err, context.Canceled)
}

func TestSession_PendingPersonEndsRun(t *testing.T) {
	w := newWorld(t, nil)
	url := newFake(t).answer(func(x *exchange) { x.rpc(200, x.id, -32042, "URL elicitation required", `{"elicitations":[]}`) }).url
	s := w.dial(overHTTP(t, url))
	_, err := s.CallTool(t.Context(), request("t", nil))
	_, ok := errors.AsType[mcp.URLElicitationRequiredError](err)
	assert.True(t, ok, "%v", err)
}

func TestSession_TextOption(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("down")
	})), mcpgohealth.Text(func(err error) string { return "Werkzeug kaputt" }))
	assert.Equal(t, "Werkzeug kaputt", call(t, s, "t"))
}

func TestSession_NameOfServerItself(t *testing.T) {
	w := newWorld(t, nil)
	srv := server.NewMCPServer("github.com/a/b", "1")
	srv.AddTool(reading("t"), say("hello"))
	s, err := mcpgohealth.Dial(t.Context(), w.guard, inProcess(srv))
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, "github.com_a_b", s.Server())
	call(t, s, "t")
	_, ok := w.guard.Registry().Health("github.com_a_b/t")
	assert.True(t, ok)
}

func TestSession_SubstituteOfSameServer(t *testing.T) {
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Tools = map[string]toolhealth.ToolSettings{"srv/t": {Substitutes: []string{"other/t", "srv/u"}}}
	})
	srv := newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("down")
	})
	srv.AddTool(reading("u"), say("from u"))
	s := w.dial(inProcess(srv))
	assert.Equal(t, "from u", call(t, s, "t"))
}

func TestSession_NilGuard(t *testing.T) {
	s, err := mcpgohealth.Dial(t.Context(), nil, inProcess(newServer(say("hello"))))
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, "hello", call(t, s, "t"))
	assert.Contains(t, call(t, s, "invented"), "not found")
}

func TestSession_ForwardsTheRest(t *testing.T) {
	w := newWorld(t, nil)
	srv := newServer(say("hello"), server.WithPromptCapabilities(true), server.WithResourceCapabilities(true, true))
	srv.AddPrompt(mcp.NewPrompt("p"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "d", Messages: []mcp.PromptMessage{}}, nil
	})
	var c client.MCPClient = w.dial(inProcess(srv))
	ctx := t.Context()
	hello, err := c.Initialize(ctx, mcp.InitializeRequest{})
	require.NoError(t, err)
	assert.Equal(t, "test", hello.ServerInfo.Name)
	require.NoError(t, c.Ping(ctx))
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	require.NoError(t, err)
	assert.Len(t, tools.Tools, 1)
	var q mcp.GetPromptRequest
	q.Params.Name = "p"
	prompt, err := c.GetPrompt(ctx, q)
	require.NoError(t, err)
	assert.Equal(t, "d", prompt.Description)
	_, err = c.ListResources(ctx, mcp.ListResourcesRequest{})
	require.NoError(t, err)
	assert.Equal(t, 0, w.guard.Registry().Len())
}

func TestSession_ClosedIsNoFaultOfTool(t *testing.T) {
	w := newWorld(t, nil)
	s := w.dial(inProcess(newServer(say("hello"))))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	for range 4 {
		r := result(t, s, "t")
		assert.True(t, r.IsError)
	}
	assert.EqualValues(t, 0, w.health("t").Failures)
	assert.Error(t, s.Ping(t.Context()))
}

func TestDial_NamesMistakes(t *testing.T) {
	w := newWorld(t, nil)
	_, err := mcpgohealth.Dial(t.Context(), w.guard, nil)
	assert.ErrorContains(t, err, "connect is nil")
	_, err = mcpgohealth.Dial(t.Context(), w.guard, inProcess(newServer(say(""))), mcpgohealth.Server("a/b"))
	assert.ErrorContains(t, err, `"a/b"`)
	_, err = mcpgohealth.Dial(t.Context(), w.guard, func(context.Context) (transport.Interface, error) { return nil, nil })
	assert.ErrorContains(t, err, "neither a transport nor an error")
	_, err = mcpgohealth.Dial(t.Context(), w.guard, func(context.Context) (transport.Interface, error) { return nil, errors.New("no token") })
	assert.ErrorContains(t, err, "no token")
}

// TestSession_ProgressKeepsProbeAlive has a probe that takes longer than its lease.
func TestSession_ProgressKeepsProbeAlive(t *testing.T) {
	for _, progress := range []bool{true, false} {
		var fails atomic.Bool
		fails.Store(true)
		var srv *server.MCPServer
		srv = newServer(func(ctx context.Context, q mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if fails.Load() {
				return nil, errors.New("down")
			}
			for range 10 {
				time.Sleep(50 * time.Millisecond)
				if progress {
					_ = srv.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": q.Params.Meta.ProgressToken, "progress": 1})
				}
			}
			return mcp.NewToolResultText("late"), nil
		})
		w := newWorld(t, func(s *toolhealth.Settings) {
			s.Breaker.RecoveryDuration, s.Breaker.ProbeTimeout = 10*time.Millisecond, 200*time.Millisecond
			s.Policy.Timeout = toolhealth.Off // which would prolong the lease
		})
		s := w.dial(inProcess(srv))
		for range 3 {
			call(t, s, "t")
		}
		fails.Store(false)
		soon(t, func() bool { return w.health("t").Available })
		assert.Equal(t, "late", call(t, s, "t"))
		if progress {
			assert.Equal(t, toolhealth.StateClosed, w.health("t").State)
		} else {
			assert.Equal(t, toolhealth.StateOpen, w.health("t").State, "without progress the lease runs out")
		}
	}
}

// person takes longer to answer than a call may take.
type person struct{ asked atomic.Int32 }

func (p *person) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	p.asked.Add(1)
	time.Sleep(600 * time.Millisecond)
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept}}, nil
}

func TestSession_ElicitationStopsClocks(t *testing.T) {
	legacy := mcp.InitializeRequest{}
	legacy.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	var srv *server.MCPServer
	srv = newServer(func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) { return ask(ctx, srv) }, server.WithElicitation())
	srv.AddTool(reading("ask"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) { return ask(ctx, srv) })
	handler := server.NewStreamableHTTPServer(srv)
	for name, connect := range map[string]mcpgohealth.Connect{
		"stdio": newProgram(t).connect,
		"HTTP":  overHTTP(t, serve(t, handler)),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout, s.Policy.MaxAttempts = 250*time.Millisecond, 2 })
			var p person
			s := w.dial(connect, mcpgohealth.Elicitation(&p), mcpgohealth.Initialize(legacy))
			assert.Equal(t, "accept", call(t, s, "ask"))
			h := w.health("ask")
			assert.EqualValues(t, 1, h.Successes)
			assert.EqualValues(t, 0, h.Failures)
			assert.EqualValues(t, 1, p.asked.Load())
			assert.Less(t, h.Average, 250*time.Millisecond)
		})
	}
}
