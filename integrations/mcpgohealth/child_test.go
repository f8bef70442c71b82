package mcpgohealth_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// childEnv is set in a process that is to be an MCP server on its standard input and
// output. Its value is a file: while that is there, the process ends at once.
const childEnv = "MCPGOHEALTH_CHILD"

// child plays the server, and does not return, in a process that is one.
func child() {
	down := os.Getenv(childEnv)
	if down == "" {
		return
	}
	if _, err := os.Stat(down); err == nil {
		os.Exit(3)
	}
	s := server.NewMCPServer("child", "1", server.WithToolCapabilities(true), server.WithElicitation())
	var ended atomic.Int32 // calls of "wait" whose ctx has ended
	add := func(name string, handler server.ToolHandlerFunc, more ...mcp.ToolOption) {
		s.AddTool(mcp.NewTool(name, append(more, mcp.WithReadOnlyHintAnnotation(true))...), handler)
	}
	for i := range 40 {
		add("t"+strconv.Itoa(i), say("hello"))
	}
	add("pid", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strconv.Itoa(os.Getpid())), nil
	})
	add("exit", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add("kill", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {}
	})
	add("mute", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = os.Stdout.Close()
		select {}
	})
	add("wait", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		ended.Add(1)
		return nil, ctx.Err()
	})
	add("ended", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strconv.Itoa(int(ended.Load()))), nil
	})
	add("ask", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) { return ask(ctx, s) })
	_ = server.ServeStdio(s)
	os.Exit(0)
}

// say is a handler with one answer.
func say(text string) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(text), nil
	}
}

// ask asks the person of the client.
func ask(ctx context.Context, s *server.MCPServer) (*mcp.CallToolResult, error) {
	answer, err := s.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{
		Message: "sure?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}})
	if err != nil {
		return nil, err
	}
	return mcp.NewToolResultText(string(answer.Action)), nil
}

// program is a server that is a child process of the test.
type program struct {
	t    testing.TB
	down string // a file that keeps it from starting
}

func newProgram(t testing.TB) *program {
	return &program{t, t.TempDir() + "/down"}
}

func (p *program) connect(context.Context) (transport.Interface, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return transport.NewStdio(self, []string{childEnv + "=" + p.down}), nil
}

// break_ keeps the program from starting, mend lets it start again.
func (p *program) break_() { require.NoError(p.t, os.WriteFile(p.down, nil, 0o600)) }
func (p *program) mend()   { require.NoError(p.t, os.Remove(p.down)) }

// process returns the process that serves the session.
func process(t testing.TB, s *mcpgohealth.Session) *os.Process {
	t.Helper()
	pid, err := strconv.Atoi(call(t, s, "pid"))
	require.NoError(t, err)
	p, err := os.FindProcess(pid)
	require.NoError(t, err)
	return p
}

// text returns what the model reads of a result.
func text(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if t, ok := c.(mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}
