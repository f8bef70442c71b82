package guard_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// registryWith returns a registry with the default configuration as changed by
// change.
func registryWith(t testing.TB, change func(*toolhealth.Config)) *toolhealth.Registry {
	t.Helper()
	c := toolhealth.DefaultConfig()
	if change != nil {
		change(&c)
	}
	r, err := toolhealth.NewRegistryWithConfig(c)
	require.NoError(t, err)
	return r
}

// patient returns a registry whose breakers do not open, so that a test of retries
// sees nothing but retries.
func patient(t testing.TB) *toolhealth.Registry {
	t.Helper()
	return registryWith(t, func(c *toolhealth.Config) { c.Breaker.FailureThreshold = 1_000_000 })
}

// failTimes records n failures by name.
func failTimes(r *toolhealth.Registry, tool string, n int) {
	for range n {
		r.RecordFailure(tool, time.Millisecond)
	}
}

// healthOf returns the health of a tool, which must have an entry.
func healthOf(t testing.TB, r *toolhealth.Registry, tool string) toolhealth.ToolHealth {
	t.Helper()
	h, ok := r.Health(tool)
	require.True(t, ok, "no entry for %q", tool)
	return h
}

// guardOn returns a guard on the registry with the default configuration as
// changed by change. Waits have no jitter and attempts no time limit, so that a test
// can predict them.
func guardOn(t testing.TB, r *toolhealth.Registry, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	return guardOverGate(t, &toolhealth.Gate{Registry: r}, change)
}

// guardOverGate is guardOn for a gate with a router or a classifier.
func guardOverGate(t testing.TB, gate *toolhealth.Gate, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	c := toolhealth.GuardConfig{Default: toolhealth.Policy{Jitter: toolhealth.Off, Timeout: toolhealth.Off}}
	if change != nil {
		change(&c)
	}
	g, err := toolhealth.NewGuard(gate, c)
	require.NoError(t, err)
	return g
}

// guardWithBackups is guardOn with substitutes for the tool "a".
func guardWithBackups(t testing.TB, r *toolhealth.Registry, change func(*toolhealth.GuardConfig), substitutes ...string) *toolhealth.Guard {
	t.Helper()
	router, err := toolhealth.NewHealthRouter(map[string][]string{"a": substitutes})
	require.NoError(t, err)
	return guardOverGate(t, &toolhealth.Gate{Registry: r, Router: router}, change)
}

// bare returns p with every rule switched off that it does not set.
func bare(p toolhealth.Policy) toolhealth.Policy {
	for _, n := range []*int{&p.MaxAttempts, &p.RetryBudget} {
		if *n == 0 {
			*n = toolhealth.Off
		}
	}
	for _, d := range []*time.Duration{&p.Timeout, &p.BackoffBase, &p.BackoffMax, &p.MaxWait, &p.RetryRefill} {
		if *d == 0 {
			*d = toolhealth.Off
		}
	}
	for _, f := range []*float64{&p.BackoffFactor, &p.Jitter} {
		if *f == 0 {
			*f = toolhealth.Off
		}
	}
	return p
}

// ignoreEvents is an observer that does nothing.
func ignoreEvents(context.Context, toolhealth.Event) {}

// Verdicts for the errors of tools and for Next.
var (
	serverError   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError}
	retryable     = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindServerError, Retryable: true}
	unreachable   = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindConnection, Retryable: true, NotSent: true}
	unknown       = toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindUnknown}
	invalid       = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest}
	collided      = toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindConflict, Retryable: true}
	denied        = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindDenied}
	hostExhausted = toolhealth.Verdict{Outcome: toolhealth.OutcomeNeutral, Kind: toolhealth.KindNotDispatched, Retryable: true}
)

// statusErr is an error of an HTTP client: it has a status, and a text that is not
// for the model.
type statusErr int

func (e statusErr) Error() string   { return "status " + strconv.Itoa(int(e)) + " from db-7.internal" }
func (e statusErr) StatusCode() int { return int(e) }

var (
	errUnsent = toolhealth.WithVerdict(errors.New("refused by 10.0.0.7"), unreachable)
	errBusy   = statusErr(503)
	errBroken = errors.New("broken")
)

// throttledFor returns the error of a tool that is rate limited and asks for this
// wait.
func throttledFor(wait time.Duration) error {
	return toolhealth.WithVerdict(errors.New("429"), toolhealth.Verdict{
		Outcome: toolhealth.OutcomeThrottled, Kind: toolhealth.KindRateLimited, Retryable: true, RetryAfter: wait,
	})
}

// actor is a tool function that returns a list of errors, one a run, and succeeds
// after them. It records when it ran and as which tool.
type actor struct {
	mu    sync.Mutex
	errs  []error
	times []time.Time
	names []string
}

// plays returns an actor that returns these errors and then succeeds.
func plays(errs ...error) *actor { return &actor{errs: errs} }

// failing returns an actor that returns err in every run.
func failing(err error) *actor {
	a := plays()
	for range 100 {
		a.errs = append(a.errs, err)
	}
	return a
}

func (a *actor) run(_ context.Context, tool string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times, a.names = append(a.times, time.Now()), append(a.names, tool)
	if n := len(a.times); n <= len(a.errs) && a.errs[n-1] != nil {
		return "", a.errs[n-1]
	}
	return "answer of " + tool, nil
}

func (a *actor) runs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.times)
}

// gaps returns the times between the runs.
func (a *actor) gaps() (gaps []time.Duration) {
	for i := range a.times[1:] {
		gaps = append(gaps, a.times[i+1].Sub(a.times[i]))
	}
	return gaps
}

// toolFunc is a tool function.
type toolFunc = func(context.Context, string) (string, error)

// obeys returns a tool function that takes this long and returns early when its ctx
// is done.
func obeys(d time.Duration) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) {
		select {
		case <-time.After(d):
			return "late", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// ignores returns a tool function that takes this long and ignores its ctx.
func ignores(d time.Duration) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) {
		time.Sleep(d)
		return "late", nil
	}
}

// toolError returns err as a *ToolError, or fails the test.
func toolError(t testing.TB, err error) *toolhealth.ToolError {
	t.Helper()
	var e *toolhealth.ToolError
	require.ErrorAs(t, err, &e)
	return e
}

// retriesLeft takes all tokens out of the tool's budget and returns how many there
// were. The tool's breaker must be closed. A neutral verdict takes a token and
// changes nothing else.
func retriesLeft(t testing.TB, g *toolhealth.Guard, tool string) (left int) {
	t.Helper()
	d := g.Next(tool, 1, hostExhausted)
	for ; d.Reason == toolhealth.RetryAllowed; d = g.Next(tool, 1, hostExhausted) {
		left++
	}
	assert.Equal(t, toolhealth.StopRetryBudgetExhausted, d.Reason)
	return left
}

// takeTokens takes n tokens out of the tool's budget.
func takeTokens(t testing.TB, g *toolhealth.Guard, tool string, n int) {
	t.Helper()
	for range n {
		require.Equal(t, toolhealth.RetryAllowed, g.Next(tool, 1, hostExhausted).Reason)
	}
}

// giveTenths puts n tenths of a token into the tool's budget, which n successes do.
func giveTenths(g *toolhealth.Guard, tool string, n int) {
	for range n {
		g.Next(tool, 1, toolhealth.Verdict{})
	}
}

// endsGoroutine runs f on a goroutine of its own, which f may end.
func endsGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
