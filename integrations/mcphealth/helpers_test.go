package mcphealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

const (
	legacy = "2025-11-25" // with sessions
	modern = "2026-07-28" // without
)

var implementation = &mcp.Implementation{Name: "srv", Version: "1"}

// world is a host with a guard.
type world struct {
	t        testing.TB
	tools    *mcphealth.Tools
	guard    *toolhealth.Guard
	registry *toolhealth.Registry

	mu   sync.Mutex
	last toolhealth.Verdict // of the last attempt
}

// newWorld returns a host whose calls have one attempt, unless the settings say more.
func newWorld(t testing.TB, change func(*toolhealth.Settings)) *world {
	t.Helper()
	w := &world{t: t, tools: &mcphealth.Tools{}}
	s := toolhealth.Settings{
		Policy:  toolhealth.Policy{MaxAttempts: 1, BackoffBase: time.Millisecond},
		Breaker: toolhealth.DefaultBreakerConfig(), GroupBreaker: toolhealth.DefaultBreakerConfig(),
		Observe: func(_ context.Context, e toolhealth.Event) {
			if !e.Final {
				w.mu.Lock()
				w.last = e.Verdict
				w.mu.Unlock()
			}
		},
	}
	if change != nil {
		change(&s)
	}
	guard, err := toolhealth.New(w.tools.Settings(s))
	require.NoError(t, err)
	w.tools.Guard, w.guard, w.registry = guard, guard, guard.Registry()
	return w
}

// said is the verdict on the last attempt.
func (w *world) said() toolhealth.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// health is that of a tool of the server "srv".
func (w *world) health(tool string) toolhealth.ToolHealth {
	h, ok := w.registry.Health("srv/" + tool)
	require.True(w.t, ok, tool)
	return h
}

// group is the health of the server "srv".
func (w *world) group() toolhealth.GroupHealth {
	for _, g := range w.registry.HealthSummary().Groups {
		if g.Group == "srv" {
			return g
		}
	}
	return toolhealth.GroupHealth{}
}

// open opens a session of the server "srv".
func (w *world) open(client *mcp.Client, transport func(context.Context) (mcp.Transport, error)) *mcphealth.Session {
	return w.openVersion("", client, transport)
}

func (w *world) openVersion(version string, client *mcp.Client, transport func(context.Context) (mcp.Transport, error)) *mcphealth.Session {
	w.t.Helper()
	s, err := w.tools.Open(mcphealth.Server{
		Name: "srv", Client: client, Transport: transport, Options: &mcp.ClientSessionOptions{ProtocolVersion: version},
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// client returns a client of the host.
func (w *world) client() *mcp.Client { return w.tools.NewClient(implementation, nil) }

// newServer returns a server without tools.
func newServer() *mcp.Server { return mcp.NewServer(implementation, nil) }

// inMemory connects to a server in this process, as often as it is asked to.
func inMemory(t testing.TB, server *mcp.Server) func(context.Context) (mcp.Transport, error) {
	return func(context.Context) (mcp.Transport, error) {
		near, far := mcp.NewInMemoryTransports()
		session, err := server.Connect(context.Background(), far, nil)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = session.Close(); _ = session.Wait() })
		return near, nil
	}
}

// overHTTP connects to a server by streamable HTTP.
func overHTTP(url string, base http.RoundTripper) func(context.Context) (mcp.Transport, error) {
	return func(context.Context) (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{
			Endpoint: url, MaxRetries: -1, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: base},
		}, nil
	}
}

// newBase returns a RoundTripper whose connections end with the test.
func newBase(t testing.TB) *http.Transport {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// serve returns the URL of a server on loopback that lives as long as the test.
func serve(t testing.TB, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// handlerOf serves an MCP server over HTTP. Only one without sessions speaks the modern
// protocol.
func handlerOf(t testing.TB, server *mcp.Server, version string) http.Handler {
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: version == modern})
}

// object is the schema of arguments that may be anything.
var object = json.RawMessage(`{"type":"object"}`)

// addRaw adds a tool that does what h does.
func addRaw(server *mcp.Server, name string, a *mcp.ToolAnnotations, h func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
	server.AddTool(&mcp.Tool{Name: name, InputSchema: object, Annotations: a}, h)
}

// readOnly is what a tool says that changes nothing.
var readOnly = &mcp.ToolAnnotations{ReadOnlyHint: true}

// good answers.
func good(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return textResult("fine"), nil
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// caller is a session, of the SDK or of this package.
type caller interface {
	CallTool(context.Context, *mcp.CallToolParams) (*mcp.CallToolResult, error)
}

// ask calls a tool and returns what the model reads.
func ask(t testing.TB, c caller, tool string) (text string, isError bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	require.NoError(t, err)
	return textOf(t, res), res.IsError
}

func textOf(t testing.TB, res *mcp.CallToolResult) string {
	t.Helper()
	require.NotNil(t, res)
	require.Len(t, res.Content, 1)
	text, ok := res.Content[0].(*mcp.TextContent)
	require.True(t, ok)
	return text.Text
}

// list asks for the tools of the server.
func list(t testing.TB, s *mcphealth.Session) []*mcp.Tool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tools, err := s.ListTools(ctx)
	require.NoError(t, err)
	return tools
}

// soon waits for what another goroutine or process brings about.
func soon(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 20*time.Second, 5*time.Millisecond)
}

var errDown = errors.New("the database of the server is down")

// reset ends a connection by a TCP reset.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// cut ends a connection without a word.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
