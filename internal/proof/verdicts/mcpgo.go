package verdicts

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func mcpGoForms() []*Form {
	sdk := mcpSDK{"mcp-go", mcpGoDial, map[string]meaning{
		"401, then another call":                {"rejected/unauthorized", ruleText}, // its session lives on
		"404, then another call":                {"failure/connection/retry", ruleSession},
		"connection refused, then another call": {"failure/connection/retry/notsent", ruleText},
		"child exits, then another call":        {"failure/connection/retry", ruleSession},
	}}
	return append(sdk.overHTTP(),
		sdk.local("in process", mcpGoInProcess, without(handlers, "handler says it is busy", "session closed, then a call")),
		sdk.local("child process", mcpGoChild, children))
}

func mcpGoDial(version string) dial {
	return func(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
		way, err := transport.NewStreamableHTTP(t.server.URL, transport.WithHTTPBasicClient(t.client))
		if err != nil {
			return nil, nil, err
		}
		return mcpGoConnect(ctx, client.NewClient(way, client.WithProtocolVersion(version)), version, "t")
	}
}

func mcpGoConnect(ctx context.Context, c *client.Client, version, tool string) (func(context.Context) error, func(), error) {
	if err := c.Start(ctx); err != nil {
		return nil, nil, err
	}
	var hi mcp.InitializeRequest
	hi.Params.ProtocolVersion = version
	hi.Params.ClientInfo = mcp.Implementation{Name: "verdicts", Version: "1"}
	answer, err := c.Initialize(ctx, hi)
	if err == nil && answer.ProtocolVersion != version {
		err = fmt.Errorf("protocol %s in place of %s", answer.ProtocolVersion, version)
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return func(ctx context.Context) error {
		var q mcp.CallToolRequest
		q.Params.Name = tool
		_, err := c.CallTool(ctx, q)
		return err
	}, func() { _ = c.Close() }, nil
}

func mcpGoInProcess(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
	name := t.failure.Name
	s := server.NewMCPServer("verdicts", "1", server.WithRecovery())
	s.AddTool(mcp.NewTool("t"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch name {
		case "handler returns an error":
			return nil, errors.New("no such city")
		case "handler returns -32603":
			return nil, mcp.ErrInternalError
		case "handler panics":
			panic("a mistake")
		case "handler hangs, caller's deadline", "handler hangs, caller cancels":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return mcp.NewToolResultText("hello"), nil
	})
	c, err := client.NewInProcessClient(s)
	if err != nil {
		return nil, nil, err
	}
	tool := "t"
	if name == "unknown tool" {
		tool = "nonesuch"
	}
	return mcpGoConnect(ctx, c, mcpModern, tool)
}

func mcpGoChild(ctx context.Context, t *target) (func(context.Context) error, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	env := append(os.Environ(), childEnv+"="+t.failure.Name)
	return mcpGoConnect(ctx, client.NewClient(transport.NewStdio(self, env)), mcpModern, "t")
}
