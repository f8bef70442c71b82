package toolhealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/toolhealth/toolhealth"
)

// The functions of this file that README.md shows stand there word for word; a test
// in internal/proof/documents compares them.

// runTool and searchClient stand for the tools of a host: search is down, everything
// else works.
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

func wrapSearch(guard *toolhealth.Guard, primary, backup searchClient) func(context.Context, string) (string, error) {
	return toolhealth.Wrap(guard, "search", primary.Search,
		toolhealth.Substitute("search_backup", backup.Search)) // its arguments may differ: adapt them here
}

func callThroughGate(ctx context.Context, gate *toolhealth.Gate, tool, args string) string {
	permit, err := gate.Allow(ctx, tool)
	if err != nil {
		return err.Error() // "tool temporarily unavailable: circuit breaker open; retry after 30s"
	}
	defer permit.Release() // on every way out; after Done it does nothing

	out, err := runTool(ctx, permit.Tool(), args) // a substitute's name if the call was re-routed
	permit.Done(ctx, err)
	if err != nil {
		return "tool failed"
	}
	return out
}

func callByName(ctx context.Context, registry *toolhealth.Registry, tool, args string) string {
	if !registry.AllowRequest(tool) {
		return "tool temporarily unavailable"
	}
	start := time.Now()
	out, err := runTool(ctx, tool, args)
	registry.Record(tool, toolhealth.Classify(ctx, err), time.Since(start))
	if err != nil {
		return "tool failed"
	}
	return out
}

func newGuard(file []byte) (*toolhealth.Guard, error) {
	var c struct {
		Health      toolhealth.Config
		Guard       toolhealth.GuardConfig
		Substitutes map[string][]string
	}
	if err := json.Unmarshal(file, &c); err != nil {
		return nil, err
	}
	registry, err := toolhealth.NewRegistryWithConfig(c.Health)
	if err != nil {
		return nil, err
	}
	router, err := toolhealth.NewHealthRouter(c.Substitutes)
	if err != nil {
		return nil, err
	}
	return toolhealth.NewGuard(&toolhealth.Gate{Registry: registry, Router: router}, c.Guard)
}

// By name: for engines that carry nothing from before a call to after it.
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

// A Gate: before and after one call, tied together by a permit.
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

// A Guard: around the call, with retries, time limits and substitutes.
func Example_guard() {
	const file = `{
		"guard": {"default": {"timeout": "10s"}},
		"substitutes": {"search": ["search_backup"]}
	}`
	guard, err := newGuard([]byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	// The first attempt fails, so does its retry, and the substitute answers.
	search := wrapSearch(guard, "search", "search_backup")
	fmt.Println(search(context.Background(), "go"))

	// Without a substitute that works, the error says why it stopped.
	guard, _ = newGuard([]byte(file))
	search = wrapSearch(guard, "search", "search")
	_, err = search(context.Background(), "go")
	failed, _ := errors.AsType[*toolhealth.ToolError](err)
	fmt.Println(failed.Reason)
	fmt.Println(failed)
	// Output:
	// search_backup for go <nil>
	// tool_failure:retry_exhausted
	// tool failed after 3 attempts: internal error of the tool
}

// A policy of one tool is whole in Go: start from a copy of the default. This mail is
// sent once, unless an attempt surely never reached the server.
func ExampleGuardConfig_tools() {
	config := toolhealth.DefaultGuardConfig()
	config.Default.Timeout = 10 * time.Second
	mail := config.Default
	mail.SideEffects = true
	config.Tools = map[string]toolhealth.Policy{"mail": mail}

	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry()}, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := 0
	_, err = toolhealth.Call(context.Background(), guard, "mail", func(ctx context.Context, _ string) (string, error) {
		sent++
		_, limited := ctx.Deadline()
		fmt.Println("limited:", limited)
		return "", &apiError{503}
	})
	fmt.Println("sent:", sent)
	fmt.Println(err)
	// Output:
	// limited: true
	// sent: 1
	// tool outcome unknown: the action may have been carried out, check before repeating it
}

// vendorError says what happened in a way that no library can guess.
type vendorError struct {
	HTTP int
	Wait string
}

func (e *vendorError) Error() string { return fmt.Sprint("vendor: ", e.HTTP) }

// The errors of well-known SDKs need no rule, because their fields are known. An error
// type that says it in another way needs one rule.
func Example_sdkErrors() {
	errNeedsApproval := errors.New("a person has to agree")
	classify := toolhealth.ErrorRules{Own: []toolhealth.Rule{ // for Gate.Classify
		toolhealth.For(func(e *vendorError) toolhealth.Verdict { return toolhealth.ClassifyHTTPStatus(e.HTTP, e.Wait) }),
		toolhealth.Neutral(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, errNeedsApproval) }),
	}}.Classify

	show := func(name string, v toolhealth.Verdict) {
		fmt.Println(name, v.Outcome, v.Kind, v.Retryable, v.RetryAfter)
	}
	ctx := context.Background()
	header := http.Header{"Retry-After": {"20"}}
	show("openai", toolhealth.Classify(ctx, &openaiError{StatusCode: 429, Response: &http.Response{StatusCode: 429, Header: header}}))
	show("anthropic", toolhealth.Classify(ctx, &anthropicError{StatusCode: 529}))
	show("googleapi", toolhealth.Classify(ctx, fmt.Errorf("sheets: %w", &googleError{Code: 403})))
	show("vendor, no rule", toolhealth.Classify(ctx, &vendorError{HTTP: 503}))
	show("vendor, with it", classify(ctx, &vendorError{HTTP: 503, Wait: "7"}))
	show("approval", classify(ctx, fmt.Errorf("pay: %w", errNeedsApproval)))
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

// Which tool the call asked for, which one answered, after how many attempts: for logs
// and bills.
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
	fmt.Printf("asked for %s, answered by %s, %d attempts, %d waits\n",
		info.Requested, info.Served, info.Attempts, len(info.Waits))
	// Output:
	// an old page <nil>
	// asked for search, answered by archive, 3 attempts, 1 waits
}
