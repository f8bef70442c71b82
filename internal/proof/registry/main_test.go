package registry_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registryWith returns a registry under the defaults with these changes.
func registryWith(t testing.TB, change func(*toolhealth.Config)) *toolhealth.Registry {
	t.Helper()
	c := toolhealth.DefaultConfig()
	change(&c)
	r, err := toolhealth.NewRegistryWithConfig(c)
	require.NoError(t, err)
	return r
}

func routerWith(t testing.TB, substitutes map[string][]string) *toolhealth.HealthRouter {
	t.Helper()
	router, err := toolhealth.NewHealthRouter(substitutes)
	require.NoError(t, err)
	return router
}

// guardOn returns a guard with these changes. Its waits have no jitter and its attempts
// no time limit.
func guardOn(t testing.TB, r *toolhealth.Registry, change func(*toolhealth.GuardConfig)) *toolhealth.Guard {
	t.Helper()
	c := toolhealth.GuardConfig{Default: toolhealth.Policy{Jitter: toolhealth.Off, Timeout: toolhealth.Off}}
	if change != nil {
		change(&c)
	}
	g, err := toolhealth.NewGuard(&toolhealth.Gate{Registry: r}, c)
	require.NoError(t, err)
	return g
}

func failTimes(r *toolhealth.Registry, tool string, n int) {
	for range n {
		r.RecordFailure(tool, 0)
	}
}

func healthOf(t testing.TB, r *toolhealth.Registry, tool string) toolhealth.ToolHealth {
	t.Helper()
	h, ok := r.Health(tool)
	require.True(t, ok, "%s has no entry", tool)
	return h
}

func namesOf(r *toolhealth.Registry) (names []string) {
	for name := range r.All() {
		names = append(names, name)
	}
	return names
}

// endsGoroutine runs f, which ends its goroutine.
func endsGoroutine(f func()) {
	var group sync.WaitGroup
	group.Go(f)
	group.Wait()
}
