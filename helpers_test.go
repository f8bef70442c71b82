package toolhealth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/machine"
)

// registryWith returns a registry under the defaults as change left them.
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

// failTimes records n failures by name.
func failTimes(r *Registry, tool string, n int) {
	for range n {
		r.RecordFailure(tool, time.Millisecond)
	}
}

// healthOf returns the health of a tool that must have an entry.
func healthOf(t testing.TB, r *Registry, tool string) ToolHealth {
	t.Helper()
	h, ok := r.Health(tool)
	require.True(t, ok, "no entry for %q", tool)
	return h
}

// tell runs an event on the machine of e.
func tell(e *entry, ev machine.Event, now int64) (a machine.Answer, ok bool) {
	ok = e.apply(&ev, now, &e.stats, &a)
	return a, ok
}
