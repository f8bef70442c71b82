package mcphealth_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

type question struct {
	City string `json:"city"`
}

type weather struct {
	Degrees int      `json:"degrees"`
	Clouds  []string `json:"clouds"`
}

// connected returns a session of the SDK with the server.
func connected(t testing.TB, server *mcp.Server) *mcp.ClientSession {
	transport, err := inMemory(t, server)(context.Background())
	require.NoError(t, err)
	s, err := mcp.NewClient(implementation, nil).Connect(context.Background(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAddTool_RefusesForIllUpstream(t *testing.T) {
	var asked atomic.Int64
	var ill atomic.Bool
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if ill.Load() {
			w.WriteHeader(503)
		}
	}))
	client := &http.Client{Transport: newBase(t)}
	server := newServer()
	w := newWorld(t, nil)
	mcphealth.AddTool(server, w.tools, &mcp.Tool{Name: "weather"}, func(ctx context.Context, _ *mcp.CallToolRequest, in question) (*mcp.CallToolResult, weather, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, weather{}, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, weather{}, err
		}
		defer resp.Body.Close()
		return nil, weather{Degrees: 21}, toolhealth.CheckStatus(resp.StatusCode, resp.Header)
	})
	s := connected(t, server)
	params := &mcp.CallToolParams{Name: "weather", Arguments: question{"Bern"}}
	res, err := s.CallTool(context.Background(), params)
	require.NoError(t, err)
	assert.False(t, res.IsError)
	assert.Equal(t, map[string]any{"degrees": 21.0, "clouds": nil}, res.StructuredContent)

	ill.Store(true)
	asked.Store(0)
	for range 3 {
		res, err = s.CallTool(context.Background(), params)
		require.NoError(t, err)
		assert.True(t, res.IsError)
		assert.Nil(t, res.StructuredContent)
	}
	res, err = s.CallTool(context.Background(), params)
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 30s", textOf(t, res))
	assert.EqualValues(t, 3, asked.Load())
	h, _ := w.registry.Health("weather")
	assert.Equal(t, toolhealth.StateOpen, h.State)
	assert.EqualValues(t, 3, h.Failures)
	assert.Empty(t, h.Group)
}

func TestAddTool_WrongArgumentsAreTheSDKs(t *testing.T) {
	server, plain := newServer(), newServer()
	w := newWorld(t, nil)
	h := func(context.Context, *mcp.CallToolRequest, question) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	}
	mcphealth.AddTool(server, w.tools, &mcp.Tool{Name: "weather"}, h)
	mcp.AddTool(plain, &mcp.Tool{Name: "weather"}, h)
	wrong := &mcp.CallToolParams{Name: "weather", Arguments: map[string]any{"city": 7}}
	want, err := connected(t, plain).CallTool(context.Background(), wrong)
	require.NoError(t, err)
	s := connected(t, server)
	for range 10 {
		got, err := s.CallTool(context.Background(), wrong)
		require.NoError(t, err)
		assert.True(t, got.IsError)
		assert.Equal(t, textOf(t, want), textOf(t, got))
	}
	assert.Zero(t, w.registry.Len(), "no call has come to the guard")
}

func TestAddTool_OwnErrorsAreUnchanged(t *testing.T) {
	var fail atomic.Value
	server := newServer()
	w := newWorld(t, func(s *toolhealth.Settings) { s.Breaker.FailureThreshold = toolhealth.Off })
	mcphealth.AddTool(server, w.tools, &mcp.Tool{Name: "weather"}, func(context.Context, *mcp.CallToolRequest, question) (*mcp.CallToolResult, weather, error) {
		switch err := fail.Load().(error); err.Error() {
		case "panic":
			panic("password=hunter2")
		case "flagged":
			res := textResult("not today")
			res.IsError = true
			return res, weather{}, nil
		default:
			return nil, weather{}, err
		}
	})
	s := connected(t, server)
	call := func(err error) (*mcp.CallToolResult, error) {
		fail.Store(&wrapped{err})
		return s.CallTool(context.Background(), &mcp.CallToolParams{Name: "weather", Arguments: question{"Bern"}})
	}
	res, err := call(errors.New("no such city"))
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, "no such city", textOf(t, res))

	res, err = call(errors.New("flagged"))
	require.NoError(t, err)
	assert.True(t, res.IsError)
	h, _ := w.registry.Health("weather")
	assert.EqualValues(t, 1, h.Rejected)

	res, err = call(errors.New("panic"))
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.NotContains(t, textOf(t, res), "hunter2")
	h, _ = w.registry.Health("weather")
	assert.EqualValues(t, 1, h.ByKind[toolhealth.KindPanic])
}

// wrapped gives errors of all types one type, for an atomic.Value.
type wrapped struct{ error }

func (e *wrapped) Unwrap() error { return e.error }

func TestHandler_ProtocolErrorsStayWhatTheyAre(t *testing.T) {
	own := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such city"}
	server := newServer()
	w := newWorld(t, nil)
	mcphealth.AddTool(server, w.tools, &mcp.Tool{Name: "typed"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return nil, nil, own
	})
	server.AddTool(&mcp.Tool{Name: "raw", InputSchema: object}, mcphealth.RawHandler(w.tools, "raw", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, own
	}))
	s := connected(t, server)
	for _, tool := range []string{"typed", "raw"} {
		for range 4 {
			_, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
			var said *jsonrpc.Error
			require.ErrorAs(t, err, &said)
			assert.EqualValues(t, jsonrpc.CodeInvalidParams, said.Code)
			assert.Equal(t, "no such city", said.Message)
		}
		h, _ := w.registry.Health(tool)
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 4, h.Rejected)
	}
}

func TestRawHandler_RefusesWithMeta(t *testing.T) {
	server := newServer()
	w := newWorld(t, nil)
	server.AddTool(&mcp.Tool{Name: "raw", InputSchema: object}, mcphealth.RawHandler(w.tools, "raw", good))
	s := connected(t, server)
	text, isError := ask(t, s, "raw")
	assert.False(t, isError)
	assert.Equal(t, "fine", text)
	w.registry.Isolate("raw", "op")
	res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "raw"})
	require.NoError(t, err)
	assert.True(t, res.IsError)
	assert.Equal(t, "tool temporarily unavailable: taken out of service", textOf(t, res))
	meta, ok := res.Meta[mcphealth.MetaKey].(map[string]any)
	require.True(t, ok)
	assert.Equal(t, "tool_unavailable:isolated", meta["reason"])
}

func TestHandler_NoSubstituteByTheSameHandler(t *testing.T) {
	server := newServer()
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Tools = map[string]toolhealth.ToolSettings{"a": {Substitutes: []string{"b"}}, "b": {}}
	})
	ran := false
	mcphealth.AddTool(server, w.tools, &mcp.Tool{Name: "a"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		ran = true
		return nil, nil, nil
	})
	s := connected(t, server)
	w.registry.Isolate("a", "op")
	_, isError := ask(t, s, "a")
	assert.True(t, isError)
	assert.False(t, ran)
}

func TestAddTool_AnnotationsMakePolicy(t *testing.T) {
	w := newWorld(t, nil)
	h := func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	}
	mcphealth.AddTool(newServer(), w.tools, &mcp.Tool{Name: "acts"}, h)
	mcphealth.AddTool(newServer(), w.tools, &mcp.Tool{Name: "reads", Annotations: readOnly}, h)
	assert.True(t, w.tools.Policy("acts", toolhealth.Policy{}).SideEffects)
	assert.False(t, w.tools.Policy("reads", toolhealth.Policy{}).SideEffects)
}
