package verdicts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	mcpLegacy = "2025-11-25" // with sessions
	mcpModern = "2026-07-28" // without
)

// mcpFailures are those of streamable HTTP; a server that has sessions says 404
// when it does not know one.
var (
	mcpFailures       = join(statuses, stated, bodies, gateways, ways, rpcs)
	mcpLegacyFailures = join(without(mcpFailures, "404"), sessions, again)
	mcpStreamFailures = join(openings, without(streams, saying...), pick(rpcs, "-32601 Method not found", "-32602 Invalid params",
		"-32603 Internal error", "-32001 Session not found", "-32029 Rate limit exceeded, retryAfterSeconds 12"))
)

// mcpSDK is an SDK for MCP.
type mcpSDK struct {
	name     string
	dial     func(version string) dial
	meanings map[string]meaning // of what comes to a closed session
}

func (s mcpSDK) form(name string, d dialect, how dial, failures []Failure) *Form {
	return &Form{
		SDK: s.name, Name: name, dialect: d, sound: goSDKServer(strings.Contains(name, mcpModern)), dial: how,
		Failures: failures, CutsChain: true, Meanings: s.meanings,
	}
}

// local is form for a server that is not reached over HTTP.
func (s mcpSDK) local(name string, how dial, failures []Failure) *Form {
	f := s.form(name, mcpHTTP, how, failures)
	f.Local = true
	return f
}

// overHTTP returns the forms of streamable HTTP.
func (s mcpSDK) overHTTP() []*Form {
	legacy, modern := s.dial(mcpLegacy), s.dial(mcpModern)
	return []*Form{
		s.form("HTTP, "+mcpLegacy, mcpHTTP, legacy, mcpLegacyFailures),
		s.form("HTTP, "+mcpModern, mcpHTTP, modern, join(mcpFailures, again[:1])),
		s.form("HTTP, "+mcpLegacy+", stream", mcpHTTP.streaming(), legacy, mcpStreamFailures),
		s.form("HTTP, "+mcpModern+", stream", mcpHTTP.streaming(), modern, mcpStreamFailures),
	}
}

func goSDKForms() []*Form {
	sdk := mcpSDK{"MCP go-sdk", goSDKDial, map[string]meaning{
		"401, then another call":                {"failure/connection/retry/notsent", ruleSession},
		"404, then another call":                {"failure/connection/retry/notsent", ruleSession},
		"connection refused, then another call": {"failure/connection/retry/notsent", ruleTable},
		"session closed, then a call":           {"failure/connection/retry/notsent", ruleSession},
		"child exits, then another call":        {"failure/connection/retry/notsent", ruleSession},
	}}
	return append(sdk.overHTTP(),
		sdk.local("in memory", goSDKInMemory, without(handlers, "handler panics")),
		sdk.local("child process", goSDKChild, children))
}

var implementation = &mcp.Implementation{Name: "verdicts", Version: "1"}

// mcpServer is a server whose tool t does what handle does.
func mcpServer(handle mcp.ToolHandler) *mcp.Server {
	s := mcp.NewServer(implementation, nil)
	s.AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}, handle)
	return s
}

func hello(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil
}

// goSDKServer answers all but the tool calls of both MCP clients. Only a server
// without sessions speaks the modern protocol.
func goSDKServer(stateless bool) sound {
	return func() (http.Handler, func()) {
		s := mcpServer(hello)
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
				&mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: stateless}), func() {
				for session := range s.Sessions() {
					_ = session.Close()
				}
			}
	}
}

func goSDKDial(version string) dial {
	return func(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
		return goSDKConnect(ctx, &mcp.StreamableClientTransport{Endpoint: t.server.URL, HTTPClient: t.client,
			MaxRetries: -1, DisableStandaloneSSE: true}, version)
	}
}

func goSDKConnect(ctx context.Context, transport mcp.Transport, version string) (func(context.Context) error, func(), error) {
	session, err := mcp.NewClient(implementation, nil).Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, nil, err
	}
	if got := session.InitializeResult().ProtocolVersion; got != version {
		return nil, nil, fmt.Errorf("protocol %s in place of %s", got, version)
	}
	return func(ctx context.Context) error {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "t"})
		return err
	}, func() { _ = session.Close() }, nil
}

// goSDKInMemory plays what handlers do.
func goSDKInMemory(ctx context.Context, t *target) (call func(context.Context) error, done func(), err error) {
	client, server := mcp.NewInMemoryTransports()
	name, leave := t.failure.Name, make(chan struct{})
	serving, err := mcpServer(func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch name {
		case "handler returns an error":
			return nil, errors.New("no such city")
		case "handler returns -32603":
			return nil, &jsonrpc.Error{Code: -32603, Message: "the database is down"}
		case "handler says it is busy":
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}}, nil
		case "handler hangs, caller's deadline", "handler hangs, caller cancels":
			<-leave
		}
		return hello(ctx, q)
	}).Connect(ctx, server, nil)
	if err != nil {
		return nil, nil, err
	}
	session, err := mcp.NewClient(implementation, nil).Connect(ctx, client, nil)
	if err != nil {
		return nil, nil, err
	}
	if name == "session closed, then a call" {
		_ = session.Close()
	}
	tool := "t"
	if name == "unknown tool" {
		tool = "nonesuch"
	}
	return func(ctx context.Context) error {
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
			return err
		}, func() {
			close(leave)
			_ = session.Close()
			_ = serving.Wait()
		}, nil
}

// childEnv names the failure that a child process is to play.
const childEnv = "VERDICTS_CHILD"

// Child plays an MCP server on its standard input and output, and does not
// return, if this process was started to be one.
func Child() {
	name := os.Getenv(childEnv)
	if name == "" {
		return
	}
	s := mcpServer(func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch name {
		case "child exits", "child exits, then another call":
			os.Exit(3)
		case "child is killed":
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {}
		case "child closes its output":
			_ = os.Stdout.Close()
			time.Sleep(time.Minute)
		case "child hangs, caller's deadline", "child hangs, caller cancels":
			time.Sleep(time.Minute)
		}
		return hello(ctx, q)
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

func goSDKChild(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+t.failure.Name)
	call, done, err := goSDKConnect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: short}, mcpModern)
	return call, done, err
}
