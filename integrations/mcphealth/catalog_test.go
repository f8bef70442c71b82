package mcphealth_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

func TestTools_PolicyFollowsAnnotations(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := newServer()
		addRaw(server, "plain", nil, good)
		addRaw(server, "acts", &mcp.ToolAnnotations{}, good)
		addRaw(server, "reads", readOnly, good)
		addRaw(server, "sets", &mcp.ToolAnnotations{IdempotentHint: true}, good)
		w := newWorld(t, nil)
		acts := func(tool string) bool { return w.tools.Policy(tool, toolhealth.Policy{}).SideEffects }
		assert.False(t, acts("srv/plain"), "not a tool of MCP, as far as is known")
		connect(w, w.client(), server)
		soon(t, func() bool { return !acts("srv/reads") })
		assert.True(t, acts("srv/plain"))
		assert.True(t, acts("srv/acts"))
		assert.False(t, acts("srv/sets"))
		assert.True(t, acts("srv/nonesuch"), "no list has told of it")
		assert.False(t, acts("other/tool"))
		assert.False(t, acts("native"))
	})
}

func TestTools_PolicyKeepsWhatHostSays(t *testing.T) {
	tools := &mcphealth.Tools{}
	s := tools.Settings(toolhealth.Settings{PolicyOf: func(_ string, p toolhealth.Policy) toolhealth.Policy {
		p.MaxAttempts, p.SideEffects = 7, true
		return p
	}, Group: func(string) string { return "" }})
	assert.Equal(t, toolhealth.Policy{MaxAttempts: 7, SideEffects: true}, s.PolicyOf("native", toolhealth.Policy{}))
	assert.Empty(t, s.GroupSeparator)
}

func TestTools_ManyPages(t *testing.T) {
	bothWays(t, func(t *testing.T, connect func(*world, *mcp.Client, *mcp.Server) caller) {
		server := mcp.NewServer(implementation, &mcp.ServerOptions{PageSize: 3})
		for i := range 10 {
			addRaw(server, fmt.Sprintf("t%d", i), readOnly, good)
		}
		w := newWorld(t, nil)
		c := connect(w, w.client(), server)
		if s, ok := c.(*mcp.ClientSession); ok {
			for _, err := range s.Tools(context.Background(), nil) {
				require.NoError(t, err)
			}
		}
		for i := range 10 {
			name := fmt.Sprintf("srv/t%d", i)
			soon(t, func() bool { return !w.tools.Policy(name, toolhealth.Policy{}).SideEffects })
		}
		ask(t, c, "nonesuch")
		assert.Zero(t, w.registry.Len())
	})
}

func TestTools_ListsThatAreReadAtOnce(t *testing.T) {
	server := mcp.NewServer(implementation, &mcp.ServerOptions{PageSize: 1})
	for i := range 5 {
		addRaw(server, fmt.Sprintf("t%d", i), readOnly, good)
	}
	w := newWorld(t, nil)
	transport, err := inMemory(t, server)(context.Background())
	require.NoError(t, err)
	s, err := w.client().Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	require.NoError(t, err)
	defer s.Close()
	page := func(cursor string) string {
		res, err := s.ListTools(context.Background(), &mcp.ListToolsParams{Cursor: cursor})
		require.NoError(t, err)
		return res.NextCursor
	}
	first := page(page(page(page("")))) // all but the last page
	second := page("")                  // another begins
	require.Empty(t, page(first))
	for second != "" {
		second = page(second)
	}
	for i := range 5 {
		assert.False(t, w.tools.Policy(fmt.Sprintf("srv/t%d", i), toolhealth.Policy{}).SideEffects)
		ask(t, s, fmt.Sprintf("t%d", i))
	}
	assert.Equal(t, 5, w.registry.Len(), "all of them are known")
}

func TestTools_PolicyAfterListHasChanged(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			server := newServer()
			addRaw(server, "mail", readOnly, good)
			w := newWorld(t, nil)
			var told atomic.Int64
			client := w.tools.NewClient(implementation, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told.Add(1) },
			})
			s := w.openVersion(version, client, inMemory(t, server))
			list(t, s)
			acts := func(tool string) bool { return w.tools.Policy("srv/"+tool, toolhealth.Policy{}).SideEffects }
			soon(t, func() bool { return !acts("mail") })

			addRaw(server, "mail", nil, good) // it acts from now on
			addRaw(server, "new", readOnly, good)
			soon(t, func() bool { return acts("mail") && !acts("new") })
			text, isError := ask(t, s, "nonesuch")
			assert.True(t, isError)
			assert.Equal(t, `unknown tool "nonesuch"`, text)
			assert.Zero(t, w.registry.Len(), "the new list is known as a whole")
			soon(t, func() bool { return told.Load() > 0 })
		})
	}
}

// After a reconnect the new list is under way; until it is there, a read-only tool is
// repeated as before.
func TestTools_PolicyOutlastsReconnect(t *testing.T) {
	first, second := newServer(), newServer()
	addRaw(first, "reads", readOnly, good)
	addRaw(first, "acts", nil, good)
	var calls atomic.Int64
	addRaw(second, "reads", nil, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if calls.Add(1) == 2 {
			<-ctx.Done() // its answer is lost
		}
		return good(ctx, req)
	})
	asked, answer := make(chan struct{}), make(chan struct{})
	tell := sync.OnceFunc(func() { close(answer) })
	defer tell()
	second.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				close(asked)
				<-answer
			}
			return next(ctx, method, req)
		}
	})
	var dials atomic.Int64
	toFirst, toSecond := inMemory(t, first), inMemory(t, second)
	w := newWorld(t, func(s *toolhealth.Settings) { s.Policy.Timeout, s.Policy.MaxAttempts = slow(500*time.Millisecond), 2 })
	s := w.open(w.client(), func(ctx context.Context) (mcp.Transport, error) {
		if dials.Add(1) == 1 {
			return toFirst(ctx)
		}
		return toSecond(ctx)
	})
	acts := func(tool string) bool { return w.tools.Policy("srv/"+tool, toolhealth.Policy{}).SideEffects }
	list(t, s)
	soon(t, func() bool { return !acts("reads") })

	for session := range first.Sessions() {
		require.NoError(t, session.Close())
	}
	text, isError := ask(t, s, "reads")
	assert.False(t, isError, text)
	<-asked
	assert.False(t, acts("reads"), "the last list counts")
	assert.True(t, acts("acts"))
	assert.True(t, acts("nonesuch"))
	text, isError = ask(t, s, "reads")
	assert.False(t, isError, text)
	assert.EqualValues(t, 3, calls.Load(), "the call whose answer was lost is repeated")
	assert.EqualValues(t, 2, dials.Load())

	tell()
	soon(t, func() bool { return acts("reads") }) // the new server says nothing of it
}

func TestTools_ChangedListOfBareSessionIsUnknown(t *testing.T) {
	server := newServer()
	addRaw(server, "mail", readOnly, good)
	w := newWorld(t, nil)
	transport, err := inMemory(t, server)(context.Background())
	require.NoError(t, err)
	s, err := w.client().Connect(context.Background(), transport, nil)
	require.NoError(t, err)
	defer s.Close()
	acts := func(tool string) bool { return w.tools.Policy("srv/"+tool, toolhealth.Policy{}).SideEffects }
	_, err = s.ListTools(context.Background(), nil)
	require.NoError(t, err)
	assert.False(t, acts("mail"))
	addRaw(server, "other", readOnly, good)
	soon(t, func() bool { return acts("mail") })
	_, err = s.ListTools(context.Background(), nil)
	require.NoError(t, err)
	assert.False(t, acts("mail"))
}

func TestTools_NameOfBareSession(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "com.example/weather", Version: "1"}, nil)
	addRaw(server, "raw", readOnly, good)
	for want, name := range map[string]func(*mcp.ClientSession) string{
		"com.example-weather/raw": nil,
		"mine/raw":                func(*mcp.ClientSession) string { return "mine" },
	} {
		w := newWorld(t, nil)
		w.tools.Name = name
		transport, err := inMemory(t, server)(context.Background())
		require.NoError(t, err)
		s, err := w.client().Connect(context.Background(), transport, nil)
		require.NoError(t, err)
		ask(t, s, "raw")
		require.NoError(t, s.Close())
		h, ok := w.registry.Health(want)
		assert.True(t, ok, want)
		assert.NotEmpty(t, h.Group)
	}
}

// mails counts what a tool has done whose answers get lost.
func TestTools_ActingToolRunsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		a    *mcp.ToolAnnotations
		runs int64
		text string
	}{
		"acting":    {&mcp.ToolAnnotations{}, 1, "tool outcome unknown: the action may have been carried out, check before repeating it"},
		"read-only": {readOnly, 2, "tool failed after 2 attempts: no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			var mails atomic.Int64
			server := newServer()
			addRaw(server, "send", c.a, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				mails.Add(1)
				<-ctx.Done() // it has acted, and its answer is lost
				return nil, ctx.Err()
			})
			w := newWorld(t, func(s *toolhealth.Settings) {
				s.Policy.Timeout, s.Policy.MaxAttempts = 100*time.Millisecond, 2
			})
			s := w.open(w.client(), inMemory(t, server))
			list(t, s)
			soon(t, func() bool { return w.tools.Policy("srv/send", toolhealth.Policy{}).SideEffects == (c.runs == 1) })
			text, isError := ask(t, s, "send")
			assert.True(t, isError)
			assert.Equal(t, c.text, text)
			assert.Equal(t, c.runs, mails.Load())
		})
	}
}
