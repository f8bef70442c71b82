// Package bench measures toolhealth against the least cost of its parts (the floors)
// and against other Go circuit breakers (the peers).
//
// Every case is a loop written out in full, over names that were allocated apart
// from the registered ones: names come out of a decoded request, so a lookup has
// to compare their bytes. README.md says how to run it; RESULTS.md has figures.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Case is one thing to measure.
type Case struct {
	Name  string // name in the output of go test -bench, without spaces
	Keeps string // data that a peer or a level of the library records of each call
	Procs int    // GOMAXPROCS while the case runs; zero means no change
	// Workers is the number of goroutines that are busy all the time. Zero means that
	// the loop runs on one thread and waits for no other.
	Workers int
	// Last is true if the case leaves goroutines or global state behind: go test
	// -bench, where all cases share a process, runs it after the others.
	Last bool
	// New sets up the case and returns the loop of n calls. The loop must panic if a
	// call does not have the result that the case is named for.
	New func(t *Teardown) func(n int)
}

// Teardown collects functions to call after a case.
type Teardown struct{ fns []func() }

// Add makes Run call fn.
func (t *Teardown) Add(fn func()) { t.fns = append(t.fns, fn) }

// Run calls the added functions.
func (t *Teardown) Run() {
	for _, fn := range t.fns {
		fn()
	}
}

// Result is one measurement of one case.
type Result struct {
	Case       string
	N          int
	NsPerOp    float64
	AllocsOp   float64
	BytesPerOp float64
	Disturbed  bool // no slice had the processor alone; NsPerOp is too high
	Yardstick  Yardstick
}

// Undisturbed returns the results that are not disturbed, or all if there is none.
func Undisturbed(results []Result) []Result {
	var quiet []Result
	for _, r := range results {
		if !r.Disturbed {
			quiet = append(quiet, r)
		}
	}
	if quiet == nil {
		return results
	}
	return quiet
}

// String returns the line of go test -bench for the result, for benchstat.
func (r Result) String() string {
	return fmt.Sprintf("Benchmark%s\t%d\t%.2f ns/op\t%.0f B/op\t%.0f allocs/op", r.Case, r.N, r.NsPerOp, r.BytesPerOp, r.AllocsOp)
}

// Measure runs a case for about as long as benchtime, in slices of a tenth of it,
// after it has run for that long unmeasured, or until the collector has settled.
// Slices during which the kernel gave the processor to another program are thrown
// away (their processor time is less than their time, see cpuTime), and so are
// slices before or after which the yardstick took a tenth longer than at best. The
// rest is averaged, so that the share of the garbage collector is in it. In a case that
// keeps the collector busy a thread waits for it, too, so that there only the yardstick
// decides: or the dearest slices would be left out. If no slice
// is left, the quickest one stands for all. y is the yardstick of earlier
// measurements.
func Measure(c Case, benchtime time.Duration, y Yardstick) Result {
	if c.Procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.Procs))
	}
	if c.Workers == 0 { // so that the processor time of this thread is that of the loop
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	var t Teardown
	defer t.Run()
	run := c.New(&t)
	runtime.GC() // garbage of the case before

	slice, patience := benchtime/10, 10*benchtime
	if c.Workers > 1 { // needs more than one processor at once
		patience *= 4
	}
	n := calibrate(run, slice)
	collects := warmUp(run, n, benchtime)
	for range 20 {
		y.quiet(c.Workers)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var calls, kept int
	var took, spent time.Duration
	quickest := time.Duration(math.MaxInt64)
	quiet := y.quiet(c.Workers)
	for took < benchtime && spent < patience {
		d, undisturbed := timed(run, n, c.Workers)
		wasQuiet := quiet
		quiet = y.quiet(c.Workers)
		if (undisturbed || collects) && wasQuiet && quiet {
			kept += n
			took += d
		}
		calls += n
		spent += d
		quickest = min(quickest, d)
	}
	runtime.ReadMemStats(&after)
	disturbed := kept == 0
	if disturbed {
		kept, took = n, quickest
	}
	return Result{
		Case: c.Name, N: kept, Disturbed: disturbed, Yardstick: y,
		NsPerOp:    float64(took.Nanoseconds()) / float64(kept),
		AllocsOp:   float64(after.Mallocs-before.Mallocs) / float64(calls),
		BytesPerOp: float64(after.TotalAlloc-before.TotalAlloc) / float64(calls),
	}
}

// settled is how many cycles of the collector a case runs unmeasured: the first ones pay
// for memory that the process has never touched, which a service has done long ago.
const settled = 10

// warmUp runs a case for benchtime and, if the collector runs meanwhile, until that has
// settled. It reports whether the collector ran.
func warmUp(run func(int), n int, benchtime time.Duration) bool {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	first := m.NumGC
	for start := time.Now(); ; {
		run(n)
		runtime.ReadMemStats(&m)
		cycles, took := m.NumGC-first, time.Since(start)
		if took >= benchtime && (cycles == 0 || cycles >= settled || took >= 20*benchtime) {
			return cycles > 0
		}
	}
}

// calibrate returns how many calls fit into a slice. It warms the caches up too.
func calibrate(run func(int), slice time.Duration) int {
	best := make(map[int]time.Duration)
	for n := 1; ; {
		start := time.Now()
		run(n)
		took := time.Since(start)
		if b, again := best[n]; again {
			took = min(took, b)
		}
		if took >= slice/2 {
			if _, again := best[n]; again || took >= 4*slice {
				return max(1, int(float64(n)*float64(slice)/float64(took)))
			}
			best[n] = took // repeat: this one may have been disturbed
			continue
		}
		grow := int(float64(n) * float64(slice) / float64(max(took, 1)))
		n = min(max(grow, n+1), 20*n)
	}
}

// timed runs n calls. It returns the time they took and reports whether the loop had
// the processor all the time.
func timed(run func(int), n, workers int) (took time.Duration, undisturbed bool) {
	cpu, start := cpuTime(workers), time.Now()
	run(n)
	took = time.Since(start)
	cpu = cpuTime(workers) - cpu
	return took, float64(cpu) >= 0.96*float64(max(workers, 1))*float64(took)
}

// CaseNamed returns the case of this name, and panics if there is none.
func CaseNamed(name string) Case {
	cases := Cases()
	i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("there is no case %q", name))
	}
	return cases[i]
}

// Cases returns every case, the ones that leave something behind last.
func Cases() []Case {
	var first, last []Case
	for _, group := range [][]Case{floors(), library(), guards(), parallel(), peers()} {
		for _, c := range group {
			if c.Last {
				last = append(last, c)
			} else {
				first = append(first, c)
			}
		}
	}
	return append(first, last...)
}

// tools is the number of names of the keyed cases.
const tools = 1000

var (
	errBoom = errors.New("boom")
	bg      = context.Background()
)

// Names are n registered names and n names for lookups: the same texts, allocated
// apart, in an order in which no two neighbors follow each other.
type Names struct{ Registered, Lookups []string }

// NewNames returns n names of 21 to 23 bytes.
func NewNames(n int) Names {
	names := Names{make([]string, n), make([]string, n)}
	for i := range n {
		names.Registered[i] = fmt.Sprintf("server-%02d/do_thing_%05d", i%23, i)
	}
	const stride = 389 // prime: visits every index for any n that it does not divide
	for i := range n {
		names.Lookups[i*stride%n] = strings.Clone(names.Registered[i])
	}
	return names
}

var thousand = NewNames(tools)

// cursor walks over the names to look up, round and round.
type cursor struct {
	names []string
	i     int
}

func over(names []string) cursor { return cursor{names: names} }

func (c *cursor) next() string {
	name := c.names[c.i]
	if c.i++; c.i == len(c.names) {
		c.i = 0
	}
	return name
}

// must checks the result of a call, so that the case measures what its name says.
func must(ok bool) {
	if !ok {
		panic("the call did not go the way that is measured")
	}
}
