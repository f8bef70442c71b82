package toolhealth_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
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

// The permit ties what comes after a call to what came before it. Errors are
// classified: a 404 is an answer, a 503 counts against the tool.
func ExampleGate() {
	ctx := context.Background()
	gate := &toolhealth.Gate{Registry: toolhealth.NewRegistry()}

	call := func(tool string, fn func(context.Context) error) error {
		permit, err := gate.Allow(ctx, tool)
		if err != nil {
			return err // nothing ran; the text is fit for the model
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

	// What to offer to the model, and what to leave out for now.
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
		summary.Tools[i].Since = time.Time{}
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
	//       "max_seconds": 1
	//     }
	//   ]
	// }
}

// All yields the tools in order; any method may be called meanwhile.
func ExampleRegistry_All() {
	registry := toolhealth.NewRegistry()
	registry.RecordSuccess("weather", time.Second)
	for range 3 {
		registry.RecordFailure("search", time.Second)
	}
	for tool, health := range registry.All() {
		fmt.Printf("%-8s %-10s %-7s %.2f\n", tool, health.Status, health.State, health.Score)
		if !health.Available {
			registry.Reset(tool)
		}
	}
	fmt.Println(registry.Available("search"))
	// Output:
	// search   unhealthy  open    0.24
	// weather  healthy    closed  1.00
	// true
}

// A configuration for single tools, in Go and in JSON.
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

	// The same from a file: what is absent keeps its default.
	var loaded toolhealth.Config
	err = json.Unmarshal([]byte(`{"tools": {"crawler": {"failure_threshold": 10}}}`), &loaded)
	fmt.Println(err, loaded.Tools["crawler"] == patient, loaded.MaxTools)

	// A configuration that cannot be meant says so, field by field.
	loaded.Breaker.RecoveryDuration = -time.Second
	fmt.Println(registry.SetConfig(loaded))
	// Output:
	// true false
	// <nil> true 10000
	// toolhealth: config: breaker.recovery_duration is -1s, must be between 0s and 87600h0m0s
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

// errPending and quotaError are errors that only their owner understands.
var errPending = errors.New("waiting for approval")

type quotaError struct{ resets time.Duration }

func (e *quotaError) Error() string { return "quota used up" }

// Rules of one's own come before the built-in ones.
func ExampleErrorRules() {
	classify := toolhealth.ErrorRules{Own: []toolhealth.Rule{
		toolhealth.For(func(e *quotaError) toolhealth.Verdict {
			return toolhealth.Verdict{
				Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited,
				Retryable: true, RetryAfter: e.resets,
			}
		}),
		toolhealth.Neutral(toolhealth.KindDenied, func(err error) bool { return errors.Is(err, errPending) }),
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
	// tool temporarily unavailable: rate limited; retry after 90s
}

// The same error may be anybody's fault. The place that knows says whose.
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

// What the default says about some errors.
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

// A registry that is made inside a synctest bubble lives in the bubble's time, so
// tests of an agent need not wait for a cooldown. This is such a test.
func TestARegistryLivesInTheTimeOfTheBubbleItWasMadeIn(t *testing.T) {
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
