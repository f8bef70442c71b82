package toolhealth_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// The functions between the marks are the ones in README.md, word for word.

// runTool and the clients are the tools of the README: search is down, all else
// works.
func runTool(_ context.Context, tool, args string) (string, error) {
	if tool == "search" {
		return "", &apiError{503}
	}
	return tool + " for " + args, nil
}

type searchClient string

func (c searchClient) Search(ctx context.Context, query string) (string, error) {
	return runTool(ctx, string(c), query)
}

// README by name
func callByName(ctx context.Context, registry *toolhealth.Registry, tool, args string) string {
	if !registry.AllowRequest(tool) {
		return "tool temporarily unavailable" // a soft error: the model goes on without it
	}
	start := time.Now()
	out, err := runTool(ctx, tool, args)
	registry.Record(tool, toolhealth.Classify(ctx, err), time.Since(start))
	if err != nil {
		return "tool failed"
	}
	return out
}

// README gate
func callThroughGate(ctx context.Context, gate *toolhealth.Gate, tool, args string) string {
	permit, err := gate.Allow(ctx, tool)
	if err != nil {
		return err.Error() // a *Refusal: "tool temporarily unavailable: circuit breaker open; retry after 12s"
	}
	defer permit.Release() // gives the permit back on every way out; does nothing after Done

	out, err := runTool(ctx, permit.Tool(), args) // Tool is a substitute's name if the call was re-routed
	permit.Done(ctx, err)
	if err != nil {
		return "tool failed"
	}
	return out
}

// README guard
func newSearch(primary, backup searchClient) (func(ctx context.Context, query string) (string, error), error) {
	router, err := toolhealth.NewHealthRouter(map[string][]string{"search": {"search_backup"}})
	if err != nil {
		return nil, err
	}
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry(), Router: router}
	config := toolhealth.DefaultGuardConfig()
	config.Default.Timeout = 10 * time.Second
	guard, err := toolhealth.NewGuard(gate, config)
	if err != nil {
		return nil, err
	}
	return toolhealth.Wrap(guard, "search", primary.Search,
		toolhealth.Substitute("search_backup", backup.Search)), nil
}

// README end

func Example_byName() {
	registry := toolhealth.NewRegistry()
	for range 4 {
		fmt.Println(callByName(context.Background(), registry, "search", "go"))
	}
	fmt.Println(callByName(context.Background(), registry, "weather", "Lisbon"))
	// Output:
	// tool failed
	// tool failed
	// tool failed
	// tool temporarily unavailable
	// weather for Lisbon
}

func Example_gate() {
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}
	for range 4 {
		fmt.Println(callThroughGate(context.Background(), gate, "search", "go"))
	}
	fmt.Println(callThroughGate(context.Background(), gate, "weather", "Lisbon"))
	// Output:
	// tool failed
	// tool failed
	// tool failed
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// weather for Lisbon
}

func Example_guard() {
	search, err := newSearch("search", "search_backup")
	if err != nil {
		fmt.Println(err)
		return
	}
	// The first attempt fails, so does its retry, and the substitute answers.
	fmt.Println(search(context.Background(), "go"))

	// Without a substitute that works, the error says why it stopped.
	search, _ = newSearch("search", "search")
	_, err = search(context.Background(), "go")
	failed, _ := errors.AsType[*toolhealth.ToolError](err)
	fmt.Println(failed.Reason)
	fmt.Println(failed)
	// Output:
	// search_backup for go <nil>
	// tool_failure:retry_exhausted
	// tool failed after 3 attempts: internal error of the tool
}

func TestTheCodeInTheREADMEIsCodeThatRuns(t *testing.T) {
	source, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(source), "\n// README by name\n")
	rest, _, found := strings.Cut(rest, "\n// README end\n")
	require.True(t, found)
	blocks := 0
	for _, mark := range []string{"gate", "guard", "end"} {
		block, after, _ := strings.Cut(rest, "\n// README "+mark+"\n")
		rest = after
		blocks++
		assert.Contains(t, string(readme), "```go\n"+strings.TrimSpace(block)+"\n```\n", "block %d", blocks)
	}
}
