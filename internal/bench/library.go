package bench

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Names of the cases of toolhealth that bars use.
const (
	ByName        = "toolhealth/by-name"
	ByNameRefused = "toolhealth/by-name/refused"
	ByNameFailure = "toolhealth/by-name/failure"
	GateDone      = "toolhealth/gate"
	GateRefused   = "toolhealth/gate/refused"
	GateFailure   = "toolhealth/gate/failure"
	Summary100k   = "toolhealth/summary/100000"

	ByNameGrouped = "toolhealth/by-name/grouped"
	GateGrouped   = "toolhealth/gate/grouped"

	GateOne     = "toolhealth/parallel/gate/1-goroutine"
	GateSpread2 = "toolhealth/parallel/gate/2-goroutines-own-tools"
	GateHot1    = "toolhealth/parallel/gate/1-goroutine-1-tool"
	GateHot2    = "toolhealth/parallel/gate/2-goroutines-1-tool"
)

const (
	keepsAll    = "counts, percentiles, EWMA, streak"
	keepsPermit = "counts, percentiles, EWMA, streak, epoch of the permit"
)

// NewRegistry returns a registry with room for n tools and one call recorded of
// each.
func NewRegistry(names []string, change ...func(*toolhealth.BreakerConfig)) *toolhealth.Registry {
	return newRegistry(names, func(c *toolhealth.Config) {
		for _, fn := range change {
			fn(&c.Breaker)
		}
	})
}

// Grouped is NewRegistry for tools that are in the group of their server: about 43 of a
// thousand in each.
func Grouped(names []string) *toolhealth.Registry {
	return newRegistry(names, func(c *toolhealth.Config) {
		c.Group = func(tool string) string { server, _, _ := strings.Cut(tool, "/"); return server }
	})
}

func newRegistry(names []string, change func(*toolhealth.Config)) *toolhealth.Registry {
	c := toolhealth.DefaultConfig()
	c.MaxTools = max(len(names), 1)
	change(&c)
	r, err := toolhealth.NewRegistryWithConfig(c)
	must(err == nil)
	for _, name := range names {
		must(r.AllowRequest(name))
		r.RecordSuccess(name, time.Millisecond)
	}
	return r
}

// NeverOpens counts failures in a row and never opens.
func NeverOpens(c *toolhealth.BreakerConfig) { c.FailureThreshold = math.MaxInt32 }

// opensForHours opens at the first failure, for longer than a benchmark runs.
func opensForHours(c *toolhealth.BreakerConfig) {
	c.FailureThreshold = 1
	c.RecoveryDuration, c.MaxOpenDuration = 100*time.Hour, toolhealth.Off
}

// opensForNoTime opens at the first failure and is due for a probe at once.
func opensForNoTime(c *toolhealth.BreakerConfig) {
	c.FailureThreshold = 1
	c.RecoveryDuration = 1
}

// OpenRegistry returns a registry all of whose tools are open.
func OpenRegistry(names []string) *toolhealth.Registry {
	r := NewRegistry(names, opensForHours)
	for _, name := range names {
		r.RecordFailure(name, time.Millisecond)
		must(!r.Available(name))
	}
	return r
}

// ByNameCalls makes n calls by name that succeed.
func ByNameCalls(r *toolhealth.Registry, names []string, n int) {
	c := over(names)
	for range n {
		name := c.next()
		must(r.AllowRequest(name))
		r.RecordSuccess(name, time.Microsecond)
	}
}

// GateCalls makes n calls that succeed, through a gate.
func GateCalls(g *toolhealth.Gate, names []string, n int) {
	c := over(names)
	for range n {
		permit, err := g.Allow(bg, c.next())
		must(err == nil)
		permit.Done(bg, nil)
	}
}

// deferred is a call in the form of the documentation: a deferred Release gives the
// permit back in any case.
func deferred(g *toolhealth.Gate, ctx context.Context, name string) error {
	permit, err := g.Allow(ctx, name)
	if err != nil {
		return err
	}
	defer permit.Release()
	permit.Done(ctx, nil)
	return nil
}

// library are the cases of one goroutine, but those of the guard.
func library() []Case {
	return slices.Concat(namedCalls(), namedTransitions(), gateSuccesses(), gateFailures(), readings(), alone(), summaries())
}

// namedCalls are the cases of calls by name whose breakers stay as they are.
func namedCalls() []Case {
	one := thousand.Lookups[:1]
	return []Case{
		{Name: ByName, Keeps: keepsAll, New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered)
			return func(n int) { ByNameCalls(r, thousand.Lookups, n) }
		}},
		{Name: ByNameGrouped, Keeps: keepsAll + ", group", New: func(*Teardown) func(int) {
			r := Grouped(thousand.Registered)
			return func(n int) { ByNameCalls(r, thousand.Lookups, n) }
		}},
		{Name: "toolhealth/by-name/one-tool", Keeps: keepsAll, New: func(*Teardown) func(int) {
			r := NewRegistry(one)
			return func(n int) { ByNameCalls(r, one, n) }
		}},
		{Name: ByNameRefused, Keeps: "refusals, refusals in a row", New: func(*Teardown) func(int) {
			r := OpenRegistry(thousand.Registered)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(!r.AllowRequest(c.next()))
				}
			}
		}},
		{Name: ByNameFailure, Keeps: keepsAll + ", kind", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered, NeverOpens)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					name := c.next()
					must(r.AllowRequest(name))
					r.RecordFailure(name, time.Microsecond)
				}
			}
		}},
	}
}

// namedTransitions are the cases of calls by name that change a breaker.
func namedTransitions() []Case {
	return []Case{
		{Name: "toolhealth/by-name/probe-fails", Keeps: "one transition of two for each call", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered, opensForNoTime)
			for _, name := range thousand.Registered {
				r.RecordFailure(name, 0)
			}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					name := c.next()
					must(r.AllowRequest(name))
					r.RecordFailure(name, time.Microsecond)
				}
			}
		}},
		{Name: "toolhealth/by-name/trip+probe+close", Keeps: "two calls, three transitions", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered, opensForNoTime)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					name := c.next()
					must(r.AllowRequest(name))
					r.RecordFailure(name, time.Microsecond) // opens
					must(r.AllowRequest(name))              // the probe
					r.RecordSuccess(name, time.Microsecond) // closes
				}
			}
		}},
	}
}

// gateSuccesses are the cases of calls through a gate that succeed.
func gateSuccesses() []Case {
	one := thousand.Lookups[:1]
	return []Case{
		{Name: GateDone, Keeps: keepsPermit, New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(thousand.Registered)}
			return func(n int) { GateCalls(g, thousand.Lookups, n) }
		}},
		{Name: GateGrouped, Keeps: keepsPermit + ", group", New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: Grouped(thousand.Registered)}
			return func(n int) { GateCalls(g, thousand.Lookups, n) }
		}},
		{Name: "toolhealth/gate/deferred-release", Keeps: keepsPermit, New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(thousand.Registered)}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(deferred(g, bg, c.next()) == nil)
				}
			}
		}},
		{Name: "toolhealth/gate/one-tool", Keeps: keepsPermit, New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(one)}
			return func(n int) { GateCalls(g, one, n) }
		}},
	}
}

// gateFailures are the cases of calls through a gate that are refused or fail.
func gateFailures() []Case {
	return []Case{
		{Name: GateRefused, Keeps: "refusals; the error says why and how long", New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: OpenRegistry(thousand.Registered)}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					_, err := g.Allow(bg, c.next())
					must(err != nil)
				}
			}
		}},
		{Name: GateFailure, Keeps: keepsPermit + ", kind", New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(thousand.Registered, NeverOpens)}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					permit, err := g.Allow(bg, c.next())
					must(err == nil)
					permit.Done(bg, errBoom)
				}
			}
		}},
		{Name: "toolhealth/gate/probe-fails", Keeps: "one transition of two for each call", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered, opensForNoTime)
			for _, name := range thousand.Registered {
				r.RecordFailure(name, 0)
			}
			g := &toolhealth.Gate{Registry: r}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					permit, err := g.Allow(bg, c.next())
					must(err == nil && permit.Probe())
					permit.Done(bg, errBoom)
				}
			}
		}},
	}
}

// readings are the cases of questions about one tool.
func readings() []Case {
	return []Case{
		{Name: "toolhealth/available/closed", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(r.Available(c.next()))
				}
			}
		}},
		{Name: "toolhealth/available/open", New: func(*Teardown) func(int) {
			r := OpenRegistry(thousand.Registered)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(!r.Available(c.next()))
				}
			}
		}},
		{Name: "toolhealth/health", New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered)
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					h, ok := r.Health(c.next())
					must(ok && h.Available)
				}
			}
		}},
	}
}

// alone are the cases of the parts of a registry by themselves.
func alone() []Case {
	return []Case{
		{Name: "toolhealth/breaker-alone", Keeps: "streak", New: func(*Teardown) func(int) {
			b, err := toolhealth.NewBreaker(toolhealth.DefaultBreakerConfig())
			must(err == nil)
			return func(n int) {
				for range n {
					must(b.AllowRequest())
					b.RecordSuccess(time.Microsecond)
				}
			}
		}},
	}
}

// summaries are the cases of the summary, by the number of tools.
func summaries() []Case {
	var cases []Case
	for _, size := range []struct {
		name string
		n    int
	}{{"toolhealth/summary/10", 10}, {"toolhealth/summary/1000", 1000}, {Summary100k, 100_000}} {
		cases = append(cases, Case{Name: size.name, Procs: 1, New: func(*Teardown) func(int) {
			r := NewRegistry(NewNames(size.n).Registered)
			return func(n int) {
				for range n {
					must(len(r.HealthSummary().Tools) == size.n)
				}
			}
		}})
	}
	return cases
}

// Spread has k goroutines make n calls in all and waits for them. The body gets
// the number of its goroutine and of its calls.
func Spread(k, n int, body func(worker, n int)) {
	var wg sync.WaitGroup
	for worker := range k {
		wg.Go(func() { body(worker, (n+worker)/k) })
	}
	wg.Wait()
}

// parallel are the cases of one and two goroutines. Their ns/op are of the wall
// clock for all calls together: two goroutines that do not disturb each other
// halve it.
func parallel() []Case {
	half := tools / 2
	own := func(worker int) []string { return thousand.Lookups[worker*half : (worker+1)*half] }
	one := func(int) []string { return thousand.Lookups[:1] }
	gate := func(name string, k int, names func(int) []string) Case {
		return Case{Name: name, Keeps: keepsPermit, Procs: 2, Workers: k, New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(thousand.Registered)}
			return func(n int) { Spread(k, n, func(w, n int) { GateCalls(g, names(w), n) }) }
		}}
	}
	byName := func(name string, k int, names func(int) []string) Case {
		return Case{Name: name, Keeps: keepsAll, Procs: 2, Workers: k, New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered)
			return func(n int) { Spread(k, n, func(w, n int) { ByNameCalls(r, names(w), n) }) }
		}}
	}
	// floor is the least cost of the parts of a call: two clocks, two additions and a
	// lookup. Each goroutine has its own map, and its own words or one for all.
	floor := func(name string, k int, apart bool) Case {
		return Case{Name: name, Procs: 2, Workers: k, New: func(*Teardown) func(int) {
			type padded struct {
				pair
				_ [128]byte
			}
			maps, words := make([]map[string]*pair, k), make([]*padded, k)
			for w := range k {
				maps[w], words[w] = plainMap[pair](), new(padded)
				if !apart {
					words[w] = words[0]
				}
			}
			return func(n int) {
				Spread(k, n, func(w, n int) {
					c := over(own(w))
					for range n {
						must(maps[w][c.next()] != nil)
						start := time.Since(base)
						words[w].a.Add(1)
						words[w].b.Add(int64(time.Since(base) - start))
					}
				})
			}
		}}
	}
	return []Case{
		floor("floor/parallel/1-goroutine", 1, true),
		floor("floor/parallel/2-goroutines-own-words", 2, true),
		floor("floor/parallel/2-goroutines-1-pair-of-words", 2, false),
		gate(GateOne, 1, own),
		gate(GateSpread2, 2, own),
		gate(GateHot1, 1, one),
		gate(GateHot2, 2, one),
		byName("toolhealth/parallel/by-name/1-goroutine", 1, own),
		byName("toolhealth/parallel/by-name/2-goroutines-own-tools", 2, own),
		byName("toolhealth/parallel/by-name/1-goroutine-1-tool", 1, one),
		byName("toolhealth/parallel/by-name/2-goroutines-1-tool", 2, one),
	}
}
