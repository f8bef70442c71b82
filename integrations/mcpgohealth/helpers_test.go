package mcpgohealth_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/httphealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// world is a guard, with the verdicts on all attempts.
type world struct {
	t        testing.TB
	guard    *toolhealth.Guard
	policies mcpgohealth.Policies

	mu       sync.Mutex
	verdicts []toolhealth.Verdict
}

// newWorld returns a guard that makes each call once, unless change says otherwise.
func newWorld(t testing.TB, change func(*toolhealth.Settings)) *world {
	t.Helper()
	w := &world{t: t}
	settings := toolhealth.Settings{
		GroupSeparator: "/", PolicyOf: w.policies.Of,
		Breaker:  toolhealth.DefaultBreakerConfig(),
		Classify: toolhealth.ErrorRules{Own: mcpgohealth.Rules()}.Classify,
		Policy:   toolhealth.Policy{MaxAttempts: 1, BackoffBase: time.Millisecond, Jitter: toolhealth.Off},
		Observe: func(_ context.Context, e toolhealth.Event) {
			if !e.Final {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.verdicts = append(w.verdicts, e.Verdict)
			}
		},
	}
	if change != nil {
		change(&settings)
	}
	var err error
	w.guard, err = toolhealth.New(settings)
	require.NoError(t, err)
	return w
}

// dial returns a session with the server "srv" that ends with the test.
func (w *world) dial(connect mcpgohealth.Connect, options ...mcpgohealth.Option) *mcpgohealth.Session {
	w.t.Helper()
	options = append([]mcpgohealth.Option{mcpgohealth.Server("srv"), mcpgohealth.Learn(&w.policies)}, options...)
	s, err := mcpgohealth.Dial(w.t.Context(), w.guard, connect, options...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, s.Close()) })
	return s
}

// health is that of a tool of "srv".
func (w *world) health(tool string) toolhealth.ToolHealth {
	h, _ := w.guard.Registry().Health("srv/" + tool)
	return h
}

// group is the health of "srv".
func (w *world) group() toolhealth.GroupHealth {
	w.t.Helper()
	for _, g := range w.guard.Registry().HealthSummary().Groups {
		if g.Group == "srv" {
			return g
		}
	}
	w.t.Fatal("there is no group")
	return toolhealth.GroupHealth{}
}

// last is the verdict on the last attempt.
func (w *world) last() toolhealth.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(w.t, w.verdicts)
	return w.verdicts[len(w.verdicts)-1]
}

func request(tool string, arguments map[string]any) mcp.CallToolRequest {
	var q mcp.CallToolRequest
	q.Params.Name, q.Params.Arguments = tool, arguments
	return q
}

// result is that of a call that does not end the run.
func result(t testing.TB, s *mcpgohealth.Session, tool string) *mcp.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), request(tool, nil))
	require.NoError(t, err)
	require.NotNil(t, r)
	return r
}

// call returns what the model reads.
func call(t testing.TB, s *mcpgohealth.Session, tool string) string {
	t.Helper()
	return text(result(t, s, tool))
}

// reading makes a tool that is read-only.
func reading(name string) mcp.Tool { return mcp.NewTool(name, mcp.WithReadOnlyHintAnnotation(true)) }

// newServer returns a server with one tool "t".
func newServer(handler server.ToolHandlerFunc, options ...server.ServerOption) *server.MCPServer {
	s := server.NewMCPServer("test", "1", append([]server.ServerOption{server.WithToolCapabilities(true)}, options...)...)
	s.AddTool(reading("t"), handler)
	return s
}

func inProcess(s *server.MCPServer) mcpgohealth.Connect {
	return func(context.Context) (transport.Interface, error) { return transport.NewInProcessTransport(s), nil }
}

// overHTTP connects to a URL, with a Witness.
func overHTTP(t testing.TB, url string) mcpgohealth.Connect {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return func(context.Context) (transport.Interface, error) {
		return transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(&http.Client{Transport: httphealth.Witness(base)}))
	}
}

// soon waits for what another goroutine or process brings about.
func soon(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 10*time.Second, 5*time.Millisecond)
}
