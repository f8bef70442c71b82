package toolhealth

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guardOn returns a guard on the registry, under the defaults as change left
// them. There is no jitter, so that waits can be told in advance.
func guardOn(t testing.TB, r *Registry, change func(*GuardConfig)) *Guard {
	t.Helper()
	return guardOverGate(t, &Gate{Registry: r}, change)
}

func guardOverGate(t testing.TB, gate *Gate, change func(*GuardConfig)) *Guard {
	t.Helper()
	c := DefaultGuardConfig()
	c.Default.Jitter = 0
	if change != nil {
		change(&c)
	}
	g, err := NewGuard(gate, c)
	require.NoError(t, err)
	return g
}

// unheard is an observer that does nothing: with one, a call goes the long way.
func unheard(context.Context, Event) {}

// guardWithBackups returns a guard whose tool "a" has these substitutes.
func guardWithBackups(t testing.TB, r *Registry, change func(*GuardConfig), substitutes ...string) *Guard {
	t.Helper()
	router, err := NewHealthRouter(map[string][]string{"a": substitutes})
	require.NoError(t, err)
	return guardOverGate(t, &Gate{Registry: r, Router: router}, change)
}

// patient is a registry that does not trip, so that a test of retries sees only
// those.
func patient(t testing.TB) *Registry {
	t.Helper()
	return registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1_000_000 })
}

// statusErr is an error as an SDK has it.
type statusErr int

func (e statusErr) Error() string   { return "status " + strconv.Itoa(int(e)) + " from db-7.internal" }
func (e statusErr) StatusCode() int { return int(e) }

var (
	errUnsent = WithVerdict(errors.New("refused by 10.0.0.7"), vUnreachable)
	errBusy   = statusErr(503)
)

func askedToWait(d time.Duration) error {
	return WithVerdict(errors.New("429"), Verdict{
		Outcome: OutcomeThrottled, Kind: KindRateLimited, Retryable: true, RetryAfter: d,
	})
}

// actor is a tool function that plays a list of errors; after them it succeeds.
// It notes when it ran and as which tool.
type actor struct {
	mu    sync.Mutex
	errs  []error
	times []time.Time
	names []string
}

func plays(errs ...error) *actor { return &actor{errs: errs} }

// failing is an actor whose list does not end.
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

// gaps are the times between the runs.
func (a *actor) gaps() (gaps []time.Duration) {
	for i := range a.times[1:] {
		gaps = append(gaps, a.times[i+1].Sub(a.times[i]))
	}
	return gaps
}

// toolError returns err as the *ToolError that it has to be.
func toolError(t testing.TB, err error) *ToolError {
	t.Helper()
	var e *ToolError
	require.ErrorAs(t, err, &e)
	return e
}
