package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/machine"
	"github.com/toolhealth/toolhealth/internal/proof/tooltest"
)

// noContext is nil, which some callers pass.
var noContext context.Context

// registryWith returns a registry with the default configuration as changed by
// change.
func registryWith(t testing.TB, change func(*Config)) *Registry {
	t.Helper()
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	r, err := NewRegistryWithConfig(c)
	require.NoError(t, err)
	return r
}

// patient returns a registry whose breakers do not open, so that a test of retries
// sees nothing but retries.
func patient(t testing.TB) *Registry {
	t.Helper()
	return registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1_000_000 })
}

func newBreaker(t testing.TB, change func(*BreakerConfig)) *Breaker {
	t.Helper()
	c := DefaultBreakerConfig()
	if change != nil {
		change(&c)
	}
	b, err := NewBreaker(c)
	require.NoError(t, err)
	return b
}

func routerWith(t testing.TB, substitutes map[string][]string) *HealthRouter {
	t.Helper()
	r, err := NewHealthRouter(substitutes)
	require.NoError(t, err)
	return r
}

// failTimes records n failures by name.
func failTimes(r *Registry, tool string, n int) {
	for range n {
		r.RecordFailure(tool, time.Millisecond)
	}
}

// healthOf returns the health of a tool, which must have an entry.
func healthOf(t testing.TB, r *Registry, tool string) ToolHealth {
	t.Helper()
	h, ok := r.Health(tool)
	require.True(t, ok, "no entry for %q", tool)
	return h
}

// namesOf returns the names of all tools in order.
func namesOf(r *Registry) []string {
	var names []string
	for name := range r.All() {
		names = append(names, name)
	}
	return names
}

// tell runs an event on the machine of e.
func tell(e *entry, ev machine.Event, now int64) (a machine.Answer, ok bool) {
	ok = e.apply(&ev, now, &e.stats, &a)
	return a, ok
}

// eventLog records "from>to cause epoch" for each tool.
type eventLog struct {
	mu  sync.Mutex
	all map[string][]string
}

// recordEvents returns a log of all transitions from now on.
func recordEvents(r *Registry) *eventLog {
	l := &eventLog{all: map[string][]string{}}
	r.OnTransition(func(e Transition) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[e.Tool] = append(l.all[e.Tool], fmt.Sprintf("%s>%s %s %d", e.From, e.To, e.Cause, e.Epoch))
	})
	return l
}

func (l *eventLog) of(tool string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[tool])
}

// What tooltest has, by short names.
type statusErr = tooltest.StatusError

var (
	plays         = tooltest.Plays
	failing       = tooltest.Failing
	endsGoroutine = tooltest.EndsGoroutine
)

// guardOn returns a guard on the registry with the default configuration as
// changed by change. Waits have no jitter and attempts no time limit, so that a test
// can predict them.
func guardOn(t testing.TB, r *Registry, change func(*GuardConfig)) *Guard {
	t.Helper()
	return guardOverGate(t, &Gate{Registry: r}, change)
}

// guardOverGate is guardOn for a gate with a router or a classifier.
func guardOverGate(t testing.TB, gate *Gate, change func(*GuardConfig)) *Guard {
	t.Helper()
	c := GuardConfig{Default: Policy{Jitter: Off, Timeout: Off}}
	if change != nil {
		change(&c)
	}
	g, err := NewGuard(gate, c)
	require.NoError(t, err)
	return g
}

// guardWithBackups is guardOn with substitutes for the tool "a".
func guardWithBackups(t testing.TB, r *Registry, change func(*GuardConfig), substitutes ...string) *Guard {
	t.Helper()
	return guardOverGate(t, &Gate{Registry: r, Router: routerWith(t, map[string][]string{"a": substitutes})}, change)
}

// bare returns p with every rule switched off that it does not set.
func bare(p Policy) Policy {
	for _, n := range []*int{&p.MaxAttempts, &p.RetryBudget} {
		if *n == 0 {
			*n = Off
		}
	}
	for _, d := range []*time.Duration{&p.Timeout, &p.MaxDuration, &p.BackoffBase, &p.BackoffMax, &p.MaxWait, &p.RetryRefill} {
		if *d == 0 {
			*d = Off
		}
	}
	for _, f := range []*float64{&p.BackoffFactor, &p.Jitter} {
		if *f == 0 {
			*f = Off
		}
	}
	return p
}

// unheard is an observer that does nothing.
func unheard(context.Context, Event) {}

var (
	errBroken = errors.New("broken")
	errBusy   = statusErr(503)
)

// toolError returns err as a *ToolError, or fails the test.
func toolError(t testing.TB, err error) *ToolError {
	t.Helper()
	var e *ToolError
	require.ErrorAs(t, err, &e)
	return e
}
