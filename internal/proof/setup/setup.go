// Package setup makes what the proofs test: registries, routers and guards that a test
// can predict.
package setup

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Registry returns a registry with the default configuration as changed by change.
func Registry(t testing.TB, change func(*toolhealth.Config)) *toolhealth.Registry {
	t.Helper()
	c := toolhealth.DefaultConfig()
	if change != nil {
		change(&c)
	}
	r, err := toolhealth.NewRegistryWithConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Router returns a router for these substitutes.
func Router(t testing.TB, substitutes map[string][]string) *toolhealth.HealthRouter {
	t.Helper()
	r, err := toolhealth.NewHealthRouter(substitutes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Guard returns a guard on the registry with the default configuration as changed by
// change. Waits have no jitter and attempts no time limit.
func Guard(t testing.TB, r *toolhealth.Registry, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	return GuardOver(t, &toolhealth.Gate{Registry: r}, change)
}

// GuardOver is Guard for a gate with a router or a classifier.
func GuardOver(t testing.TB, gate *toolhealth.Gate, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	c := toolhealth.GuardConfig{Default: toolhealth.Policy{Jitter: toolhealth.Off, Timeout: toolhealth.Off}}
	if change != nil {
		change(&c)
	}
	g, err := toolhealth.NewGuard(gate, c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Fail records n failures by name.
func Fail(r *toolhealth.Registry, tool string, n int) {
	for range n {
		r.RecordFailure(tool, time.Millisecond)
	}
}

// Health returns the health of a tool, which must have an entry.
func Health(t testing.TB, r *toolhealth.Registry, tool string) toolhealth.ToolHealth {
	t.Helper()
	h, ok := r.Health(tool)
	if !ok {
		t.Fatalf("no entry for %q", tool)
	}
	return h
}

// EventLog records "from>to cause epoch" of each tool.
type EventLog struct {
	mu  sync.Mutex
	all map[string][]string
}

// RecordEvents returns a log of all transitions from now on.
func RecordEvents(r *toolhealth.Registry) *EventLog {
	l := &EventLog{all: map[string][]string{}}
	r.OnTransition(func(e toolhealth.Transition) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[e.Tool] = append(l.all[e.Tool], fmt.Sprintf("%s>%s %s %d", e.From, e.To, e.Cause, e.Epoch))
	})
	return l
}

// Of returns what was recorded of a tool, the oldest first.
func (l *EventLog) Of(tool string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all[tool])
}
