// The example is an agent's host with one MCP server in a child process. The process
// dies, its tools are taken out, and when it can be started again they come back.
//
//	go run ./example
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/mcphealth"
)

// serving is the variable that makes this program the server: it names a file without
// which the server cannot start.
const serving = "MCPHEALTH_EXAMPLE_SERVE"

func main() {
	if license := os.Getenv(serving); license != "" {
		if err := serve(license); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

var implementation = &mcp.Implementation{Name: "example", Version: "1"}

// serve is the server.
func serve(license string) error {
	if _, err := os.Stat(license); err != nil {
		return err
	}
	server := mcp.NewServer(implementation, nil)
	for _, name := range []string{"search", "read", "write", "crash"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if name == "crash" {
				os.Exit(1)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " has worked"}}}, nil, nil
		})
	}
	return server.Run(context.Background(), &mcp.StdioTransport{})
}

// open opens a session with a server that is a child process.
func open(tools *mcphealth.Tools, license string) (*mcphealth.Session, error) {
	group := toolhealth.DefaultBreakerConfig()
	group.RecoveryDuration = 2 * time.Second // so that the example is short
	guard, err := toolhealth.New(tools.Settings(toolhealth.Settings{GroupBreaker: group, Policy: toolhealth.Policy{MaxAttempts: 1}}))
	if err != nil {
		return nil, err
	}
	tools.Guard = guard
	return tools.Open(mcphealth.Server{
		Name:   "files",
		Client: tools.NewClient(implementation, nil),
		Transport: func(context.Context) (mcp.Transport, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), serving+"="+license)
			return &mcp.CommandTransport{Command: cmd}, nil
		},
	})
}

// run is the host.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "mcphealth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	license := filepath.Join(dir, "license")
	if err := os.WriteFile(license, nil, 0o600); err != nil {
		return err
	}

	tools := &mcphealth.Tools{}
	session, err := open(tools, license)
	if err != nil {
		return err
	}
	defer session.Close()
	all, err := session.ListTools(ctx)
	if err != nil {
		return err
	}
	ask := func(names ...string) {
		for _, name := range names {
			res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name})
			if err != nil { // the run ends here
				fmt.Fprintln(out, "error:", err)
				return
			}
			fmt.Fprintf(out, "  %-6s %s\n", name, res.Content[0].(*mcp.TextContent).Text)
		}
	}
	offer := func() { fmt.Fprintf(out, "tools for the model: %d\n", len(tools.Offer("files", all))) }

	offer()
	ask("search")
	fmt.Fprintln(out, "the server dies, and cannot be started:")
	if err := os.Remove(license); err != nil {
		return err
	}
	ask("crash", "search", "read", "write")
	offer()
	fmt.Fprintln(out, "it can be started again:")
	if err := os.WriteFile(license, nil, 0o600); err != nil {
		return err
	}
	for len(tools.Offer("files", all)) == 0 {
		time.Sleep(50 * time.Millisecond)
	}
	ask("search", "read", "write")
	offer()
	return nil
}
