package toolhealth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// newExampleGuard returns a guard that does not wait between attempts, so that the
// examples are quick.
func newExampleGuard(change func(*toolhealth.GuardConfig), substitutes map[string][]string) *toolhealth.Guard {
	router, err := toolhealth.NewHealthRouter(substitutes)
	if err != nil {
		panic(err)
	}
	config := toolhealth.DefaultGuardConfig()
	config.Default.BackoffBase = 0
	if change != nil {
		change(&config)
	}
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: toolhealth.NewRegistry(), Router: router}, config)
	if err != nil {
		panic(err)
	}
	return guard
}

// Wrap a client's method once, call it as before.
func ExampleWrap() {
	guard := newExampleGuard(nil, nil)
	hiccups := 1
	search := toolhealth.Wrap(guard, "search", func(_ context.Context, query string) (string, error) {
		if hiccups > 0 {
			hiccups--
			return "", &apiError{503}
		}
		return "3 pages on " + query, nil
	})
	ctx, info := toolhealth.WithCallInfo(context.Background())
	fmt.Println(search(ctx, "go"))
	fmt.Println(info.Served, info.Attempts)
	// Output:
	// 3 pages on go <nil>
	// search 2
}

// A substitute has other arguments: adapt them where it is named.
func ExampleSubstitute() {
	guard := newExampleGuard(nil, map[string][]string{"search": {"archive"}})
	type archiveQuery struct {
		Words []string
		Limit int
	}
	archive := func(_ context.Context, q archiveQuery) (string, error) {
		return fmt.Sprintf("%d old pages on %s", q.Limit, strings.Join(q.Words, "+")), nil
	}
	search := toolhealth.Wrap(guard, "search",
		func(context.Context, string) (string, error) { return "", &apiError{503} },
		toolhealth.Substitute("archive", func(ctx context.Context, query string) (string, error) {
			return archive(ctx, archiveQuery{strings.Fields(query), 2})
		}))

	ctx, info := toolhealth.WithCallInfo(context.Background())
	fmt.Println(search(ctx, "circuit breaker"))
	fmt.Println(info.Requested, info.Served, info.Attempts)

	_, err := search(toolhealth.WithoutFallback(context.Background()), "circuit breaker")
	fmt.Println(err)
	// Output:
	// 2 old pages on circuit+breaker <nil>
	// search archive 3
	// tool temporarily unavailable: circuit breaker open; retry after 30s
}

// A tool with side effects is not repeated unless it surely did not act.
func ExampleCall_sideEffects() {
	guard := newExampleGuard(func(c *toolhealth.GuardConfig) {
		payment := c.Default
		payment.SideEffects = true
		c.Tools = map[string]toolhealth.Policy{"pay": payment}
	}, nil)
	runs := 0
	_, err := toolhealth.Call(context.Background(), guard, "pay", func(context.Context, string) (string, error) {
		runs++
		return "", &apiError{502} // perhaps it was paid, perhaps not
	})
	failed, _ := errors.AsType[*toolhealth.ToolError](err)
	fmt.Println(failed.Reason, runs)
	fmt.Println(err)
	// Output:
	// tool_failure:outcome_unknown 1
	// tool outcome unknown: the action may have been carried out, check before repeating it
}

// Some tools report errors inside a result: a check makes them count.
func ExampleCheckResult() {
	guard := newExampleGuard(nil, nil)
	type result struct {
		IsError bool
		Text    string
	}
	flagged := toolhealth.CheckResult(func(r result) error {
		if !r.IsError {
			return nil
		}
		return toolhealth.WithVerdict(errors.New("the result is marked as an error"),
			toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
	})
	out, err := toolhealth.Call(context.Background(), guard, "mcp", func(context.Context, string) (result, error) {
		return result{true, "no such file"}, nil
	}, flagged)
	fmt.Println(out.Text)
	fmt.Println(err)
	// Output:
	// no such file
	// tool failed: the request was rejected
}

// Partial is the last resort: an answer that is better than none.
func ExamplePartial() {
	guard := newExampleGuard(nil, nil)
	ctx, info := toolhealth.WithCallInfo(context.Background())
	out, err := toolhealth.Call(ctx, guard, "prices",
		func(context.Context, string) (string, error) { return "", &apiError{500} },
		toolhealth.Partial(func(_ context.Context, failed *toolhealth.ToolError) (string, error) {
			return "yesterday's prices, because of " + failed.Kind.String(), nil
		}))
	fmt.Println(out, err, info.Partial)
	// Output:
	// yesterday's prices, because of server_error <nil> true
}

// The error of a guarded call as a tool result.
func ExampleToolError_MarshalJSON() {
	guard := newExampleGuard(nil, nil)
	_, err := toolhealth.Call(context.Background(), guard, "search", func(context.Context, string) (int, error) {
		return 0, &apiError{404}
	})
	failed, _ := errors.AsType[*toolhealth.ToolError](err)
	text, _ := json.Marshal(failed)
	fmt.Println(string(text))
	cause, _ := errors.AsType[*apiError](err)
	fmt.Println(cause.code)
	// Output:
	// {"reason":"tool_failure:non_retryable","kind":"not_found","attempts":1,"text":"tool failed: not found"}
	// 404
}

// An engine with a loop of its own asks for the retry policy alone. Next records
// the verdict, too.
func ExampleGuard_Next() {
	registry := toolhealth.NewRegistry()
	config := toolhealth.DefaultGuardConfig()
	config.Default.MaxAttempts = 5
	config.Default.Jitter = 0
	config.Default.BackoffBase = time.Millisecond
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: registry}, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	for attempt := 1; registry.AllowRequest("search"); attempt++ {
		v := toolhealth.ClassifyHTTP(503, nil) // what the engine's call came to
		d := guard.Next("search", attempt, v)
		if d.Reason != toolhealth.RetryAllowed {
			fmt.Println(attempt, d.Reason, d.Streak, d.Wait.Round(time.Second))
			break
		}
		fmt.Println(attempt, d.Reason, d.Streak, d.Wait)
		time.Sleep(d.Wait)
	}
	// Output:
	// 1 tool_retry:allowed 1 1ms
	// 2 tool_retry:allowed 2 2ms
	// 3 tool_unavailable:circuit_open 3 30s
}

// An observer hears of each attempt and of each finished call: the place for
// metrics and traces.
func ExampleGuardConfig_observe() {
	guard := newExampleGuard(func(c *toolhealth.GuardConfig) {
		c.Observe = func(_ context.Context, e toolhealth.Event) {
			if e.Final {
				fmt.Println("call:", e.Tool, e.Reason, e.Attempt)
				return
			}
			fmt.Println("attempt:", e.Served, e.Attempt, e.Verdict.Outcome, e.Reason)
		}
	}, nil)
	_, _ = toolhealth.Call(context.Background(), guard, "search", func(context.Context, string) (int, error) {
		return 0, &apiError{500}
	})
	// Output:
	// attempt: search 1 failure tool_retry:allowed
	// attempt: search 2 failure tool_failure:retry_exhausted
	// call: search tool_failure:retry_exhausted 2
}
