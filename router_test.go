package toolhealth

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func routerWith(t testing.TB, substitutes map[string][]string) *HealthRouter {
	t.Helper()
	r, err := NewHealthRouter(substitutes)
	require.NoError(t, err)
	return r
}

func TestARouterTakesTheFirstHealthySubstitute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := routerWith(t, map[string][]string{"a": {"b", "c", "d"}, "b": {"z"}})
		for _, c := range []struct {
			open, weak string // tools whose breaker is open; unhealthy but closed ones
			want       string
			available  bool
		}{
			{"", "", "a", true},
			{"", "a", "a", true}, // the score blocks nobody
			{"a", "", "b", true},
			{"a", "b", "c", true},
			{"ab", "", "c", true},
			{"a", "bc", "d", true},
			{"a", "bcd", "b", true},
			{"ab", "cd", "c", true},
			{"abc", "d", "d", true},
			{"abcd", "", "a", false}, // one hop: not z
		} {
			registry := registryWith(t, func(k *Config) { k.Breaker.FailureThreshold = 4 })
			for _, tool := range strings.Split(c.open, "") {
				failTimes(registry, tool, 4)
			}
			for _, tool := range strings.Split(c.weak, "") {
				failTimes(registry, tool, 3)
				require.Equal(t, Unhealthy, registry.HealthStatus(tool))
			}
			name, available := router.Resolve("a", registry)
			assert.Equal(t, c.want, name, "%+v", c)
			assert.Equal(t, c.available, available, "%+v", c)

			// Gate.Allow chooses the same and takes nothing else.
			gate := &Gate{Registry: registry, Router: router}
			permit, err := gate.Allow(t.Context(), "a")
			assert.Equal(t, c.available, err == nil)
			if err == nil {
				assert.Equal(t, c.want, permit.Tool())
				assert.False(t, permit.Probe())
				assert.True(t, permit.Tracked())
			}
			for _, tool := range []string{"a", "b", "c", "d"} {
				if h, ok := registry.Health(tool); ok {
					want := uint64(0)
					if c.available && tool == c.want {
						want = 1
					}
					assert.Equal(t, want, h.InFlight, "%s of %+v", tool, c)
				}
			}
		}

		// A recovered primary gets its probe back at once, a sick substitute does
		// not keep it.
		registry := NewRegistry()
		failTimes(registry, "a", 3)
		failTimes(registry, "b", 3)
		time.Sleep(30 * time.Second)
		name, available := router.Resolve("a", registry)
		assert.Equal(t, "a", name)
		assert.True(t, available)
		assert.Equal(t, StateOpen, healthOf(t, registry, "a").State, "asking takes no probe")
	})
}

func TestARouterReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := NewHealthRouter(map[string][]string{
		"a": {"b", "", "a", "c", "b"}, "": {"x"}, "b": {"a"},
	})
	got := configProblems(t, err)
	assert.Equal(t, []ConfigError{
		{`substitutes[""]`, "a key without a name", "the name of a tool"},
		{`substitutes["a"][1]`, `""`, "the name of a tool"},
		{`substitutes["a"][2]`, `"a"`, "another tool than the primary"},
		{`substitutes["a"][4]`, `"b"`, "listed once"},
	}, got)
	router, err := NewHealthRouter(map[string][]string{"": {""}})
	assert.Nil(t, router)
	assert.Len(t, configProblems(t, err), 2)
	_, err = NewHealthRouter(map[string][]string{strings.Repeat("x", 1<<20): {""}})
	assert.Less(t, len(err.Error()), 300)
}

func TestARouterIsACopyThatNobodyCanChange(t *testing.T) {
	in := map[string][]string{"a": {"b", "c"}}
	router := routerWith(t, in)
	in["a"][0] = "evil"
	in["x"] = []string{"y"}
	got := router.Substitutes("a")
	assert.Equal(t, []string{"b", "c"}, got)
	got[0] = "evil"
	assert.Equal(t, []string{"b", "c"}, router.Substitutes("a"))
	assert.Nil(t, router.Substitutes("x"))
}

func TestANilOrZeroRouterKnowsNoSubstitutes(t *testing.T) {
	registry := NewRegistry()
	failTimes(registry, "a", 3)
	for _, router := range []*HealthRouter{nil, {}} {
		assert.Nil(t, router.Substitutes("a"))
		name, available := router.Resolve("a", registry)
		assert.Equal(t, "a", name)
		assert.False(t, available)
		name, available = router.Resolve("b", registry)
		assert.Equal(t, "b", name)
		assert.True(t, available)
		_, available = router.Resolve("a", nil)
		assert.True(t, available, "a nil registry refuses nobody")
	}
}
