package bench

import (
	"fmt"
	"math"
)

// Bar is one promise about speed or size, as a limit on a measured figure.
type Bar struct {
	What     string
	Limit    float64
	AtLeast  bool // the figure must reach the limit; false means that it must not exceed it
	Unit     string
	Measured float64 // measured figure; NaN means that a case was not measured
}

// Met reports whether the bar is met.
func (b Bar) Met() bool {
	if b.AtLeast {
		return b.Measured >= b.Limit
	}
	return b.Measured <= b.Limit
}

// Verdict returns "met", "not met", or "not measured".
func (b Bar) Verdict() string {
	switch {
	case math.IsNaN(b.Measured):
		return "not measured"
	case b.Met():
		return "met"
	}
	return "**not met**"
}

// Bound returns the limit as text, such as "<= 1.35 x".
func (b Bar) Bound() string {
	sign := "<="
	if b.AtLeast {
		sign = ">="
	}
	return fmt.Sprintf("%s %g%s", sign, b.Limit, b.Unit)
}

// Medians are the figures of one run, by the names of the cases.
type Medians struct{ Ns, Allocs map[string]float64 }

func (m Medians) ns(name string) float64 {
	if v, ok := m.Ns[name]; ok {
		return v
	}
	return math.NaN()
}

func (m Medians) ratio(a, b string) float64 { return m.ns(a) / m.ns(b) }

func (m Medians) allocs(name string) float64 {
	if v, ok := m.Allocs[name]; ok {
		return math.Floor(v) // a background allocation of the runtime is not one of the call
	}
	return math.NaN()
}

// Bars returns the bars with what this run measured. Ratios are of medians of the
// same run, so that the machine does not matter, only its shape.
func Bars(m Medians, idle, registered Footprint) []Bar {
	const x = " x"
	hundred := m.ns(Summary100k) / 1e6
	return []Bar{
		{What: "Gate.Allow + Done by name : 2 clocks + 2 adds + 1 lookup", Limit: 1.45, Unit: x, Measured: m.ratio(GateDone, FloorGate)},
		{What: "Gate.Allow + Done of a tool in a group : of one in none", Limit: 1.1, Unit: x, Measured: m.ratio(GateGrouped, GateDone)},
		{What: "AllowRequest + RecordSuccess of a tool in a group : gobreaker Execute by name", Limit: 0.35, Unit: x, Measured: m.ratio(ByNameGrouped, PeerGobreaker)},
		{What: "Gate.Allow + Done of a tool in a group, allocations", Limit: 0, Measured: m.allocs(GateGrouped)},
		{What: "Gate.Allow + Done, allocations", Limit: 0, Measured: m.allocs(GateDone)},
		{What: "gobreaker Execute by name : Gate.Allow + Done", Limit: 1.7, AtLeast: true, Unit: x, Measured: m.ratio(PeerGobreaker, GateDone)},
		{What: "AllowRequest + RecordSuccess : gobreaker Execute by name", Limit: 0.35, Unit: x, Measured: m.ratio(ByName, PeerGobreaker)},
		{What: "AllowRequest + RecordSuccess : failsafe-go permits by name", Limit: 0.85, Unit: x, Measured: m.ratio(ByName, PeerFailsafePermits)},
		{What: "AllowRequest + RecordSuccess, allocations", Limit: 0, Measured: m.allocs(ByName)},
		{What: "Guard, trivial call, no timeout, allocations", Limit: 3, Measured: m.allocs(GuardCall)},
		{What: "Guard, trivial call, no timeout : failsafe-go Executor by name", Limit: 1, Unit: x, Measured: m.ratio(GuardCall, PeerFailsafeExecutor)},
		{What: "Guard with a Timeout : failsafe-go Executor with breaker, retry and timeout", Limit: 0.6, Unit: x, Measured: m.ratio(GuardTimeout, PeerFailsafePolicies)},
		{What: "AllowRequest refused : 1 clock + 1 lookup", Limit: 1.5, Unit: x, Measured: m.ratio(ByNameRefused, FloorRefusal)},
		{What: "AllowRequest refused, allocations", Limit: 0, Measured: m.allocs(ByNameRefused)},
		{What: "Gate.Allow refused, allocations", Limit: 2, Measured: m.allocs(GateRefused)},
		{What: "two goroutines, own tools, throughput : one goroutine's", Limit: 1.8, AtLeast: true, Unit: x, Measured: m.ratio(GateOne, GateSpread2)},
		{What: "two goroutines, one tool, time of a call : uncontended", Limit: 1.5, Unit: x, Measured: 2 * m.ratio(GateHot2, GateHot1)},
		{What: "failure by name, allocations", Limit: 2, Measured: m.allocs(ByNameFailure)},
		{What: "failure by name : gobreaker Execute by name", Limit: 1, Unit: x, Measured: m.ratio(ByNameFailure, PeerGobreaker)},
		{What: "failure by Gate, allocations", Limit: 2, Measured: m.allocs(GateFailure)},
		{What: "memory of a tool with successes beyond its name", Limit: 800, Unit: " B", Measured: idle.BytesPerTool},
		{What: fmt.Sprintf("time to register %d tools", registered.Tools), Limit: 1, Unit: " s", Measured: registered.Took.Seconds()},
		{What: "HealthSummary of 100000 tools on one core", Limit: 100, Unit: " ms", Measured: hundred},
	}
}

// Footprints measures the figures of the bars of memory: the idle tool at the worst of
// a few sizes, because the table of names grows in steps, and 100,000 tools
// registered in the median of three times.
func Footprints() (idle, registered Footprint) {
	for _, n := range []int{1000, 10_000, 65_537, 100_000} {
		if f := MeasureFootprint(n, CallOnce); f.BytesPerTool > idle.BytesPerTool {
			idle = f
		}
	}
	var runs [3]Footprint
	for i := range runs {
		runs[i] = MeasureFootprint(100_000, Register)
	}
	return idle, middle(runs)
}

func middle(f [3]Footprint) Footprint {
	best := func(a, b Footprint) Footprint {
		if a.Took < b.Took {
			return a
		}
		return b
	}
	worst := func(a, b Footprint) Footprint {
		if a.Took < b.Took {
			return b
		}
		return a
	}
	return worst(best(f[0], f[1]), best(worst(f[0], f[1]), f[2]))
}
