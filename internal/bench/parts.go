package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth"
)

// The names of the least that some calls could cost: what they build on, and of
// the rest only what no way of writing them could leave out.
const (
	LeastGate          = "least/gate/2clocks+4adds-there+1lookup"
	LeastGuard         = "least/guard/gate+1context"
	LeastFailure       = "least/failure/by-name+1clock+1snapshot"
	LeastFailureByGate = "least/failure/gate+1snapshot"
	LeastJudgedByGate  = "least/failure/gate+1snapshot+classify"
)

// attemptContext is as large as the context that a guarded attempt gets.
type attemptContext struct {
	context.Context
	_ *int
}

// aSnapshot is as large as what a breaker remembers: a new one for each change.
type aSnapshot struct {
	_ *int
	_ [104]byte
}

var sinkContext context.Context

func parts() []Case {
	var snapshots [tools]atomic.Pointer[aSnapshot]
	publish := func(i int) {
		p := &snapshots[i%tools]
		must(p.CompareAndSwap(p.Load(), new(aSnapshot)))
	}
	gate := func(name string, rest func(i int)) Case {
		return Case{Name: name, New: func(*Teardown) func(int) {
			g := &toolhealth.Gate{Registry: NewRegistry(thousand.Registered)}
			return func(n int) {
				c := over(thousand.Lookups)
				for i := range n {
					permit, err := g.Allow(bg, c.next())
					must(err == nil)
					rest(i)
					permit.Done(bg, nil)
				}
			}
		}}
	}
	return []Case{
		// A permit is counted when it is given out, settled by one caller only, and
		// its outcome has a number and a duration.
		{Name: LeastGate, New: func(*Teardown) func(int) {
			type words struct{ admitted, settled, ok, sum atomic.Int64 }
			m := plainMap[words]()
			return func(n int) {
				c := over(thousand.Lookups)
				for range n {
					p := m[c.next()]
					p.admitted.Add(1)
					start := time.Since(base)
					p.settled.Swap(1)
					took := time.Since(base) - start
					p.ok.Add(1)
					p.sum.Add(int64(took))
				}
			}
		}},
		gate(LeastGuard, func(int) { sinkContext = &attemptContext{Context: bg} }),
		{Name: LeastFailure, New: func(*Teardown) func(int) {
			r := NewRegistry(thousand.Registered)
			return func(n int) {
				c := over(thousand.Lookups)
				var sum time.Duration
				for i := range n {
					name := c.next()
					must(r.AllowRequest(name))
					r.RecordSuccess(name, time.Microsecond)
					sum += time.Since(base)
					publish(i)
				}
				sinkDuration = sum
			}
		}},
		gate(LeastFailureByGate, publish),
		gate(LeastJudgedByGate, func(i int) {
			publish(i)
			must(toolhealth.Classify(bg, errBoom).Outcome == toolhealth.OutcomeFailure)
		}),
	}
}
