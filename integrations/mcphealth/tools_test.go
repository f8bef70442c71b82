package mcphealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// ways are the two ways to call a tool: by a Session, and by a session of the SDK whose
// client has the middleware.
var ways = map[string]func(*world, *mcp.Client, *mcp.Server) caller{
	"Session": func(w *world, c *mcp.Client, server *mcp.Server) caller {
		s := w.open(c, inMemory(w.t, server))
		list(w.t, s)
		return s
	},
	"Middleware": func(w *world, c *mcp.Client, server *mcp.Server) caller {
		transport, err := inMemory(w.t, server)(context.Background())
		require.NoError(w.t, err)
		s, err := c.Connect(context.Background(), transport, nil)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = s.Close() })
		_, err = s.ListTools(context.Background(), nil)
		require.NoError(w.t, err)
		return s
	},
}

// bothWays runs a test for each way to call a tool.
func bothWays(t *testing.T, test func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller)) {
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) { test(t, connect) })
	}
}

func TestTools_OpensAndRefusesWithText(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		var ran atomic.Int64
		server := newServer()
		addRaw(server, "raw", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ran.Add(1)
			return nil, errDown
		})
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		for range 3 {
			text, isError := ask(t, c, "raw")
			assert.True(t, isError)
			assert.NotContains(t, text, "database", "not what a failing server says of itself")
		}
		res, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "raw"})
		require.NoError(t, err)
		assert.True(t, res.IsError)
		assert.Equal(t, "tool temporarily unavailable: circuit breaker open; retry after 30s", textOf(t, res))
		meta, err := json.Marshal(res.Meta[mcphealth.MetaKey])
		require.NoError(t, err)
		var said struct {
			Reason     string
			RetryAfter int `json:"retry_after_seconds"`
		}
		require.NoError(t, json.Unmarshal(meta, &said))
		assert.Equal(t, "tool_unavailable:circuit_open", said.Reason)
		assert.Equal(t, 30, said.RetryAfter)

		h := w.health("raw")
		assert.Equal(t, toolhealth.StateOpen, h.State)
		assert.EqualValues(t, 3, h.Failures)
		assert.EqualValues(t, 1, h.Refused)
		assert.EqualValues(t, 3, ran.Load())
		assert.Equal(t, toolhealth.StateClosed, w.group().State, "the server answers")
	})
}

func TestTools_FlaggedResultIsUnchanged(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		mcp.AddTool(server, &mcp.Tool{Name: "city"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("no such city; see https://example.com/cities")
		})
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		for range 10 {
			text, isError := ask(t, c, "city")
			assert.True(t, isError)
			assert.Equal(t, "no such city; see https://example.com/cities", text)
		}
		h := w.health("city")
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 10, h.Rejected)
		assert.Zero(t, h.Failures)
	})
}

func TestTools_FlaggedSaysWhatResultMeans(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		mcp.AddTool(server, &mcp.Tool{Name: "city"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errDown
		})
		w := newWorld(t, nil)
		w.tools.Flagged = func(*mcp.CallToolResult) error { return &toolhealth.StatusError{StatusCode: 503} }
		c := connect(w, w.client(), server)
		for range 3 {
			text, _ := ask(t, c, "city")
			assert.Equal(t, errDown.Error(), text, "the tool's own answer")
		}
		text, _ := ask(t, c, "city")
		assert.Contains(t, text, "circuit breaker open")
		assert.EqualValues(t, 3, w.health("city").Failures)
	})
}

func TestTools_RejectedArgumentsHaveServersWords(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		addRaw(server, "city", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "city must be a name, not a number"}
		})
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		for range 5 {
			text, isError := ask(t, c, "city")
			assert.True(t, isError)
			assert.Equal(t, "city must be a name, not a number", text)
		}
		h := w.health("city")
		assert.Equal(t, toolhealth.StateClosed, h.State)
		assert.EqualValues(t, 5, h.Rejected)
	})
}

func TestTools_InventedNamesHaveNoEntry(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		addRaw(server, "raw", nil, good)
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		ask(t, c, "raw")
		text, isError := ask(t, c, "nonesuch")
		assert.True(t, isError)
		assert.Equal(t, `unknown tool "nonesuch"`, text)
		assert.Equal(t, 1, w.registry.Len())

		w.registry.IsolateGroup("srv", "op")
		text, isError = ask(t, c, "nonesuch")
		assert.True(t, isError)
		assert.Equal(t, "unknown tool", text)
		assert.Equal(t, 1, w.registry.Len())
	})
}

func TestTools_NamesAreGuardedWhereListIsNotKnown(t *testing.T) {
	w := newWorld(t, nil)
	s := w.open(w.client(), func(context.Context) (mcp.Transport, error) { return nil, errors.New("no way") })
	text, isError := ask(t, s, "any")
	assert.True(t, isError)
	assert.Equal(t, "tool failed: the tool cannot be reached", text)
	assert.Equal(t, 1, w.registry.Len())
}

func TestTools_CallersCancelEndsRun(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		entered := make(chan struct{}, 1)
		addRaw(server, "wait", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-entered; cancel() }()
		res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
		assert.ErrorIs(t, err, context.Canceled)
		assert.Nil(t, res)
		h := w.health("wait")
		assert.EqualValues(t, 1, h.Neutral)
		assert.Zero(t, h.Failures)
	})
}

func TestTools_TimeoutReachesServer(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		ended := make(chan struct{})
		addRaw(server, "wait", readOnly, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		})
		w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout = 50 * time.Millisecond })
		c := connect(w, w.client(), server)
		text, isError := ask(t, c, "wait")
		assert.True(t, isError)
		assert.Contains(t, text, "no answer in time")
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Error("the server has not heard that the attempt is over")
		}
		assert.EqualValues(t, 1, w.health("wait").ByKind[toolhealth.KindTimeout])
	})
}

func TestTools_SubstituteServesFromItsOwnServer(t *testing.T) {
	server, other := newServer(), newServer()
	addRaw(server, "raw", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not here"}
	})
	addRaw(other, "elsewhere", nil, good)
	w := newWorld(t, func(s *toolhealth.Settings) {
		s.Tools = map[string]toolhealth.ToolSettings{
			"srv/raw": {Substitutes: []string{"nowhere/x", "other/elsewhere"}}, "other/elsewhere": {}, "nowhere/x": {},
		}
	})
	s := w.open(w.client(), inMemory(t, server))
	o, err := w.tools.Open(mcphealth.Server{Name: "other", Client: w.client(), Transport: inMemory(t, other)})
	require.NoError(t, err)
	defer o.Close()
	w.registry.Isolate("srv/raw", "op")
	text, isError := ask(t, s, "raw")
	assert.False(t, isError, text)
	assert.Equal(t, "fine", text)
}

func TestTools_OfferLeavesOutWhatIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	tools := []*mcp.Tool{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	w.registry.Isolate("srv/b", "op")
	assert.Equal(t, []*mcp.Tool{tools[0], tools[2]}, w.tools.Offer("srv", tools))
	w.registry.IsolateGroup("srv", "op")
	assert.Empty(t, w.tools.Offer("srv", tools))
}

func TestTools_TextOption(t *testing.T) {
	server := newServer()
	addRaw(server, "raw", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errDown })
	w := newWorld(t, nil)
	w.tools.Text = func(err error) string {
		var call *toolhealth.ToolError
		require.ErrorAs(t, err, &call)
		return "out: " + call.Reason.Detail()
	}
	s := w.open(w.client(), inMemory(t, server))
	text, _ := ask(t, s, "raw")
	assert.Equal(t, "out: outcome_unknown", text)
}

func TestTools_NoGuardMakesEachCallOnce(t *testing.T) {
	server := newServer()
	addRaw(server, "raw", nil, good)
	tools := &mcphealth.Tools{}
	s, err := tools.Open(mcphealth.Server{Name: "srv", Client: tools.NewClient(implementation, nil), Transport: inMemory(t, server)})
	require.NoError(t, err)
	defer s.Close()
	list(t, s)
	text, _ := ask(t, s, "raw")
	assert.Equal(t, "fine", text)
	text, _ = ask(t, s, "nonesuch")
	assert.Equal(t, `unknown tool "nonesuch"`, text)
}
