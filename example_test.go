package toolhealth_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/toolhealth/toolhealth"
)

// First use, by name: ask before a call, tell after it.
func Example() {
	registry := toolhealth.NewRegistry()

	call := func(tool string, run func() error) {
		if !registry.AllowRequest(tool) {
			fmt.Println(tool, "is not called")
			return
		}
		start := time.Now()
		if err := run(); err != nil {
			registry.RecordFailure(tool, time.Since(start))
			fmt.Println(tool, "failed")
			return
		}
		registry.RecordSuccess(tool, time.Since(start))
		fmt.Println(tool, "answered")
	}

	broken := func() error { return errors.New("no answer") }
	for range 4 {
		call("search", broken)
	}
	call("weather", func() error { return nil })
	// Output:
	// search failed
	// search failed
	// search failed
	// search is not called
	// weather answered
}

// apiError is an error as many HTTP clients have it.
type apiError struct{ code int }

func (e *apiError) Error() string   { return http.StatusText(e.code) }
func (e *apiError) StatusCode() int { return e.code }

// The permit ties the report of a call to its admission. Errors are classified: a 404
// is an answer, a 503 counts against the tool.
func ExampleGate() {
	ctx := context.Background()
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}

	call := func(tool string, fn func(context.Context) error) error {
		permit, err := gate.Allow(ctx, tool)
		if err != nil {
			return err // nothing ran; the text is safe for the model
		}
		defer permit.Release() // whatever happens, the permit is settled
		err = fn(ctx)
		permit.Done(ctx, err)
		return err
	}

	for _, code := range []int{404, 404, 404, 503, 503, 503, 503} {
		err := call("search", func(context.Context) error { return &apiError{code} })
		fmt.Println(err)
		if refusal, ok := errors.AsType[*toolhealth.Refusal](err); ok {
			fmt.Println(refusal.Reason, refusal.Kind, refusal.Streak, errors.Is(err, toolhealth.ErrCircuitOpen))
		}
	}
	// Output:
	// Not Found
	// Not Found
	// Not Found
	// Service Unavailable
	// Service Unavailable
	// Service Unavailable
	// tool temporarily unavailable: circuit breaker open; retry after 30s
	// tool_unavailable:circuit_open server_error 3 true
}

// With a router, the permit may be for a substitute: call what Tool says.
func ExampleGate_router() {
	ctx := context.Background()
	router, err := toolhealth.NewHealthRouter(map[string][]string{
		"search": {"search_eu", "search_archive"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := toolhealth.NewRegistry()
	gate := &toolhealth.Gate{Registry: registry, Router: router}

	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	permit, err := gate.Allow(ctx, "search")
	fmt.Println(permit.Tool(), err)
	permit.Done(ctx, nil)

	// Which tools to offer to the model, and which to leave out for now.
	for range 3 {
		registry.RecordFailure("translate", time.Second)
	}
	fmt.Println(gate.Offer([]string{"search", "translate", "weather"}))
	// Output:
	// search_eu <nil>
	// [search weather] [translate]
}

// Wait as long as the refusal says: the next call is the probe, and its success
// closes the breaker.
func ExampleRefusal() {
	ctx := context.Background()
	config := toolhealth.DefaultConfig()
	config.Breaker.RecoveryDuration = 500 * time.Millisecond
	registry, err := toolhealth.NewRegistryWithConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := &toolhealth.Gate{Registry: registry}
	for range 3 {
		registry.RecordFailure("search", time.Second)
	}

	_, err = gate.Allow(ctx, "search")
	refusal, _ := errors.AsType[*toolhealth.Refusal](err)
	fmt.Println(refusal.Reason)
	time.Sleep(refusal.RetryAfter)

	probe, err := gate.Allow(ctx, "search")
	fmt.Println("probe:", probe.Probe(), err)
	_, err = gate.Allow(ctx, "search")
	refusal, _ = errors.AsType[*toolhealth.Refusal](err)
	fmt.Println(refusal.Reason)

	probe.Done(ctx, nil)
	fmt.Println("available:", registry.Available("search"))
	// Output:
	// tool_unavailable:circuit_open
	// probe: true <nil>
	// tool_unavailable:probe_in_flight
	// available: true
}

// A refusal as a tool result.
func ExampleRefusal_MarshalJSON() {
	registry := toolhealth.NewRegistry()
	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	gate := &toolhealth.Gate{Registry: registry}
	_, err := gate.Allow(context.Background(), "search")
	refusal, _ := errors.AsType[*toolhealth.Refusal](err)
	text, _ := json.Marshal(refusal)
	fmt.Println(string(text))
	// Output:
	// {"reason":"tool_unavailable:circuit_open","kind":"refused","retry_after_seconds":30,"attempts":0,"text":"tool temporarily unavailable: circuit breaker open; retry after 30s"}
}

// The summary as a dashboard gets it. The times are set to zero here, because an
// example cannot know them, and the score has fewer digits.
func ExampleRegistry_HealthSummary() {
	registry := toolhealth.NewRegistry()
	registry.RecordSuccess("search", 200*time.Millisecond)
	registry.RecordFailure("search", time.Second)

	summary := registry.HealthSummary()
	summary.At = time.Time{}
	for i := range summary.Tools {
		summary.Tools[i].Since, summary.Tools[i].LastFailureAt = time.Time{}, time.Time{}
		summary.Tools[i].Score = math.Round(100*summary.Tools[i].Score) / 100
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(summary)
	// Output:
	// {
	//   "schema": 1,
	//   "at": "0001-01-01T00:00:00Z",
	//   "overall": "degraded",
	//   "unavailable": 0,
	//   "untracked": 0,
	//   "evicted": 0,
	//   "hook_panics": 0,
	//   "hook_dropped": 0,
	//   "tools": [
	//     {
	//       "tool": "search",
	//       "status": "degraded",
	//       "state": "closed",
	//       "available": true,
	//       "probe_due": false,
	//       "score": 0.64,
	//       "successes": 1,
	//       "failures": 1,
	//       "failures_by_kind": {
	//         "unknown": 1
	//       },
	//       "rejected": 0,
	//       "throttled": 0,
	//       "neutral": 0,
	//       "refused": 0,
	//       "ewma": 0.7,
	//       "consecutive_failures": 1,
	//       "last_failure_kind": "unknown",
	//       "refused_in_row": 0,
	//       "rejected_in_row": 0,
	//       "would_refuse": 0,
	//       "trips": 0,
	//       "epoch": 1,
	//       "since": "0001-01-01T00:00:00Z",
	//       "in_flight": 0,
	//       "reason": "none",
	//       "retry_after_seconds": 0,
	//       "calls": 2,
	//       "success_rate": 0.5,
	//       "average_seconds": 0.6,
	//       "average_success_seconds": 0.2,
	//       "max_seconds": 1,
	//       "p50_seconds": 0.192776353,
	//       "p90_seconds": 0.192776353,
	//       "p99_seconds": 0.192776353
	//     }
	//   ]
	// }
}

// All yields the tools in order. The loop may call any method.
func ExampleRegistry_All() {
	registry := toolhealth.NewRegistry()
	registry.RecordSuccess("weather", time.Second)
	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	for tool, health := range registry.All() {
		fmt.Printf("%-8s %-10s %-7s %.2f\n", tool, health.Status, health.State, health.Score)
		if !health.Available {
			registry.Reset(tool, "")
		}
	}
	fmt.Println(registry.Available("search"))
	// Output:
	// search   unhealthy  open    0.24
	// weather  healthy    closed  1.00
	// true
}

// A configuration for single tools. Each is whole: start from a copy of the default.
func ExampleConfig() {
	config := toolhealth.DefaultConfig()
	patient := config.Breaker
	patient.FailureThreshold = 10
	config.Tools = map[string]toolhealth.BreakerConfig{"crawler": patient}
	registry, err := toolhealth.NewRegistryWithConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		registry.RecordFailure("crawler", time.Minute)
		registry.RecordFailure("search", time.Minute)
	}
	fmt.Println(registry.Available("crawler"), registry.Available("search"))

	// An invalid configuration returns an error that names each field.
	config.Breaker.RecoveryDuration = -time.Second
	fmt.Println(registry.SetConfig(config))
	// Output:
	// true false
	// toolhealth: config: breaker.recovery_duration is -1s, must be between 0s and 87600h0m0s, or Off
}

// A hook hears of every transition, in order for each tool.
func ExampleRegistry_OnTransition() {
	config := toolhealth.DefaultConfig()
	config.Breaker.RecoveryDuration = 20 * time.Millisecond
	registry, err := toolhealth.NewRegistryWithConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := registry.OnTransition(func(t toolhealth.Transition) {
		fmt.Printf("%s: %s -> %s, %s, streak %d\n", t.Tool, t.From, t.To, t.Cause, t.Streak)
	})
	defer stop()

	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	health, _ := registry.Health("search")
	time.Sleep(health.RetryAfter)
	if registry.AllowRequest("search") { // the probe
		registry.RecordSuccess("search", time.Second)
	}
	// Output:
	// search: closed -> open, failure_threshold, streak 3
	// search: open -> half-open, probe_admitted, streak 3
	// search: half-open -> closed, probe_succeeded, streak 0
}

// errPending and quotaError are errors that the library cannot know.
var errPending = errors.New("waiting for approval")

type quotaError struct{ resets time.Duration }

func (e *quotaError) Error() string { return "quota used up" }

// Your own rules come before the built-in ones.
func ExampleErrorRules() {
	classify := toolhealth.ErrorRules{Own: []toolhealth.Rule{
		toolhealth.RuleFor(func(e *quotaError) toolhealth.Verdict {
			return toolhealth.Verdict{
				Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited,
				Retryable: true, RetryAfter: e.resets,
			}
		}),
		toolhealth.NeutralRule(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, errPending) }),
	}}.Classify
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry(), Classify: classify}

	ctx := context.Background()
	for _, err := range []error{
		fmt.Errorf("mail: %w", errPending),
		fmt.Errorf("mail: %w", &quotaError{resets: 90 * time.Second}),
	} {
		v := classify(ctx, err)
		fmt.Println(v.Outcome, v.Kind, v.RetryAfter)
		permit, _ := gate.Allow(ctx, "mail")
		permit.Done(ctx, err)
	}
	_, err := gate.Allow(ctx, "mail")
	fmt.Println(err)
	// Output:
	// neutral denied 0s
	// throttled rate_limited 1m30s
	// tool temporarily unavailable: it asked to wait; retry after 90s
}

// The same error can be the fault of the model or of the tool. The code that knows the
// fault marks the error.
func ExampleWithVerdict() {
	parse := func(arguments string) error {
		var query struct{ Text string }
		err := json.Unmarshal([]byte(arguments), &query)
		return toolhealth.WithVerdict(err, toolhealth.Verdict{
			Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindInvalidRequest, NotSent: true,
		})
	}
	err := parse(`{"Text": 7}`)
	v := toolhealth.Classify(context.Background(), fmt.Errorf("search: %w", err))
	_, same := errors.AsType[*json.UnmarshalTypeError](err)
	fmt.Println(v.Outcome, v.Kind, same)
	fmt.Println(parse(`{"Text": "seven"}`))
	// Output:
	// neutral invalid_request true
	// <nil>
}

// The default verdicts of some errors.
func ExampleClassify() {
	ctx := context.Background()
	for _, err := range []error{
		nil,
		&apiError{404},
		&apiError{503},
		context.DeadlineExceeded, // the tool's own: the caller's ctx is alive
		toolhealth.ErrCircuitOpen,
		errors.New("something else"),
	} {
		v := toolhealth.Classify(ctx, err)
		fmt.Println(cmp.Or(v.Kind.String(), "-"), v.Outcome, v.Retryable)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	v := toolhealth.Classify(gone, &apiError{503})
	fmt.Println(v.Kind, v.Outcome, v.Retryable)
	// Output:
	// none success false
	// not_found rejected false
	// server_error failure true
	// timeout failure true
	// refused neutral false
	// unknown failure false
	// canceled neutral false
}

// A breaker alone, without a registry.
func ExampleBreaker() {
	config := toolhealth.DefaultBreakerConfig()
	config.FailureThreshold = 1
	breaker, err := toolhealth.NewBreaker(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	breaker.RecordFailure(toolhealth.KindTimeout)
	fmt.Println(breaker.State(), breaker.AllowRequest(), breaker.RetryAfter().Round(time.Second))
	breaker.Reset()
	fmt.Println(breaker.State(), breaker.AllowRequest())
	// Output:
	// open false 30s
	// closed true
}

// newExampleGuard returns a guard that does not wait between attempts, so that the
// examples are quick.
func newExampleGuard(change func(*toolhealth.GuardConfig), substitutes map[string][]string) *toolhealth.Guard {
	router, err := toolhealth.NewHealthRouter(substitutes)
	if err != nil {
		panic(err)
	}
	config := toolhealth.GuardConfig{Default: toolhealth.Policy{BackoffBase: toolhealth.Off}}
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
	fmt.Println(search.Call(ctx, "go"))
	fmt.Println(info.Served, info.Attempts)
	// Output:
	// 3 pages on go <nil>
	// search 2
}

// A substitute may take other arguments: the function adapts them.
func ExampleTool_Substitute() {
	guard := newExampleGuard(nil, nil)
	type archiveQuery struct {
		Words []string
		Limit int
	}
	archive := func(_ context.Context, q archiveQuery) (string, error) {
		return fmt.Sprintf("%d old pages on %s", q.Limit, strings.Join(q.Words, "+")), nil
	}
	search := toolhealth.Wrap(guard, "search", func(context.Context, string) (string, error) { return "", &apiError{503} }).
		Substitute("archive", func(ctx context.Context, query string) (string, error) {
			return archive(ctx, archiveQuery{strings.Fields(query), 2})
		})

	ctx, info := toolhealth.WithCallInfo(context.Background())
	fmt.Println(search.Call(ctx, "circuit breaker"))
	fmt.Println(info.Requested, info.Served, info.Attempts)

	_, err := search.Call(toolhealth.WithoutFallback(context.Background()), "circuit breaker")
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

// Some tools report errors inside a result. A check makes those errors count.
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
			return "yesterday's prices, because of " + failed.Verdict.Kind.String(), nil
		}))
	fmt.Println(out, err, info.Partial)
	// Output:
	// yesterday's prices, because of server_error <nil> true
}

// What a call has opened is read after its function has returned; the Flight says how
// that went. Here the answer is cut in the middle.
func ExampleBegin() {
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cut := io.MultiReader(strings.NewReader("first page"), iotest.ErrReader(io.ErrUnexpectedEOF))
	open := func(ctx context.Context, tool string) (io.Reader, error) { return cut, nil }

	body, flight, err := toolhealth.Begin(context.Background(), guard, "search", open)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(body)
	flight.Done(err)
	health, _ := guard.Registry().Health("search")
	fmt.Printf("%s, then a failure: %s\n", text, health.LastFailure)
	// Output: first page, then a failure: connection
}

// What the model reads: a safe text for what it cannot mend, the tool's own words for
// what it can.
func ExampleModelText() {
	guard := newExampleGuard(nil, nil)
	search := toolhealth.Wrap(guard, "search", func(_ context.Context, query string) (string, error) {
		if query == "" {
			return "", toolhealth.BadRequest(errors.New("the query is empty, give one word at least"))
		}
		return "", &apiError{503}
	})
	for _, query := range []string{"", "go"} {
		_, err := search.Call(context.Background(), query)
		text, ok := toolhealth.ModelText(err)
		fmt.Println(text, ok)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := search.Call(ctx, "go")
	_, ok := toolhealth.ModelText(err)
	fmt.Println(ok) // the caller is gone: end the run with err
	// Output:
	// the query is empty, give one word at least true
	// tool failed after 2 attempts: internal error of the tool true
	// false
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

// An engine with its own loop uses the retry policy alone. Next records the verdict,
// too.
func ExampleGuard_Next() {
	registry := toolhealth.NewRegistry()
	config := toolhealth.GuardConfig{
		Default: toolhealth.Policy{MaxAttempts: 5, Jitter: toolhealth.Off, BackoffBase: time.Millisecond},
	}
	guard, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: registry}, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	for attempt := 1; registry.AllowRequest("search"); attempt++ {
		v := toolhealth.ClassifyHTTP(503, nil) // the outcome of the engine's call
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

// A registry that is made inside a synctest bubble lives in the bubble's time, so
// tests of an agent need not wait for a cooldown. This is such a test.
func TestRegistry_LivesInTimeOfItsBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := toolhealth.NewRegistry()
		for range 3 {
			registry.RecordFailure("search", time.Second)
		}
		time.Sleep(30*time.Second - time.Nanosecond) // takes no time
		if registry.Available("search") {
			t.Error("available before the cooldown is over")
		}
		time.Sleep(time.Nanosecond)
		if !registry.AllowRequest("search") {
			t.Fatal("the cooldown is over, this should have been the probe")
		}
		registry.RecordSuccess("search", time.Second)
		if h, _ := registry.Health("search"); h.State != toolhealth.StateClosed {
			t.Errorf("the probe succeeded and the breaker is %v", h.State)
		}
	})
}

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

func wrapSearch(guard *toolhealth.Guard, primary, backup searchClient) (*toolhealth.Tool[string, string], error) {
	search := toolhealth.Wrap(guard, "search", primary.Search).
		Substitute("search_backup", backup.Search) // if its arguments differ, adapt them here
	return search, search.Validate() // every mistake in the wiring
}

func callForModel(ctx context.Context, search *toolhealth.Tool[string, string], query string) (string, error) {
	out, err := search.Call(ctx, query)
	if err == nil {
		return out, nil
	}
	if text, ok := toolhealth.ModelText(err); ok {
		return text, nil // the model goes on
	}
	return "", err // the caller is gone, or a person has to say yes: end the run
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

func newGuard(file io.Reader) (*toolhealth.Guard, error) {
	settings, err := toolhealth.Load(file)
	if err != nil {
		return nil, err // it names every field that is wrong
	}
	return toolhealth.New(settings)
}

// One file says everything. What is wrong in it is said at once.
func ExampleLoad() {
	settings, err := toolhealth.Load(strings.NewReader(`{
		"policy": {"timeout": "10s"},
		"tools": {
			"search": {"substitutes": ["archive"]},
			"mail": {"policy": {"side_effects": true}, "labels": {"team": "office"}}
		}
	}`))
	fmt.Println(err, settings.Tools["search"].Substitutes, settings.Tools["mail"].Policy.Timeout)

	_, err = toolhealth.Load(strings.NewReader(`{
		"policy": {"timeout": 10, "max_attempt": 3},
		"tools": {"search": {"substitutes": ["search"]}}
	}`))
	fmt.Println(err)
	// Output:
	// <nil> [archive] 10s
	// toolhealth: config: policy.timeout is 10, must be a duration such as "30s"
	// toolhealth: config: policy.max_attempt is unknown, must be one of max_attempts, timeout, max_duration, backoff_base, backoff_max, backoff_factor, jitter, max_wait, retry_budget, retry_refill, side_effects, detach
	// toolhealth: config: tools["search"].substitutes[0] is "search", must be another tool than the primary
}

// Other settings take effect at once, and nothing that is known is lost.
func ExampleGuard_SetSettings() {
	guard, err := toolhealth.New(toolhealth.Settings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	find := func(_ context.Context, tool string) (string, error) { return "a page of the " + tool, nil }
	guard.Registry().Isolate("search", "alice")
	_, err = toolhealth.Call(context.Background(), guard, "search", find)
	fmt.Println(err)

	settings := guard.Settings() // what is in force
	settings.Tools = map[string]toolhealth.ToolSettings{"search": {Substitutes: []string{"archive"}}}
	fmt.Println(guard.SetSettings(settings))
	fmt.Println(toolhealth.Call(context.Background(), guard, "search", find))
	// Output:
	// tool temporarily unavailable: taken out of service
	// <nil>
	// a page of the archive <nil>
}

// By name: for engines that cannot carry a permit from before a call to after it.
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
		"policy": {"timeout": "10s"},
		"tools": {"search": {"substitutes": ["search_backup"]}}
	}`
	guard, err := newGuard(strings.NewReader(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	// The first attempt fails, so does its retry, and the substitute answers.
	search, err := wrapSearch(guard, "search", "search_backup")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(search.Call(context.Background(), "go"))

	// Without a substitute that works, the error says why it stopped.
	guard, _ = newGuard(strings.NewReader(file))
	search, _ = wrapSearch(guard, "search", "search")
	_, err = search.Call(context.Background(), "go")
	failed, _ := errors.AsType[*toolhealth.ToolError](err)
	fmt.Println(failed.Reason)
	fmt.Println(failed)

	// This is what the model reads, by now of a breaker that is open.
	fmt.Println(callForModel(context.Background(), search, "go"))
	// Output:
	// search_backup for go <nil>
	// tool_failure:retry_exhausted
	// tool failed after 3 attempts: internal error of the tool
	// tool temporarily unavailable: circuit breaker open; retry after 30s <nil>
}

// A policy of one tool is whole in Go: start from a copy of the default. This mail is
// sent once, unless an attempt surely never reached the server.
func ExampleToolSettings() {
	settings := toolhealth.Settings{Policy: toolhealth.Policy{MaxDuration: 10 * time.Second}}
	mail := settings.Policy
	mail.SideEffects = true
	settings.Tools = map[string]toolhealth.ToolSettings{"mail": {Policy: &mail}}

	guard, err := toolhealth.New(settings)
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
	HTTP   int
	Header http.Header
}

func (e *vendorError) Error() string { return fmt.Sprint("vendor: ", e.HTTP) }

// The errors of well-known SDKs need no rule, because their fields are known. An error
// type that says it in another way needs one rule.
func Example_sdkErrors() {
	errNeedsApproval := errors.New("a person has to agree")
	classify := toolhealth.ErrorRules{Own: []toolhealth.Rule{ // for Gate.Classify
		toolhealth.RuleFor(func(e *vendorError) toolhealth.Verdict { return toolhealth.ClassifyHTTP(e.HTTP, e.Header) }),
		toolhealth.NeutralRule(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, errNeedsApproval) }),
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
	show("vendor, with it", classify(ctx, &vendorError{HTTP: 503, Header: http.Header{"Retry-After": {"7"}}}))
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

// A model calls an unavailable tool again if it is still offered: leave the tool out of
// the next request.
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
