package toolhealth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/race"
)

func TestRegistry_FailingToolIsRefusedByName(t *testing.T) {
	r := NewRegistry()
	for range 3 {
		assert.True(t, r.AllowRequest("search"))
		r.RecordFailure("search", time.Millisecond)
	}
	assert.False(t, r.AllowRequest("search"))
	assert.False(t, r.Available("search"))
	assert.True(t, r.AllowRequest("weather"))
	assert.Equal(t, Unhealthy, r.HealthStatus("search"))
}

func TestRegistry_ReadingCreatesNoEntry(t *testing.T) {
	r := NewRegistry()
	assert.True(t, r.Available("a"))
	assert.Equal(t, Healthy, r.HealthStatus("a"))
	_, ok := r.Health("a")
	assert.False(t, ok)
	assert.False(t, r.Reset("a", ""))
	assert.False(t, r.Remove("a"))
	for range r.All() {
		t.Error("nothing to see")
	}
	assert.Zero(t, r.Len())
	assert.Empty(t, r.HealthSummary().Tools)
}

func TestRegistry_EveryReportCreatesEntry(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	r.AllowRequest("a")
	r.RecordSuccess("b", 0)
	r.RecordFailure("c", 0)
	r.Record("d", Verdict{Outcome: OutcomeNeutral}, 0)
	_, err := g.Allow(t.Context(), "e")
	assert.NoError(t, err)
	assert.NoError(t, r.Register("f", ToolOptions{}))
	assert.Equal(t, 6, r.Len())
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, namesOf(r))
}

func TestRegistry_NilAndZeroAdmitAllAndKeepNothing(t *testing.T) {
	for _, r := range []*Registry{nil, {}} {
		assert.True(t, r.AllowRequest(""))
		assert.True(t, r.Available("a"))
		failTimes(r, "a", 5)
		r.RecordSuccess("a", 0)
		r.Record("a", Verdict{}, 0)
		assert.True(t, r.AllowRequest("a"))
		assert.NoError(t, r.Register("a", ToolOptions{}))
		assert.False(t, r.Remove("a"))
		assert.False(t, r.Reset("a", ""))
		assert.False(t, r.Isolate("a", ""))
		assert.Zero(t, r.Len())
		assert.Equal(t, Healthy, r.HealthStatus("a"))
		h, ok := r.Health("a")
		assert.Equal(t, ToolHealth{}, h)
		assert.False(t, ok)
		assert.Equal(t, Summary{}, r.HealthSummary())
		assert.Empty(t, namesOf(r))
		assert.Equal(t, Config{}, r.Config())
		r.OnTransition(func(Transition) {})()
		permit, err := (&Gate{Registry: r}).Allow(t.Context(), "a")
		assert.NoError(t, err)
		assert.Equal(t, "a", permit.Tool())
		assert.False(t, permit.Tracked())
		permit.Done(t.Context(), errors.New("x"))
	}
	assert.NoError(t, (*Registry)(nil).SetConfig(DefaultConfig()))
	assert.EqualError(t, new(Registry).SetConfig(DefaultConfig()),
		"toolhealth: SetConfig: the registry was not made by NewRegistry")
	assert.Error(t, new(Registry).SetConfig(Config{MaxTools: -2}))
}

func TestRegistry_EmptyNameIsRefused(t *testing.T) {
	r := NewRegistry()
	assert.False(t, r.AllowRequest(""))
	assert.False(t, r.Available(""))
	r.RecordSuccess("", 0)
	r.RecordFailure("", 0)
	assert.Zero(t, r.Len())
	assert.EqualError(t, r.Register("", ToolOptions{}), `toolhealth: Register: tool is "", must be a name`)
	_, err := (&Gate{Registry: r}).Allow(t.Context(), "")
	assert.ErrorIs(t, err, ErrUnknownTool)
	assert.Zero(t, r.HealthSummary().Untracked)
}

func TestRegistry_NamesAreComparedByteByByte(t *testing.T) {
	r := NewRegistry()
	failTimes(r, "Search", 3)
	for _, other := range []string{"search", "Search ", "Search\x00", "Sea\u0072ch\u200b"} {
		assert.True(t, r.Available(other))
	}
}

func TestRegistry_NameIsCopied(t *testing.T) {
	r := NewRegistry()
	text := []byte("search and a very long rest")
	r.AllowRequest(string(text[:6]))
	text[0] = 'X'
	assert.True(t, slices.Equal([]string{"search"}, namesOf(r)))
}

func TestRegistry_LongestIdleEntryMakesRoom(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
	for _, name := range []string{"a", "b", "c"} {
		r.AllowRequest(name)
	}
	r.AllowRequest("d") // all were used, so the oldest entry goes first
	assert.Equal(t, []string{"b", "c", "d"}, namesOf(r))
	r.AllowRequest("b") // a second chance
	r.AllowRequest("e")
	assert.Equal(t, []string{"b", "d", "e"}, namesOf(r))
	r.RecordSuccess("d", 0)
	r.AllowRequest("f")
	assert.Equal(t, []string{"d", "e", "f"}, namesOf(r), "b had its second chance")
	s := r.HealthSummary()
	assert.Equal(t, uint64(3), s.Evicted)
	assert.Equal(t, uint64(0), s.Untracked)
	assert.Equal(t, 3, r.Len())
}

func TestRegistry_EveryUseGivesSecondChance(t *testing.T) {
	for name, use := range map[string]func(*Registry, *Gate){
		"AllowRequest":  func(r *Registry, _ *Gate) { r.AllowRequest("a") },
		"RecordSuccess": func(r *Registry, _ *Gate) { r.RecordSuccess("a", 0) },
		"Record":        func(r *Registry, _ *Gate) { r.Record("a", Verdict{Outcome: OutcomeNeutral}, 0) },
		"Allow": func(_ *Registry, g *Gate) {
			permit, _ := g.Allow(noContext, "a")
			permit.Release()
		},
		"Allow after a throttle": func(r *Registry, g *Gate) {
			r.Record("a", Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Second}, 0)
			time.Sleep(time.Second)
			r.table.Get("a").Value.used.Store(false)
			permit, _ := g.Allow(noContext, "a")
			permit.Release()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
			for _, tool := range []string{"z", "a", "b", "c"} { // z leaves; a and b have used their second chance
				r.AllowRequest(tool)
			}
			use(r, &Gate{Registry: r})
			r.AllowRequest("d")
			assert.Equal(t, []string{"a", "c", "d"}, namesOf(r), name)
		})
	}
	r := registryWith(t, func(c *Config) { c.MaxTools = 2 })
	for _, tool := range []string{"a", "b", "c", "b", "d"} {
		r.AllowRequest(tool)
	}
	assert.Equal(t, []string{"b", "d"}, namesOf(r), "the call that created an entry is not a second use")
}

func TestRegistry_ToolInTroubleOrUseIsNotEvicted(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 5 })
	g := &Gate{Registry: r}
	failTimes(r, "open", 3)
	failTimes(r, "streak", 1)
	r.Record("throttled", Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute}, 0)
	permit, err := g.Allow(t.Context(), "used")
	require.NoError(t, err)
	require.NoError(t, r.Register("registered", ToolOptions{}))
	all := []string{"open", "registered", "streak", "throttled", "used"}
	for i := range 100 {
		assert.True(t, r.AllowRequest(fmt.Sprint("new", i)))
		r.RecordSuccess(fmt.Sprint("new", i), 0)
	}
	assert.Equal(t, all, namesOf(r))
	s := r.HealthSummary()
	assert.Equal(t, uint64(100), s.Untracked, "a report without an entry is not a call")
	assert.Equal(t, uint64(0), s.Evicted)

	fresh, err := g.Allow(t.Context(), "fresh")
	assert.NoError(t, err)
	assert.False(t, fresh.Tracked())
	assert.Equal(t, "fresh", fresh.Tool())
	fresh.Done(t.Context(), errors.New("x"))
	assert.True(t, permit.Tracked())
	assert.Equal(t, uint64(101), r.HealthSummary().Untracked)
}

func TestRegistry_NewNameLooksAtNoMoreThanItsShare(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = maxLooks + 1 })
	for i := range maxLooks {
		failTimes(r, fmt.Sprint("streak", i), 1)
	}
	r.RecordSuccess("free", 0)
	r.AllowRequest("new")
	assert.NotContains(t, namesOf(r), "new", "what may go is further back")
	r.AllowRequest("new")
	assert.Contains(t, namesOf(r), "new")
	assert.NotContains(t, namesOf(r), "free")
}

func TestRegistry_ParkedEntryReturnsWhenNothingHoldsIt(t *testing.T) {
	for name, c := range map[string]struct {
		hold    func(*Registry, *Gate) func()
		wait    time.Duration
		release bool
	}{
		"a streak that a success ends": {hold: func(r *Registry, _ *Gate) func() {
			failTimes(r, "held", 1)
			return func() { r.RecordSuccess("held", 0) }
		}},
		"a streak that a rejection ends": {hold: func(r *Registry, _ *Gate) func() {
			failTimes(r, "held", 1)
			return func() { r.Record("held", Verdict{Outcome: OutcomeRejected}, 0) }
		}},
		"an open breaker that an operator resets": {hold: func(r *Registry, _ *Gate) func() {
			failTimes(r, "held", 3)
			return func() { r.Reset("held", "") }
		}},
		"an open breaker that a config closes": {hold: func(r *Registry, _ *Gate) func() {
			failTimes(r, "held", 3)
			return func() {
				c := r.Config()
				c.Breaker.FailureThreshold = 0
				_ = r.SetConfig(c)
			}
		}},
		"an isolation": {hold: func(r *Registry, _ *Gate) func() {
			r.AllowRequest("held")
			r.Isolate("held", "")
			return func() { r.Reset("held", "") }
		}},
		"a probe that succeeds": {wait: 30 * time.Second, hold: func(r *Registry, g *Gate) func() {
			failTimes(r, "held", 3)
			return func() {
				permit, _ := g.Allow(noContext, "held")
				permit.Done(noContext, nil)
			}
		}},
		"a permit that is done": {hold: func(_ *Registry, g *Gate) func() {
			permit, _ := g.Allow(noContext, "held")
			return func() { permit.Done(noContext, nil) }
		}},
		"a permit that is settled": {hold: func(_ *Registry, g *Gate) func() {
			permit, _ := g.Allow(noContext, "held")
			return func() { permit.Settle(Verdict{Outcome: OutcomeNeutral}) }
		}},
		"a permit that is released": {hold: func(_ *Registry, g *Gate) func() {
			permit, _ := g.Allow(noContext, "held")
			return func() { permit.Release() }
		}},
		"a throttle that ends": {wait: 10 * time.Second, hold: func(r *Registry, _ *Gate) func() {
			r.Record("held", Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
			return func() {}
		}},
		"a throttle that a caller finds over": {wait: 10 * time.Second, hold: func(r *Registry, _ *Gate) func() {
			r.Record("held", Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
			return func() { r.AllowRequest("held") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
				letGo := c.hold(r, &Gate{Registry: r})
				r.AllowRequest("first")
				if c.wait > 0 {
					time.Sleep(c.wait - 1)
					r.AllowRequest("first")
					time.Sleep(time.Nanosecond)
				}
				require.Equal(t, []string{"held"}, namesOf(r))
				letGo()
				r.AllowRequest("second")
				assert.Equal(t, []string{"second"}, namesOf(r))
			})
		})
	}
}

func TestRegistry_ThrottledEntriesReturnOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
		for i, name := range []string{"b", "a", "c"} { // not in the order of their ends
			wait := time.Duration([]int{2, 1, 3}[i]) * time.Minute
			r.Record(name, Verdict{Outcome: OutcomeThrottled, RetryAfter: wait}, 0)
		}
		r.AllowRequest("x")
		assert.Equal(t, []string{"a", "b", "c"}, namesOf(r))
		time.Sleep(time.Minute - 1)
		r.AllowRequest("x")
		assert.Equal(t, []string{"a", "b", "c"}, namesOf(r))
		time.Sleep(time.Nanosecond)
		r.AllowRequest("x")
		assert.Equal(t, []string{"b", "c", "x"}, namesOf(r))
		time.Sleep(time.Minute)
		require.NoError(t, r.Register("x", ToolOptions{}))
		r.AllowRequest("y")
		assert.Equal(t, []string{"c", "x", "y"}, namesOf(r))
		time.Sleep(time.Minute)
		require.NoError(t, r.Register("y", ToolOptions{}))
		r.AllowRequest("z")
		assert.Equal(t, []string{"x", "y", "z"}, namesOf(r))
	})
}

func TestRegistry_EntryThrottledWhileParkedReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
		g := &Gate{Registry: r}
		permit, err := g.Allow(t.Context(), "busy")
		assert.NoError(t, err)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(1), r.HealthSummary().Untracked, "busy is in use")
		permit.Settle(Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second})

		time.Sleep(9 * time.Second)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked, "busy is throttled")
		time.Sleep(time.Second)
		assert.True(t, r.AllowRequest("new"))
		assert.Equal(t, uint64(2), r.HealthSummary().Untracked)
		assert.Equal(t, uint64(1), r.HealthSummary().Evicted)
	})
}

// An eviction marks the entry, then looks for permits, and gives up if it finds one. A
// call that ends in between must not be lost.
func TestRegistry_ReportDuringCanceledEvictionCounts(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	permit, err := g.Allow(t.Context(), "search")
	require.NoError(t, err)
	n := r.table.Get("search")

	duringEviction := func(do func()) {
		r.mu.Lock()
		before := n.Value.snap.Load()
		n.Value.snap.Store(evictedUnder(before.Params))
		var done sync.WaitGroup
		done.Go(do)
		time.Sleep(5 * time.Millisecond)
		n.Value.snap.Store(before)
		r.mu.Unlock()
		done.Wait()
	}
	duringEviction(func() { permit.Settle(Verdict{Outcome: OutcomeFailure, Kind: KindTimeout}) })
	assert.Equal(t, 1, healthOf(t, r, "search").ConsecutiveFailures)
	duringEviction(func() { r.RecordSuccess("search", 0) })
	duringEviction(func() { r.RecordFailure("search", 0) })
	h := healthOf(t, r, "search")
	assert.Equal(t, uint64(3), h.TotalCalls())
	assert.Equal(t, 1, h.ConsecutiveFailures)
	duringEviction(func() { assert.True(t, r.Isolate("search", "")) })
	assert.Equal(t, StopIsolated, healthOf(t, r, "search").Reason)
	r.Reset("search", "")
	duringEviction(func() {
		permit, err := g.Allow(t.Context(), "search")
		assert.NoError(t, err)
		assert.True(t, permit.Tracked())
	})
	assert.Equal(t, uint64(1), healthOf(t, r, "search").InFlight)
	duringEviction(func() { assert.True(t, r.AllowRequest("search")) })
	assert.Equal(t, 1, r.Len())
}

func TestRegistry_ReaderDuringEvictionSeesNoEntry(t *testing.T) {
	r := NewRegistry()
	failTimes(r, "search", 3)
	n := r.table.Get("search")
	n.Value.snap.Store(evictedUnder(n.Value.snap.Load().Params))
	_, ok := r.Health("search")
	assert.False(t, ok)
	assert.True(t, r.Available("search"))
	assert.Empty(t, namesOf(r))
	assert.Empty(t, r.HealthSummary().Tools)
}

func TestRegistry_RegisterStopsAtMaxTools(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 2 })
	r.AllowRequest("passing")
	require.NoError(t, r.Register("a", ToolOptions{}))
	require.NoError(t, r.Register("b", ToolOptions{}), "b takes the place of passing")
	err := r.Register("c", ToolOptions{Breaker: new(DefaultBreakerConfig())})
	assert.ErrorIs(t, err, ErrRegistryFull)
	assert.EqualError(t, err, `toolhealth: registry is full: max_tools is 2, registering "c"`)
	assert.NoError(t, r.Register("a", ToolOptions{}), "registering twice is no error")
	assert.Equal(t, []string{"a", "b"}, namesOf(r))
	assert.Empty(t, r.own, "a failed Register stores no config")
	assert.True(t, r.Remove("a"))
	assert.NoError(t, r.Register("c", ToolOptions{}))
	r.AllowRequest("passing")
	assert.Equal(t, []string{"b", "c"}, namesOf(r))
}

func TestRegistry_RegisterPinsExistingEntry(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	failTimes(r, "a", 2)
	r.AllowRequest("b") // parks a
	require.NoError(t, r.Register("a", ToolOptions{}))
	assert.Equal(t, 2, healthOf(t, r, "a").ConsecutiveFailures, "it keeps its state")
	r.RecordSuccess("a", 0)
	r.AllowRequest("b")
	assert.Equal(t, []string{"a"}, namesOf(r))
	assert.Equal(t, uint64(2), r.HealthSummary().Untracked)
}

func TestRegistry_LowerBoundEvictsAtNextName(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 6 })
	for i := range 6 {
		r.AllowRequest(fmt.Sprint("t", i))
	}
	failTimes(r, "t5", 3)
	c := r.Config()
	c.MaxTools = 3
	require.NoError(t, r.SetConfig(c))
	assert.Equal(t, 6, r.Len())
	r.AllowRequest("t0")
	assert.Equal(t, 6, r.Len(), "a known name evicts nothing")
	r.AllowRequest("new")
	assert.Equal(t, 3, r.Len())
	assert.Contains(t, namesOf(r), "t5")
	assert.Contains(t, namesOf(r), "new")
	assert.Equal(t, uint64(4), r.HealthSummary().Evicted)
}

func TestRegistry_BoundHoldsForAMillionNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no cooldown ends on a slow machine
		for open, names := range map[int]int{0: 100_000, 9_999: 1_000_000, 10_000: 100_000} {
			if testing.Short() || race.Enabled {
				names = 20_000
			}
			r := NewRegistry()
			for i := range open {
				failTimes(r, fmt.Sprint("open", i), 3)
			}
			name := make([]byte, 0, 32)
			for i := range names {
				name = fmt.Appendf(name[:0], "made up %d", i)
				if !r.AllowRequest(string(name)) || r.Len() > 10_000 {
					t.Fatalf("%s: %d entries", name, r.Len())
				}
			}
			s := r.HealthSummary()
			assert.Equal(t, open, s.Unavailable)
			assert.Len(t, s.Tools, 10_000)
			assert.Equal(t, uint64(names-(10_000-open)), s.Evicted+s.Untracked)
			switch open {
			case 0:
				assert.Zero(t, s.Untracked)
			case 10_000:
				assert.Zero(t, s.Evicted)
			default: // the only evictable entry comes up every 10,000/64 names
				assert.InDelta(t, names/(10_000/64), s.Evicted, float64(names)/1000)
			}
		}
	})
}

// While callers hold permits, new names arrive: an entry with a permit out stays, and
// no permit and no count is lost.
func TestRegistry_EntryInUseIsNotEvicted(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 4 })
	g := &Gate{Registry: r}
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := range 2000 {
				tool := fmt.Sprint("t", (i*7+w)%12)
				permit, err := g.Allow(t.Context(), tool)
				if !assert.NoError(t, err) {
					return
				}
				if permit.Tracked() {
					if h, ok := r.Health(tool); ok {
						assert.GreaterOrEqual(t, h.InFlight, uint64(1), "it is in use")
					}
					assert.Same(t, permit.node, r.table.Get(tool), "its entry is still there")
				}
				if i%3 == 0 {
					permit.Release()
				} else {
					permit.Done(t.Context(), nil)
				}
				assert.LessOrEqual(t, r.Len(), 4)
			}
		})
	}
	group.Wait()
	for name, h := range r.All() {
		assert.Zero(t, h.InFlight, name)
	}
	before := r.HealthSummary().Evicted
	for i := range 8 {
		r.AllowRequest(fmt.Sprint("last", i))
	}
	assert.Equal(t, before+8, r.HealthSummary().Evicted, "every entry can be evicted again")
}

func TestRegistry_RemoveForgetsToolAndLatePermits(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	one := DefaultBreakerConfig()
	one.FailureThreshold = 1
	require.NoError(t, r.Register("search", ToolOptions{Breaker: &one}))
	late, err := g.Allow(t.Context(), "search")
	require.NoError(t, err)
	r.RecordFailure("search", 0)
	assert.False(t, r.Available("search"))

	assert.True(t, r.Remove("search"))
	assert.False(t, r.Remove("search"))
	assert.Zero(t, r.Len())
	assert.True(t, r.AllowRequest("search"))
	late.Settle(Verdict{Outcome: OutcomeFailure, Kind: KindTimeout})
	late.KeepAlive()
	h := healthOf(t, r, "search")
	assert.Equal(t, uint64(1), h.Epoch, "the entry is a new one")
	assert.Equal(t, uint64(0), h.TotalCalls())
	failTimes(r, "search", 2)
	assert.True(t, r.Available("search"), "the config of Register is gone too")
	assert.False(t, r.Reset("other", ""))
}

func TestRegistry_IsolateBeforeFirstCall(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 2 })
	assert.True(t, r.Isolate("mail", ""))
	assert.False(t, r.AllowRequest("mail"))
	assert.Equal(t, StopIsolated, healthOf(t, r, "mail").Reason)
	assert.False(t, r.Isolate("", ""))
	assert.True(t, r.Isolate("pay", ""))
	assert.False(t, r.Isolate("third", ""), "the registry is full, and an isolated tool is not evicted")
	assert.True(t, r.Isolate("mail", ""), "again")
	r = registryWith(t, func(c *Config) { c.RegisteredOnly = true })
	assert.False(t, r.Isolate("unheard-of", ""))
	assert.Zero(t, r.Len())
}

func TestRegistry_RegisteredOnlyRefusesUnknownNames(t *testing.T) {
	own := DefaultBreakerConfig()
	own.RecoveryDuration = 7 * time.Second
	r := registryWith(t, func(c *Config) {
		c.RegisteredOnly = true
		c.Breaker.RecoveryDuration = 12 * time.Second
		c.Tools = map[string]BreakerConfig{"configured": own}
	})
	require.NoError(t, r.Register("registered", ToolOptions{}))
	for _, known := range []string{"configured", "registered"} {
		assert.True(t, r.Available(known))
		assert.True(t, r.AllowRequest(known))
	}
	assert.False(t, r.Available("unknown"))
	assert.False(t, r.AllowRequest("unknown"))
	failTimes(r, "unknown", 3)
	_, err := (&Gate{Registry: r}).Allow(t.Context(), "unknown")
	assert.Equal(t, &Refusal{Tool: "unknown", Reason: StopUnknownTool, RetryAfter: 12 * time.Second, InRow: 1}, err)
	assert.ErrorIs(t, err, ErrUnknownTool)
	assert.Equal(t, []string{"configured", "registered"}, namesOf(r))
	assert.Zero(t, r.HealthSummary().Untracked)
	r.Remove("registered")
	assert.False(t, r.AllowRequest("registered"))
	r.Remove("configured")
	assert.True(t, r.AllowRequest("configured"), "the config still names the tool")
}

func TestRegistry_ConfigOfRegisterThenToolsThenBreaker(t *testing.T) {
	threshold := func(n int) BreakerConfig {
		c := DefaultBreakerConfig()
		c.FailureThreshold = n
		return c
	}
	r := registryWith(t, func(c *Config) {
		c.Tools = map[string]BreakerConfig{"two": threshold(2), "four": threshold(2)}
	})
	require.NoError(t, r.Register("four", ToolOptions{Breaker: new(threshold(4))}))
	trips := func(tool string) int {
		r.Reset(tool, "")
		for n := 1; ; n++ {
			r.RecordFailure(tool, 0)
			if !r.Available(tool) {
				return n
			}
		}
	}
	assert.Equal(t, [3]int{3, 2, 4}, [3]int{trips("three"), trips("two"), trips("four")})
	require.NoError(t, r.Register("four", ToolOptions{}), "Register without a config keeps the earlier one")
	require.NoError(t, r.SetConfig(Config{Breaker: threshold(6), Tools: map[string]BreakerConfig{"two": threshold(1), "four": threshold(1)}}))
	assert.Equal(t, [3]int{6, 1, 4}, [3]int{trips("three"), trips("two"), trips("four")})
	require.NoError(t, r.Register("three", ToolOptions{Breaker: new(threshold(5))}))
	assert.Equal(t, 5, trips("three"))

	assert.ErrorContains(t, r.Register("x", ToolOptions{Breaker: new(threshold(-2))}), `toolhealth: Register: "x": toolhealth: config: failure_threshold is -2`)
	_, ok := r.Health("x")
	assert.False(t, ok)
}

func TestRegistry_SetConfigKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		failTimes(r, "streak", 2)
		failTimes(r, "open", 3)
		r.AllowRequest("idle")
		r.RecordSuccess("idle", time.Second)
		r.Record("throttled", Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute}, 0)
		before := r.HealthSummary()
		c := r.Config()
		c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration = 1, time.Second
		require.NoError(t, r.SetConfig(c))
		assert.Equal(t, c, r.Config())
		assert.Equal(t, before, r.HealthSummary(), "a lower threshold does not open a breaker, and a cooldown keeps its end")

		assert.Error(t, r.SetConfig(Config{MaxTools: -2}))
		assert.Equal(t, c, r.Config(), "an invalid config changes nothing")

		r.RecordFailure("idle", 0)
		assert.Equal(t, time.Second, healthOf(t, r, "idle").RetryAfter, "the new config applies")
		time.Sleep(30*time.Second - 1)
		assert.False(t, r.Available("open"))
		time.Sleep(time.Nanosecond)
		assert.True(t, r.Available("open"))
	})
}

func TestRegistry_ZeroThresholdClosesWhatIsNotIsolated(t *testing.T) {
	r := NewRegistry()
	events := recordEvents(r)
	failTimes(r, "open", 3)
	failTimes(r, "held", 3)
	r.Isolate("held", "")
	r.RecordFailure("closed", 0)
	require.NoError(t, r.SetConfig(Config{Breaker: BreakerConfig{FailureThreshold: Off}}))
	assert.Equal(t, []string{"closed>open failure_threshold 2", "open>closed reconfigured 3"}, events.of("open"))
	assert.Equal(t, []string{"closed>open failure_threshold 2", "open>open isolated 3"}, events.of("held"))
	assert.Empty(t, events.of("closed"))
	assert.True(t, r.Available("open"))
	assert.False(t, r.Available("held"))
	failTimes(r, "open", 50)
	assert.True(t, r.Available("open"))
	assert.Equal(t, 50, healthOf(t, r, "open").ConsecutiveFailures, "0 never trips, and still counts")
	require.NoError(t, r.Register("held", ToolOptions{Breaker: &BreakerConfig{FailureThreshold: Off}}))
	assert.Equal(t, StopIsolated, healthOf(t, r, "held").Reason)

	require.NoError(t, r.SetConfig(DefaultConfig()))
	failTimes(r, "open", 1)
	assert.False(t, r.Available("open"), "the streak was kept")
	require.NoError(t, r.Register("open", ToolOptions{Breaker: &BreakerConfig{FailureThreshold: Off}}))
	assert.True(t, r.Available("open"))
	assert.Equal(t, "open>closed reconfigured 5", events.of("open")[3], "Register calls hooks, too")
}

func TestRegistry_ResetAndIsolateBeginNewEpoch(t *testing.T) {
	r := NewRegistry()
	g := &Gate{Registry: r}
	events := recordEvents(r)
	before, err := g.Allow(t.Context(), "search")
	require.NoError(t, err)
	assert.True(t, r.Reset("search", ""))
	before.Settle(Verdict{Outcome: OutcomeFailure, Kind: KindTimeout})
	h := healthOf(t, r, "search")
	assert.Equal(t, 0, h.ConsecutiveFailures, "admitted before the reset, so it no longer counts for the breaker")
	assert.Equal(t, uint64(1), h.Failures, "the call is still counted")
	assert.True(t, r.Isolate("search", ""))
	assert.True(t, r.Isolate("search", ""))
	assert.False(t, r.AllowRequest("search"))
	r.RecordSuccess("search", 0)
	r.RecordFailure("search", 0)
	assert.Equal(t, StopIsolated, healthOf(t, r, "search").Reason)
	assert.Equal(t, 30*time.Second, healthOf(t, r, "search").RetryAfter)
	assert.True(t, r.Reset("search", ""))
	assert.True(t, r.AllowRequest("search"))
	assert.Equal(t, []string{
		"closed>closed reset 2", "closed>open isolated 3", "open>open isolated 4", "open>closed reset 5",
	}, events.of("search"))
	assert.Equal(t, uint64(1), healthOf(t, r, "search").Trips)
}

func TestRegistry_ResetForgetsThrottleKeepsStats(t *testing.T) {
	r := NewRegistry()
	r.RecordFailure("search", time.Second)
	r.Record("search", Verdict{Outcome: OutcomeThrottled, RetryAfter: time.Minute}, 0)
	assert.Equal(t, StopRateLimited, healthOf(t, r, "search").Reason)
	r.Reset("search", "")
	h := healthOf(t, r, "search")
	assert.True(t, h.Available)
	assert.Equal(t, 0, h.ConsecutiveFailures)
	assert.Equal(t, uint64(1), h.Failures)
	assert.Equal(t, uint64(1), h.Throttled)
	assert.Equal(t, 0.7, h.EWMA)
}

func TestRegistry_FailureWithoutKindIsUnknown(t *testing.T) {
	r := NewRegistry()
	r.Record("a", Verdict{Outcome: OutcomeFailure}, 0)
	h := healthOf(t, r, "a")
	assert.Equal(t, KindUnknown, h.LastFailure)
	assert.Equal(t, map[Kind]uint64{KindUnknown: 1}, h.ByKind)
	r.RecordFailure("a", 0)
	assert.Equal(t, KindUnknown, healthOf(t, r, "a").LastFailure)
	r.Record("a", Verdict{Outcome: OutcomeFailure, Kind: KindPanic}, 0)
	assert.Equal(t, KindPanic, healthOf(t, r, "a").LastFailure)
	r.Record("b", Verdict{Outcome: OutcomeRejected}, 0)
	assert.Equal(t, KindNone, healthOf(t, r, "b").LastFailure)
}

func TestRegistry_SlowSuccessCountsAgainstBreakerOnly(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.SlowCallDuration = time.Second })
	for range 3 {
		r.RecordSuccess("slow", time.Second)
	}
	assert.Equal(t, 0, healthOf(t, r, "slow").ConsecutiveFailures)
	for range 3 {
		r.RecordSuccess("slow", time.Second+1)
	}
	h := healthOf(t, r, "slow")
	assert.Equal(t, StateOpen, h.State)
	assert.Equal(t, KindTimeout, h.LastFailure)
	assert.Equal(t, uint64(6), h.Successes)
	assert.Equal(t, 1.0, h.EWMA)
}

func TestRegistry_RefusalsInRowArePerTool(t *testing.T) {
	r := NewRegistry()
	failTimes(r, "a", 3)
	for range 4 {
		r.AllowRequest("a")
	}
	assert.Equal(t, uint64(4), healthOf(t, r, "a").RefusedInRow)
	r.Reset("a", "")
	assert.Equal(t, uint64(4), healthOf(t, r, "a").RefusedInRow, "no call was admitted yet")
	r.AllowRequest("a")
	h := healthOf(t, r, "a")
	assert.Equal(t, uint64(0), h.RefusedInRow)
	assert.Equal(t, uint64(4), h.Refused)
}

func TestRegistry_AllToleratesBreakAndChange(t *testing.T) {
	r := NewRegistry()
	for _, name := range []string{"c", "a", "d", "b"} {
		r.AllowRequest(name)
	}
	var seen []string
	for name, h := range r.All() {
		seen = append(seen, name)
		assert.Equal(t, name, h.Tool)
		switch name {
		case "a":
			failTimes(r, "b", 3)
			r.Remove("c")
			r.AllowRequest("e")
		case "b":
			assert.Equal(t, StateOpen, h.State, "the health is read when it is yielded")
		}
	}
	assert.Equal(t, []string{"a", "b", "d"}, seen, "c was removed, e came too late")
	seen = nil
	for name := range r.All() {
		if seen = append(seen, name); len(seen) == 2 {
			break
		}
	}
	assert.Equal(t, []string{"a", "b"}, seen)
}

func TestRegistry_LongestDurationTeachesFiniteLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cooldown = time.Second
		r := registryWith(t, func(c *Config) {
			c.Breaker.FailureThreshold, c.Breaker.RecoveryDuration, c.Breaker.MaxOpenDuration = 1, cooldown, Off
			c.Breaker.ProbeTimeout = time.Nanosecond
		})
		failTimes(r, "a", 1)
		time.Sleep(cooldown)
		require.True(t, r.AllowRequest("a"))
		time.Sleep(time.Nanosecond) // the probe is lost
		r.RecordSuccess("a", math.MaxInt64)
		time.Sleep(cooldown)
		require.True(t, r.AllowRequest("a"))
		wait := healthOf(t, r, "a").RetryAfter
		assert.Equal(t, maxDuration+cooldown, wait, "no bound is configured")
		time.Sleep(wait)
		assert.True(t, r.AllowRequest("a"))
	})
}

func TestRegistry_BusyEntryDoesNotHideEndOfThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryWith(t, func(c *Config) { c.MaxTools = 3 })
		r.Record("throttled", Verdict{Outcome: OutcomeThrottled, RetryAfter: 10 * time.Second}, 0)
		_, err := (&Gate{Registry: r}).Allow(t.Context(), "busy")
		require.NoError(t, err)
		require.NoError(t, r.Register("kept", ToolOptions{}))
		r.AllowRequest("x") // looks at both, and finds no room
		time.Sleep(10 * time.Second)
		for _, name := range []string{"x", "y", "z", "last"} {
			r.AllowRequest(name)
			assert.Equal(t, slices.Sorted(slices.Values([]string{"busy", "kept", name})), namesOf(r), "the registered one stays")
		}
	})
}

func TestRegistry_ToolWithRunningHookIsNotEvicted(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.MaxTools = 1 })
	in, goOn := make(chan bool), make(chan bool)
	stop := r.OnTransition(func(Transition) { close(in); <-goOn })
	done := make(chan bool)
	require.True(t, r.AllowRequest("a"))
	go func() { r.Reset("a", ""); close(done) }()
	<-in
	require.True(t, r.AllowRequest("b"))
	assert.Equal(t, uint64(1), r.HealthSummary().Untracked)
	close(goOn)
	<-done
	stop()
	require.True(t, r.AllowRequest("b"))
	assert.Equal(t, uint64(1), r.HealthSummary().Evicted, "the tool can be evicted after its hook has returned")
}

func TestRegistry_EntryFreedByHookEndingGoroutineIsEvicted(t *testing.T) {
	free := map[string]func(*testing.T, *Registry){
		"a probe that succeeds": func(t *testing.T, r *Registry) {
			_, _ = Call(t.Context(), guardOn(t, r, nil), "a", func(context.Context, string) (int, error) {
				r.AllowRequest("b") // parks a, which is in use
				return 1, nil
			})
		},
		"reset": func(_ *testing.T, r *Registry) {
			r.AllowRequest("b")
			r.Reset("a", "")
		},
		"a new configuration": func(_ *testing.T, r *Registry) {
			r.AllowRequest("b")
			c := r.Config()
			c.Breaker.FailureThreshold = 0
			_ = r.SetConfig(c)
		},
	}
	for name, free := range free {
		synctest.Test(t, func(t *testing.T) {
			r := registryWith(t, func(c *Config) { c.MaxTools, c.Breaker.FailureThreshold = 1, 1 })
			r.RecordFailure("a", 0)
			time.Sleep(30 * time.Second)
			stop := r.OnTransition(func(e Transition) {
				if e.To == StateClosed {
					runtime.Goexit()
				}
			})
			endsGoroutine(func() { free(t, r); t.Error("the hook has not ended the goroutine") })
			stop()
			for range 3 {
				r.AllowRequest("b")
			}
			assert.Equal(t, []string{"b"}, namesOf(r), name)
		})
	}
}

// Events of a tool are delivered in the order of their epochs, so a missing one would
// hold up all later ones.
func TestRegistry_HookEndingGoroutineOfSetConfigSilencesNoTool(t *testing.T) {
	r := registryWith(t, func(c *Config) { c.Breaker.FailureThreshold = 1 })
	tools := []string{"a", "b", "c"}
	for _, tool := range tools {
		r.RecordFailure(tool, 0)
	}
	epochs, ends := make(map[string][]uint64), true
	defer r.OnTransition(func(e Transition) {
		epochs[e.Tool] = append(epochs[e.Tool], e.Epoch)
		if ends {
			runtime.Goexit()
		}
	})()
	c := r.Config()
	c.Breaker.FailureThreshold = 0
	endsGoroutine(func() { _ = r.SetConfig(c) })
	ends = false
	for _, tool := range tools {
		r.Isolate(tool, "")
		assert.Equal(t, []uint64{3, 4}, epochs[tool], tool)
	}
}
