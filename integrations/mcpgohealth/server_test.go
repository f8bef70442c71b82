package mcpgohealth_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// remote is a plain client of a server over HTTP.
func remote(t *testing.T, s *server.MCPServer) *client.Client {
	t.Helper()
	c, err := client.NewStreamableHttpClient(serve(t, server.NewStreamableHTTPServer(s)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Start(t.Context()))
	_, err = c.Initialize(t.Context(), mcp.InitializeRequest{})
	require.NoError(t, err)
	return c
}

func TestMiddleware_RefusesAfterThreeFailures(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t, nil)
	c := remote(t, newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		asked.Add(1)
		return nil, &toolhealth.StatusError{StatusCode: 503}
	}, server.WithToolHandlerMiddleware(mcpgohealth.Middleware(w.guard))))
	for range 3 {
		_, err := c.CallTool(t.Context(), request("t", nil))
		require.ErrorIs(t, err, mcp.ErrInternalError, "as without the middleware")
	}
	r, err := c.CallTool(t.Context(), request("t", nil))
	require.NoError(t, err)
	assert.True(t, r.IsError)
	assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 30s", text(r))
	assert.Contains(t, r.Meta.AdditionalFields, mcpgohealth.MetaKey)
	assert.EqualValues(t, 3, asked.Load())
	h, _ := w.guard.Registry().Health("t")
	assert.Equal(t, toolhealth.StateOpen, h.State)
}

func TestMiddleware_GoodResultsAreUnchanged(t *testing.T) {
	w := newWorld(t, nil)
	c := remote(t, newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultStructured(map[string]any{"n": 1}, "one"), nil
	}, server.WithToolHandlerMiddleware(mcpgohealth.Middleware(w.guard, mcpgohealth.Server("me")))))
	r, err := c.CallTool(t.Context(), request("t", nil))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"n": 1.0}, r.StructuredContent)
	h, _ := w.guard.Registry().Health("me/t")
	assert.EqualValues(t, 1, h.Successes)
}

// TestMiddleware_PanicIsFailure has WithRecovery outside, inside and not at all.
func TestMiddleware_PanicIsFailure(t *testing.T) {
	for name, around := range map[string]func(server.ServerOption) []server.ServerOption{
		"outside": func(o server.ServerOption) []server.ServerOption {
			return []server.ServerOption{server.WithRecovery(), o}
		},
		"inside": func(o server.ServerOption) []server.ServerOption {
			return []server.ServerOption{o, server.WithRecovery()}
		},
		"without": func(o server.ServerOption) []server.ServerOption { return []server.ServerOption{o} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := remote(t, newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("a mistake") },
				around(server.WithToolHandlerMiddleware(mcpgohealth.Middleware(w.guard)))...))
			_, err := c.CallTool(t.Context(), request("t", nil))
			require.ErrorIs(t, err, mcp.ErrInternalError)
			assert.ErrorContains(t, err, "a mistake")
			h, _ := w.guard.Registry().Health("t")
			assert.EqualValues(t, 1, h.Failures)
			assert.EqualValues(t, 1, h.ByKind[toolhealth.KindPanic])
		})
	}
}

func TestMiddleware_WrongArgumentsAndNamesDoNotReachIt(t *testing.T) {
	w := newWorld(t, nil)
	s := server.NewMCPServer("test", "1", server.WithInputSchemaValidation(), server.WithToolHandlerMiddleware(mcpgohealth.Middleware(w.guard)))
	s.AddTool(mcp.NewTool("t", mcp.WithString("city", mcp.Required())), say("hello"))
	c := remote(t, s)
	for range 10 {
		r, err := c.CallTool(t.Context(), request("t", nil))
		require.NoError(t, err)
		assert.Contains(t, text(r), "input schema validation failed")
		_, err = c.CallTool(t.Context(), request("invented", nil))
		require.ErrorIs(t, err, mcp.ErrInvalidParams)
	}
	assert.Equal(t, 0, w.guard.Registry().Len())
}

func TestMiddleware_HandlerErrorKeepsItsCode(t *testing.T) {
	w := newWorld(t, nil)
	s := newServer(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, toolhealth.BadRequest(errors.New("no such city"))
	}, server.WithToolHandlerMiddleware(mcpgohealth.Middleware(w.guard)))
	s.AddTool(reading("ask"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{}}
	})
	c := remote(t, s)
	for range 5 {
		_, err := c.CallTool(t.Context(), request("t", nil))
		assert.ErrorContains(t, err, "internal error: no such city")
	}
	h, _ := w.guard.Registry().Health("t")
	assert.EqualValues(t, 5, h.Rejected)
	_, err := newWorld(t, nil).dial(inProcess(s), legacy()).CallTool(t.Context(), request("ask", nil))
	_, ok := errors.AsType[mcp.URLElicitationRequiredError](err)
	assert.True(t, ok, "%v", err)
}

// TestMiddleware_FilterIsWrongPlace shows why there is none here: the SDK applies filters to
// calls, too.
func TestMiddleware_FilterIsWrongPlace(t *testing.T) {
	s := newServer(say("hello"), server.WithToolFilter(func(context.Context, []mcp.Tool) []mcp.Tool { return nil }))
	_, err := remote(t, s).CallTool(t.Context(), request("t", nil))
	assert.ErrorContains(t, err, "not found")
}
