package bench

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The names of the floors that bars are ratios to.
const (
	FloorGate    = "floor/2clocks+2adds+1lookup"
	FloorRefusal = "floor/1clock+1lookup"
)

type pair struct{ a, b atomic.Int64 }

type caller interface{ call() bool }

type nop struct{ _ int }

//go:noinline
func (*nop) call() bool { return true }

var (
	base          = time.Now()
	callee caller = &nop{}
)

// plainMap is the cheapest registry: one V for each tool.
func plainMap[V any]() map[string]*V {
	m := make(map[string]*V, tools)
	for _, name := range thousand.Registered {
		m[name] = new(V)
	}
	return m
}

// floors are the cases of the parts of a call, and of sums of them.
func floors() []Case { return slices.Concat(parts(), sums(), gateSums()) }

// parts are the cases of one part each.
func parts() []Case {
	var words pair
	return []Case{
		{Name: "floor/loop", New: func(*Teardown) func(int) {
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(c.next() != "")
				}
			}
		}},
		{Name: "floor/interface-call", New: func(*Teardown) func(int) {
			return func(n int) {
				for range n {
					must(callee.call())
				}
			}
		}},
		{Name: "floor/2clocks", New: func(*Teardown) func(int) {
			return func(n int) {
				var sum time.Duration
				for range n {
					start := time.Since(base)
					sum += time.Since(base) - start
				}
				must(sum >= 0)
			}
		}},
		{Name: "floor/2adds", New: func(*Teardown) func(int) {
			return func(n int) {
				for range n {
					words.a.Add(1)
					words.b.Add(2)
				}
			}
		}},
		{Name: "floor/1lookup", New: func(*Teardown) func(int) {
			m := plainMap[pair]()
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(m[c.next()] != nil)
				}
			}
		}},
		{Name: "floor/1lookup-sync.Map", New: func(*Teardown) func(int) {
			var m sync.Map
			for name, p := range plainMap[pair]() {
				m.Store(name, p)
			}
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					p, ok := m.Load(c.next())
					must(ok && p.(*pair) != nil)
				}
			}
		}},
	}
}

// sums are the cases of several parts. A sum is one loop that does all its parts, not a
// sum of figures: parts that overlap in the processor cost less together.
func sums() []Case {
	var words pair
	return []Case{
		{Name: FloorRefusal, New: func(*Teardown) func(int) {
			m := plainMap[pair]()
			return func(n int) {
				c := over(thousand.Lookups)
				var sum time.Duration
				for range n {
					must(m[c.next()] != nil)
					sum += time.Since(base)
				}
				must(sum >= 0)
			}
		}},
		{Name: "floor/2adds+1lookup", New: func(*Teardown) func(int) {
			m := plainMap[pair]()
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					must(m[c.next()] != nil)
					words.a.Add(1)
					words.b.Add(2)
				}
			}
		}},
	}
}

// gateSums are the cases of the parts that a call through a Gate cannot do without.
func gateSums() []Case {
	var words pair
	return []Case{
		{Name: FloorGate, New: func(*Teardown) func(int) {
			m := plainMap[pair]()
			return func(n int) {
				c := over(thousand.Lookups)
				var sum time.Duration
				for range n {
					must(m[c.next()] != nil)
					start := time.Since(base)
					words.a.Add(1)
					took := time.Since(base) - start
					words.b.Add(int64(took))
					sum += took
				}
				must(sum >= 0)
			}
		}},
		// The additions go to the word that was looked up, as in any registry: 1,000
		// words do not stay in the nearest cache.
		{Name: "floor/2clocks+2adds-there+1lookup", New: func(*Teardown) func(int) {
			m := plainMap[pair]()
			return func(n int) {
				c := over(thousand.Lookups)
				var sum time.Duration
				for range n {
					p := m[c.next()]
					start := time.Since(base)
					p.a.Add(1)
					took := time.Since(base) - start
					p.b.Add(int64(took))
					sum += took
				}
				must(sum >= 0)
			}
		}},
	}
}
