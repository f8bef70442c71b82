package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Variables of the environment that make this program one of the servers: which one, and
// how often it has been started.
const (
	serverVariable = "TOOLHEALTH_AGENT_SERVER"
	startVariable  = "TOOLHEALTH_AGENT_START"
)

// starter returns the Transport of a server: a way to start it, each time anew. Yours has
// the command of the server in the place of this program.
func starter(name string) func(context.Context) (mcp.Transport, error) {
	var starts atomic.Int64
	return func(context.Context) (mcp.Transport, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), serverVariable+"="+name, startVariable+"="+strconv.FormatInt(starts.Add(1), 10))
		cmd.Stderr = os.Stderr
		return &mcp.CommandTransport{Command: cmd}, nil
	}
}

// runServer is the main of a server. It ends when its standard input does.
func runServer(name string) (code int) {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	switch name {
	case "crm":
		start, err := strconv.Atoi(os.Getenv(startVariable))
		if err != nil || start%3 != 1 { // after each death, two starts fail
			return 1
		}
		for _, noun := range []string{"customers", "invoices", "orders", "products", "refunds", "shipments", "suppliers", "tickets"} {
			addTool(server, noun+"_count", reads, answer("128"))
			addTool(server, noun+"_create", acts, answer("created"))
			addTool(server, noun+"_get", reads, answer("paid on Friday"))
			addTool(server, noun+"_list", reads, answer("a long list"))
			addTool(server, noun+"_search", reads, answer("one match"))
		}
		// A call that its server does not survive.
		addTool(server, "customers_count", reads, func(context.Context) string {
			os.Exit(1)
			return ""
		})
	case "archive":
		addTool(server, "customers_search", reads, answer("one match, as of last night"))
		addTool(server, "orders_search", reads, answer("one match, as of last night"))
		addTool(server, "today", reads, answer("Monday"))
		addTool(server, "draft", reads, func(ctx context.Context) string {
			select {
			case <-ctx.Done():
			case <-time.After(cooldown + cooldown/4): // until the crm may be asked again
			}
			return "a draft"
		})
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

// Annotations of tools.
var (
	reads = &mcp.ToolAnnotations{ReadOnlyHint: true}
	acts  = &mcp.ToolAnnotations{}
)

func answer(text string) func(context.Context) string {
	return func(context.Context) string { return text }
}

// addTool adds a tool, or replaces the one of that name.
func addTool(server *mcp.Server, name string, hints *mcp.ToolAnnotations, work func(ctx context.Context) string) {
	type input struct {
		ID string `json:"id,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: name, Annotations: hints}, func(ctx context.Context, _ *mcp.CallToolRequest, _ input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: work(ctx)}}}, nil, nil
	})
}
