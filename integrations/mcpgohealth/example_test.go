package mcpgohealth_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcpgohealth"
)

// A host with a session. The server is in this process; one that is a child process or
// behind HTTP is reached by transport.NewStdio or transport.NewStreamableHTTP.
func ExampleDial() {
	weather := server.NewMCPServer("weather", "1")
	weather.AddTool(mcp.NewTool("forecast"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("the database at 10.0.0.7 is down")
	})

	var policies mcpgohealth.Policies
	guard, err := toolhealth.New(toolhealth.Settings{
		GroupSeparator: "/",
		PolicyOf:       policies.Of,
		Classify:       toolhealth.ErrorRules{Own: mcpgohealth.Rules()}.Classify,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	session, err := mcpgohealth.Dial(ctx, guard, func(context.Context) (transport.Interface, error) {
		return transport.NewInProcessTransport(weather), nil
	}, mcpgohealth.Server("weather"), mcpgohealth.Learn(&policies))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	var request mcp.CallToolRequest
	request.Params.Name = "forecast"
	for range 4 {
		result, err := session.CallTool(ctx, request)
		if err != nil {
			log.Fatal(err) // the caller has gone
		}
		fmt.Println(result.IsError, result.Content[0].(mcp.TextContent).Text)
	}
	// The tool does not say that it is read-only or idempotent, so no call is repeated.

	// Output:
	// true tool outcome unknown: the action may have been carried out, check before repeating it
	// true tool outcome unknown: the action may have been carried out, check before repeating it
	// true tool outcome unknown: the action may have been carried out, check before repeating it
	// true tool temporarily unavailable: circuit breaker open; retry after 30s
}

// A server whose handler depends on an upstream that is down.
func ExampleMiddleware() {
	guard, err := toolhealth.New(toolhealth.Settings{Policy: toolhealth.Policy{MaxAttempts: 1}})
	if err != nil {
		log.Fatal(err)
	}
	s := server.NewMCPServer("weather", "1", server.WithToolHandlerMiddleware(mcpgohealth.Middleware(guard)))
	s.AddTool(mcp.NewTool("forecast"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, toolhealth.CheckStatus(503, nil)
	})
	for range 4 {
		answer := s.HandleMessage(context.Background(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"forecast"}}`))
		switch answer := answer.(type) {
		case mcp.JSONRPCError:
			fmt.Println("error", answer.Error.Code)
		case mcp.JSONRPCResponse:
			fmt.Println(answer.Result.(*mcp.CallToolResult).Content[0].(mcp.TextContent).Text)
		}
	}
	// Output:
	// error -32603
	// error -32603
	// error -32603
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}

// A host whose server is a child process.
func ExampleDial_child() {
	ctx := context.Background()
	var policies mcpgohealth.Policies
	guard, err := toolhealth.New(toolhealth.Settings{GroupSeparator: "/", PolicyOf: policies.Of})
	if err != nil {
		log.Fatal(err)
	}
	session, err := mcpgohealth.Dial(ctx, guard, func(context.Context) (transport.Interface, error) {
		return transport.NewStdio("github-mcp-server", nil, "stdio"), nil
	}, mcpgohealth.Server("github"), mcpgohealth.Learn(&policies))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
}
