package mcphealth_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// A host with one server. The weather of the server is down, its clock is not.
func ExampleSession() {
	server := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	input := map[string]any{"type": "object"}
	server.AddTool(&mcp.Tool{Name: "weather", InputSchema: input, Annotations: reads}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("dial tcp 10.0.0.7:5432: connect: connection refused")
	})
	server.AddTool(&mcp.Tool{Name: "clock", InputSchema: input, Annotations: reads}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noon"}}}, nil
	})

	tools := &mcphealth.Tools{}
	guard, err := toolhealth.New(tools.Settings(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}}))
	if err != nil {
		fmt.Println(err)
		return
	}
	tools.Guard = guard
	session, err := tools.Open(mcphealth.Server{
		Name:   "example",
		Client: tools.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil),
		Transport: func(ctx context.Context) (mcp.Transport, error) { // a command, or an endpoint
			near, far := mcp.NewInMemoryTransports()
			_, err := server.Connect(context.WithoutCancel(ctx), far, nil)
			return near, err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	ctx := context.Background()
	if _, err := session.ListTools(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range []string{"weather", "weather", "weather", "weather", "clock"} {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
		if err != nil { // the run ends
			fmt.Println(err)
			return
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// tool failed: unknown error
	// tool failed: unknown error
	// tool failed: unknown error
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// noon
}

// ExampleTools_Open is a host of a server that is a child process.
func ExampleTools_Open() {
	session, err := openFiles(&mcp.Implementation{Name: "host", Version: "1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
}

func openFiles(host *mcp.Implementation) (*mcphealth.Session, error) {
	tools := &mcphealth.Tools{}
	guard, err := toolhealth.New(tools.Settings(toolhealth.Settings{}))
	if err != nil {
		return nil, err
	}
	tools.Guard = guard
	return tools.Open(mcphealth.Server{
		Name:   "files",
		Client: tools.NewClient(host, nil), // as mcp.NewClient
		Transport: func(context.Context) (mcp.Transport, error) {
			return &mcp.CommandTransport{Command: exec.Command("files-server")}, nil
		},
	})
}
