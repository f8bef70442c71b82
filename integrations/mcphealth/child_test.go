package mcphealth_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// childMode is the variable that makes this program a server on its standard input and
// output: "serve" is one with 40 tools, "exit" leaves at once, and others are the names of
// rows of the table, which the tool "t" plays.
const childMode = "MCPHEALTH_TEST_CHILD"

func runChild(mode string) {
	if mode == "exit" {
		return
	}
	server := newServer()
	for i := range 40 {
		addRaw(server, fmt.Sprintf("t%d", i), readOnly, good)
	}
	addRaw(server, "exit", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	addRaw(server, "mute", readOnly, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = os.Stdout.Close()
		select {}
	})
	addRaw(server, "t", readOnly, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch {
		case strings.HasPrefix(mode, "child exits"):
			os.Exit(3)
		case mode == "child is killed":
			if p, err := os.FindProcess(os.Getpid()); err == nil {
				_ = p.Kill()
			}
			select {}
		case mode == "child closes its output":
			_ = os.Stdout.Close()
			select {}
		case strings.HasPrefix(mode, "child hangs"):
			select {}
		}
		return good(ctx, req)
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// children starts servers in processes of their own.
type children struct {
	mu   sync.Mutex
	mode string
	all  []*exec.Cmd
}

func newChildren(t testing.TB) *children {
	c := &children{mode: "serve"}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, cmd := range c.all {
			if cmd.Process != nil {
				_ = cmd.Process.Kill()
			}
		}
	})
	return c
}

func (c *children) setMode(mode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode = mode
}

func (c *children) started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// last is the process that was started last.
func (c *children) last() *os.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[len(c.all)-1].Process
}

func (c *children) transport(context.Context) (mcp.Transport, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childMode+"="+c.mode)
	c.all = append(c.all, cmd)
	return &mcp.CommandTransport{Command: cmd, TerminateDuration: 200 * time.Millisecond}, nil
}
