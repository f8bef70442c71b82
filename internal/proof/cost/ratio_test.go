//go:build !race

package cost_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolhealth/toolhealth"
)

// recordedRatios are the costs of calls as ratios to a floor: one loop that does only
// what no such call can do without, such as a plain map lookup, clock readings and
// atomic additions. Ratios carry over from one machine to the next, nanoseconds
// do not. internal/bench has the full tables and the bars; this test only keeps a
// call from growing more expensive unnoticed.
//
// To record new ratios, run the test with -v on a quiet machine and copy its figures. The comments give the nanoseconds that each ratio was taken from.
var recordedRatios = []struct {
	what     string
	level    string // of ratioLevels
	floor    string // of ratioFloors
	recorded float64
}{
	{"AllowRequest + RecordSuccess", "by name", "lookup+adds", 2.0},                   // 36.2 : 17.9
	{"AllowRequest + RecordFailure", "failure by name", "lookup+adds", 6.9},           // 124 : 18.1
	{"AllowRequest, refused", "refused", "lookup+clock", 1.2},                         // 60.8 : 49.8
	{"Gate.Allow + Done", "gate", "lookup+clocks+adds", 1.2},                          // 92.2 : 78.1
	{"Gate.Allow + Done, failed", "failure by gate", "lookup+clocks+adds", 4.2},       // 324 : 78.2
	{"Guard, trivial call", "guard", "lookup+clocks+adds+cancel", 1.5},                // 211 : 141
	{"Guard with a Timeout", "guard with timeout", "lookup+clocks+adds+timeout", 1.2}, // 448 : 379
}

// ratioSlack is how much a ratio may grow before the test fails: by a third.
const ratioSlack = 4.0 / 3

// Each round times every loop once. A loop takes about a tenth of a millisecond, so
// even a busy machine leaves some rounds undisturbed, and the quickest time of all
// rounds counts. Noise only makes a loop slower, so one attempt within the bounds
// is enough.
const (
	ratioAttempts = 12
	ratioRounds   = 150
	ratioCalls    = 1000
)

func TestCall_CostsLittleMoreThanItsParts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if testing.CoverMode() != "" {
		t.Skip("counting statements costs more than running them")
	}
	loops := ratioFloors()
	for name, loop := range ratioLevels(t) {
		loops[name] = loop
	}
	var report []string
	best := make(map[string]time.Duration)
	for attempt := range ratioAttempts {
		timeLoops(loops, best)
		report = report[:0]
		within := true
		for _, r := range recordedRatios {
			ratio := float64(best[r.level]) / float64(best[r.floor])
			report = append(report, fmt.Sprintf("%s: %.1f ns, %.2f x (%s), recorded %.2f x",
				r.what, float64(best[r.level])/ratioCalls, ratio, r.floor, r.recorded))
			within = within && ratio <= r.recorded*ratioSlack
		}
		if within {
			t.Logf("attempt %d:\n%s", attempt+1, strings.Join(report, "\n"))
			return
		}
	}
	t.Fatalf("a ratio is more than a third above what was recorded:\n%s", strings.Join(report, "\n"))
}

// timeLoops keeps the quickest time of each loop in best.
func timeLoops(loops map[string]func(), best map[string]time.Duration) {
	for range ratioRounds {
		for name, loop := range loops {
			start := time.Now()
			loop()
			took := time.Since(start)
			if old, timed := best[name]; !timed || took < old {
				best[name] = took
			}
		}
	}
}

// ratioNames returns 1,000 names, and copies of them for lookups: allocated apart,
// as the names in decoded requests are, and in an order without neighbors.
func ratioNames() (names, lookups []string) {
	const n, stride = 1000, 389
	names, lookups = make([]string, n), make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("server-%02d/do_thing_%05d", i%23, i)
		lookups[i*stride%n] = strings.Clone(names[i])
	}
	return names, lookups
}

// overRatioNames returns a loop that calls call once for each name.
func overRatioNames(call func(name string)) func() {
	_, lookups := ratioNames()
	return func() {
		for i := range ratioCalls {
			call(lookups[i%len(lookups)])
		}
	}
}

// ratioFloors returns the loops that the ratios are taken to.
func ratioFloors() map[string]func() {
	names, _ := ratioNames()
	base := time.Now()
	table := make(map[string]*int)
	for i, name := range names {
		table[name] = &i
	}
	var a, b atomic.Int64
	lookup := func(name string) {
		if table[name] == nil {
			panic(name)
		}
	}
	return map[string]func(){
		"lookup+adds": overRatioNames(func(name string) {
			lookup(name)
			a.Add(1)
			b.Add(1)
		}),
		"lookup+clock": overRatioNames(func(name string) {
			lookup(name)
			if time.Since(base) < 0 {
				panic("the clock went back")
			}
		}),
		"lookup+clocks+adds": overRatioNames(func(name string) {
			lookup(name)
			start := time.Since(base)
			a.Add(1)
			b.Add(int64(time.Since(base) - start))
		}),
		"lookup+clocks+adds+cancel": overRatioNames(func(name string) {
			lookup(name)
			start := time.Since(base)
			a.Add(1)
			_, cancel := context.WithCancel(context.Background())
			cancel()
			b.Add(int64(time.Since(base) - start))
		}),
		"lookup+clocks+adds+timeout": overRatioNames(func(name string) {
			lookup(name)
			start := time.Since(base)
			a.Add(1)
			_, cancel := context.WithTimeout(context.Background(), time.Minute)
			cancel()
			b.Add(int64(time.Since(base) - start))
		}),
	}
}

// ratioLevels returns the loops of calls at each level of the library.
func ratioLevels(t *testing.T) map[string]func() {
	names, _ := ratioNames()
	closed, open := toolhealth.NewRegistry(), toolhealth.NewRegistry()
	for _, name := range names {
		closed.RecordSuccess(name, time.Second)
		for open.AllowRequest(name) {
			open.RecordFailure(name, time.Millisecond)
		}
	}
	neverOpens := toolhealth.DefaultConfig()
	neverOpens.Breaker.FailureThreshold = math.MaxInt32
	failing, err := toolhealth.NewRegistryWithConfig(neverOpens)
	if err != nil {
		t.Fatal(err)
	}
	gate, failingGate := &toolhealth.Gate{Registry: closed}, &toolhealth.Gate{Registry: failing}
	guard := newGuard(t, gate, toolhealth.GuardConfig{Default: toolhealth.Policy{Timeout: toolhealth.Off}})
	limitedGuard := newGuard(t, gate, toolhealth.GuardConfig{})
	failure := errors.New("boom")
	ctx := context.Background()
	answer := func(context.Context, string) (int, error) { return 42, nil }
	return map[string]func(){
		"by name": overRatioNames(func(name string) {
			if !closed.AllowRequest(name) {
				panic(name)
			}
			closed.RecordSuccess(name, time.Microsecond)
		}),
		"failure by name": overRatioNames(func(name string) {
			if !failing.AllowRequest(name) {
				panic(name)
			}
			failing.RecordFailure(name, time.Microsecond)
		}),
		"failure by gate": overRatioNames(func(name string) {
			permit, err := failingGate.Allow(ctx, name)
			if err != nil {
				panic(err)
			}
			permit.Done(ctx, failure)
		}),
		"refused": overRatioNames(func(name string) {
			if open.AllowRequest(name) {
				panic(name)
			}
		}),
		"gate": overRatioNames(func(name string) {
			permit, err := gate.Allow(ctx, name)
			if err != nil {
				panic(err)
			}
			permit.Done(ctx, nil)
		}),
		"guard": overRatioNames(func(name string) {
			if _, err := toolhealth.Call(ctx, guard, name, answer); err != nil {
				panic(err)
			}
		}),
		"guard with timeout": overRatioNames(func(name string) {
			if _, err := toolhealth.Call(ctx, limitedGuard, name, answer); err != nil {
				panic(err)
			}
		}),
	}
}

func newGuard(t *testing.T, gate *toolhealth.Gate, config toolhealth.GuardConfig) *toolhealth.Guard {
	guard, err := toolhealth.NewGuard(gate, config)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}
