package toolhealth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// vendorError says what happened in a way that nobody can guess.
type vendorError struct {
	HTTP   int
	Header http.Header
}

func (e *vendorError) Error() string { return fmt.Sprint("vendor: ", e.HTTP) }

var errNeedsApproval = errors.New("a person has to agree")

// mcpResult is what a call of an MCP tool returns.
type mcpResult struct {
	Content string
	IsError bool
}

// The functions between the marks are the ones in README.md, word for word.

// README sdk
func classifier() toolhealth.Classifier { // for Gate.Classify
	return toolhealth.ErrorRules{Own: []toolhealth.Rule{
		toolhealth.For(func(e *vendorError) toolhealth.Verdict { return toolhealth.ClassifyHTTP(e.HTTP, e.Header) }),
		toolhealth.Neutral(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, errNeedsApproval) }),
	}}.Classify
}

// README mcp
func flaggedResult(r *mcpResult) error { // for CheckResult: the call worked, the tool says that it did not
	if r == nil || !r.IsError {
		return nil
	}
	return toolhealth.WithVerdict(errors.New("the result is marked as an error"),
		toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
}

// README reroute
func reroute(r *toolhealth.Registry, config toolhealth.GuardConfig, substitutes map[string][]string) (*toolhealth.Guard, error) {
	router, err := toolhealth.NewHealthRouter(substitutes)
	if err != nil {
		return nil, err
	}
	return toolhealth.NewGuard(&toolhealth.Gate{Registry: r, Router: router}, config) // put it in an atomic.Pointer
}

// README end

func TestTheGuardCodeInTheREADMEIsCodeThatRuns(t *testing.T) {
	readmeHas(t, "readme_guard_test.go", 3)
}

// readmeHas checks that the pieces of code that follow a "// README" comment in a
// file stand in the README word for word. It returns both texts.
func readmeHas(t *testing.T, file string, pieces int) (source, readme string) {
	t.Helper()
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	parts := strings.Split(string(code), "\n// README ")
	require.Len(t, parts, pieces+2, "what comes before the first, and the end")
	for _, part := range parts[1 : pieces+1] {
		name, block, _ := strings.Cut(part, "\n")
		assert.Contains(t, string(text), "```go\n"+strings.TrimSpace(block)+"\n```\n", name)
	}
	return string(code), string(text)
}

// The errors of well-known SDKs need no rule: these have the fields of theirs.
func Example_sdkErrors() {
	show := func(name string, v toolhealth.Verdict) {
		fmt.Println(name, v.Outcome, v.Kind, v.Retryable, v.RetryAfter)
	}
	ctx := context.Background()
	header := http.Header{"Retry-After": {"20"}}
	show("openai", toolhealth.Classify(ctx, &openaiError{StatusCode: 429, Response: &http.Response{StatusCode: 429, Header: header}}))
	show("anthropic", toolhealth.Classify(ctx, &anthropicError{StatusCode: 529}))
	show("googleapi", toolhealth.Classify(ctx, fmt.Errorf("sheets: %w", &googleError{Code: 403})))
	show("vendor, no rule", toolhealth.Classify(ctx, &vendorError{HTTP: 503}))
	show("vendor, with it", classifier()(ctx, &vendorError{HTTP: 503, Header: http.Header{"Retry-After": {"7"}}}))
	show("approval", classifier()(ctx, fmt.Errorf("pay: %w", errNeedsApproval)))
	// Output:
	// openai throttled rate_limited true 20s
	// anthropic failure server_error true 0s
	// googleapi rejected unauthorized false 0s
	// vendor, no rule failure unknown false 0s
	// vendor, with it failure server_error true 7s
	// approval neutral denied false 0s
}

type openaiError struct {
	Code       string
	Message    string
	StatusCode int
	Response   *http.Response
}

func (e *openaiError) Error() string { return e.Message }

type anthropicError struct {
	StatusCode int
	RequestID  string
	Response   *http.Response
}

func (e *anthropicError) Error() string { return "anthropic" }

type googleError struct {
	Code   int
	Header http.Header
}

func (e *googleError) Error() string { return "google" }

// A model that is still offered a tool which is out calls it again: leave it out
// of the next request.
func ExampleGate_Offer() {
	router, err := toolhealth.NewHealthRouter(map[string][]string{"search": {"archive"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry(), Router: router}
	for range 3 {
		gate.Registry.RecordFailure("search", time.Second)
		gate.Registry.RecordFailure("weather", time.Second)
	}
	offer, leaveOut := gate.Offer([]string{"search", "weather", "mail"})
	fmt.Println("offer:", offer) // search is down, its substitute is not
	fmt.Println("leave out:", leaveOut)
	// Output:
	// offer: [search mail]
	// leave out: [weather]
}

// Who was asked, who answered, after how many attempts: for logs and bills.
func ExampleWithCallInfo() {
	guard := newExampleGuard(nil, map[string][]string{"search": {"archive"}})
	ctx, info := toolhealth.WithCallInfo(context.Background())
	answer, err := toolhealth.Call(ctx, guard, "search", func(_ context.Context, tool string) (string, error) {
		if tool == "search" {
			return "", &apiError{503}
		}
		return "an old page", nil
	})
	fmt.Println(answer, err)
	fmt.Printf("%s was asked, %s answered, %d attempts, %d waits\n",
		info.Requested, info.Served, info.Attempts, len(info.Waits))
	// Output:
	// an old page <nil>
	// search was asked, archive answered, 3 attempts, 1 waits
}

func TestTheREADMEsRerouteKeepsWhatIsKnown(t *testing.T) {
	r := toolhealth.NewRegistry()
	guard, err := reroute(r, toolhealth.GuardConfig{}, nil)
	require.NoError(t, err)
	ctx := context.Background()
	tool := func(_ context.Context, tool string) (*mcpResult, error) { return &mcpResult{Content: tool}, nil }
	_, err = toolhealth.Call(ctx, guard, "search", tool)
	require.NoError(t, err)
	require.True(t, r.Isolate("search"))
	_, err = toolhealth.Call(ctx, guard, "search", tool)
	require.ErrorIs(t, err, toolhealth.ErrIsolated)
	guard, err = reroute(r, toolhealth.GuardConfig{}, map[string][]string{"search": {"archive"}})
	require.NoError(t, err)
	out, err := toolhealth.Call(ctx, guard, "search", tool, toolhealth.CheckResult(flaggedResult))
	require.NoError(t, err)
	assert.Equal(t, "archive", out.Content)
	_, err = toolhealth.Call(ctx, guard, "search", func(context.Context, string) (*mcpResult, error) {
		return &mcpResult{IsError: true}, nil
	}, toolhealth.CheckResult(flaggedResult))
	require.Error(t, err)
	h, ok := r.Health("archive")
	require.True(t, ok)
	assert.Equal(t, uint64(1), h.Rejected)
	_, err = reroute(r, toolhealth.GuardConfig{}, map[string][]string{"search": {"search"}})
	assert.Error(t, err)
}
