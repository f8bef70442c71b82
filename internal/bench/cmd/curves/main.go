// Command curves measures how the cost of a call and of a tool grows, and draws
// one SVG each into curves/. README.md says why the curves have their shapes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/bench"
)

var (
	dir    = flag.String("dir", "curves", "directory to write to")
	only   = flag.String("run", "", "draw only the curves whose names match this regular expression")
	rounds = flag.Int("rounds", 7, "how often each point is measured; the median counts")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	match := regexp.MustCompile(*only)
	for _, c := range []struct {
		name string
		draw func() chart
	}{
		{"tools", byTools},
		{"goroutines", byGoroutines},
		{"processors", byProcessors},
		{"failures", byFailures},
		{"contention", byContention},
		{"memory", byMemory},
		{"register-time", registerTime},
		{"register-memory", registerMemory},
		{"pause", pause},
	} {
		if !match.MatchString(c.name) {
			continue
		}
		picture := c.draw()
		fmt.Printf("%s\n", c.name)
		for _, l := range picture.lines {
			fmt.Printf("  %-40s", l.name)
			for i := range l.x {
				fmt.Printf(" %.4g:%.4g", l.x[i], l.y[i])
			}
			fmt.Println()
		}
		if err := os.WriteFile(filepath.Join(*dir, c.name+".svg"), []byte(picture.svg()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// curve is a line that is not measured yet: a case for each x.
type curve struct {
	name string
	at   func(x int) bench.Case
}

// measure measures all points of all curves, round after round, and returns the
// medians as of gives them.
func measure(benchtime time.Duration, xs []int, curves []curve, of func(bench.Result) float64) []line {
	y := make(bench.Yardstick)
	samples := make([][][]bench.Result, len(curves))
	for i := range samples {
		samples[i] = make([][]bench.Result, len(xs))
	}
	for range *rounds {
		for i, c := range curves {
			for j, x := range xs {
				samples[i][j] = append(samples[i][j], bench.Measure(c.at(x), benchtime, y))
			}
		}
	}
	lines := make([]line, len(curves))
	for i, c := range curves {
		lines[i].name = c.name
		for j, x := range xs {
			lines[i].x = append(lines[i].x, float64(x))
			var ys []float64
			for _, r := range bench.Undisturbed(samples[i][j]) {
				ys = append(ys, of(r))
			}
			if bench.Undisturbed(samples[i][j])[0].Disturbed {
				log.Printf("%s at %d: never had the processors to itself", c.name, x)
			}
			lines[i].y = append(lines[i].y, median(ys))
		}
	}
	return lines
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func nanoseconds(r bench.Result) float64   { return r.NsPerOp }
func callsPerMicro(r bench.Result) float64 { return 1000 / r.NsPerOp }
func serial(run func(n int)) bench.Case    { return parallel(0, 0, run) }
func gate(names []string) *toolhealth.Gate {
	return &toolhealth.Gate{Registry: bench.NewRegistry(names)}
}
func rotated(names []string, by int) []string { return slices.Concat(names[by:], names[:by]) }

func parallel(procs, workers int, run func(n int)) bench.Case {
	return bench.Case{Procs: procs, Workers: workers, New: func(*bench.Teardown) func(int) { return run }}
}

func byTools() chart {
	xs := []int{10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000}
	all := make(map[int]bench.Names)
	for _, x := range xs {
		all[x] = bench.NewNames(x)
	}
	return chart{
		title: "A call that succeeds, by the number of tools", xLabel: "tools", yLabel: "ns a call", xLog: true,
		lines: measure(20*time.Millisecond, xs, []curve{
			{"one lookup in a plain map", func(x int) bench.Case {
				m := make(map[string]*int)
				for i, name := range all[x].Registered {
					m[name] = &i
				}
				names := all[x].Lookups
				return serial(func(n int) {
					for i := range n {
						if m[names[i%len(names)]] == nil {
							panic("not there")
						}
					}
				})
			}},
			{"by name", func(x int) bench.Case {
				r := bench.NewRegistry(all[x].Registered)
				return serial(func(n int) { bench.ByNameCalls(r, all[x].Lookups, n) })
			}},
			{"Gate", func(x int) bench.Case {
				g := gate(all[x].Registered)
				return serial(func(n int) { bench.GateCalls(g, all[x].Lookups, n) })
			}},
			{"gobreaker in a sync.Map", func(x int) bench.Case {
				var m sync.Map
				for _, name := range all[x].Registered {
					m.Store(name, gobreaker.NewCircuitBreaker[int](gobreaker.Settings{}))
				}
				names := all[x].Lookups
				return serial(func(n int) {
					for i := range n {
						b, _ := m.Load(names[i%len(names)])
						if _, err := b.(*gobreaker.CircuitBreaker[int]).Execute(func() (int, error) { return 1, nil }); err != nil {
							panic(err)
						}
					}
				})
			}},
		}, nanoseconds),
	}
}

func byGoroutines() chart {
	xs := []int{1, 2, 4, 10, 30, 100, 300, 1000}
	names := bench.NewNames(1000)
	spread := func(call func(names []string, n int)) func(int) bench.Case {
		return func(k int) bench.Case {
			own := make([][]string, k) // each goroutine begins at another tool
			for w := range own {
				own[w] = rotated(names.Lookups, w*1000/k)
			}
			return parallel(2, min(k, 2), func(n int) {
				bench.Spread(k, n, func(w, n int) { call(own[w], n) })
			})
		}
	}
	hot := func(call func(names []string, n int)) func(int) bench.Case {
		return func(k int) bench.Case {
			return parallel(2, min(k, 2), func(n int) {
				bench.Spread(k, n, func(_, n int) { call(names.Lookups[:1], n) })
			})
		}
	}
	g := gate(names.Registered)
	byName := func(names []string, n int) { bench.ByNameCalls(g.Registry, names, n) }
	byGate := func(names []string, n int) { bench.GateCalls(g, names, n) }
	return chart{
		title: "Two processors, by the number of goroutines", xLabel: "goroutines", yLabel: "ns a call, of the wall clock", xLog: true,
		lines: measure(60*time.Millisecond, xs, []curve{
			{"by name, 1,000 tools", spread(byName)},
			{"by name, one tool", hot(byName)},
			{"Gate, 1,000 tools", spread(byGate)},
			{"Gate, one tool", hot(byGate)},
		}, nanoseconds),
	}
}

func byProcessors() chart {
	names := bench.NewNames(1000)
	g := gate(names.Registered)
	shared := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})
	on := func(call func(worker, n int)) func(int) bench.Case {
		return func(procs int) bench.Case {
			return parallel(procs, procs, func(n int) { bench.Spread(2, n, call) })
		}
	}
	half := func(w int) []string { return names.Lookups[w*500 : (w+1)*500] }
	return chart{
		title: "Two goroutines, by GOMAXPROCS", xLabel: "GOMAXPROCS", yLabel: "calls a microsecond, of both",
		xTicks: []tick{{1, "1"}, {2, "2"}},
		lines: measure(40*time.Millisecond, []int{1, 2}, []curve{
			{"by name, own tools", on(func(w, n int) { bench.ByNameCalls(g.Registry, half(w), n) })},
			{"by name, one tool", on(func(_, n int) { bench.ByNameCalls(g.Registry, names.Lookups[:1], n) })},
			{"Gate, own tools", on(func(w, n int) { bench.GateCalls(g, half(w), n) })},
			{"Gate, one tool", on(func(_, n int) { bench.GateCalls(g, names.Lookups[:1], n) })},
			{"gobreaker, one breaker", on(func(_, n int) {
				for range n {
					if _, err := shared.Execute(func() (int, error) { return 1, nil }); err != nil {
						panic(err)
					}
				}
			})},
		}, callsPerMicro),
	}
}

// outcomes are a fixed random sequence with this share of failures.
func outcomes(percent int) []bool {
	random := rand.New(rand.NewPCG(1, uint64(percent)))
	fails := make([]bool, 4096)
	for i := range fails {
		fails[i] = random.IntN(100) < percent
	}
	return fails
}

func byFailures() chart {
	names := bench.NewNames(1000)
	err := fmt.Errorf("upstream said no")
	byName := func(r *toolhealth.Registry, percent int) bench.Case {
		fails := outcomes(percent)
		i := 0 // over calls of the loop too, so that names and outcomes do not fall into step
		return serial(func(n int) {
			for range n {
				name := names.Lookups[i%1000]
				if r.AllowRequest(name) {
					if fails[i%4096] {
						r.RecordFailure(name, time.Microsecond)
					} else {
						r.RecordSuccess(name, time.Microsecond)
					}
				}
				i++
			}
		})
	}
	return chart{
		title: "By the share of calls that fail", xLabel: "failures, %", yLabel: "ns a call",
		lines: measure(20*time.Millisecond, []int{0, 10, 25, 50, 75, 90, 100}, []curve{
			{"by name, never opens", func(x int) bench.Case {
				return byName(bench.NewRegistry(names.Registered, bench.NeverOpens), x)
			}},
			{"by name, opens after 3", func(x int) bench.Case {
				return byName(bench.NewRegistry(names.Registered), x)
			}},
			{"Gate, never opens", func(x int) bench.Case {
				g := &toolhealth.Gate{Registry: bench.NewRegistry(names.Registered, bench.NeverOpens)}
				fails := outcomes(x)
				i := 0
				return serial(func(n int) {
					for range n {
						permit, refused := g.Allow(context.Background(), names.Lookups[i%1000])
						if refused != nil {
							panic(refused)
						}
						if fails[i%4096] {
							permit.Done(context.Background(), err)
						} else {
							permit.Done(context.Background(), nil)
						}
						i++
					}
				})
			}},
		}, nanoseconds),
	}
}

func byContention() chart {
	names := bench.NewNames(1000)
	g := gate(names.Registered)
	// order gives each worker its half of the tools, but the hot one for this share.
	order := func(percent, worker int) []string {
		own := slices.Clone(names.Lookups[worker*500 : (worker+1)*500])
		for i, hot := range outcomes(percent)[:len(own)] {
			if hot {
				own[i] = names.Lookups[0]
			}
		}
		return own
	}
	two := func(call func(names []string, n int)) func(int) bench.Case {
		return func(percent int) bench.Case {
			orders := [2][]string{order(percent, 0), order(percent, 1)}
			return parallel(2, 2, func(n int) { bench.Spread(2, n, func(w, n int) { call(orders[w], n) }) })
		}
	}
	return chart{
		title: "Two goroutines on two processors, by the share of calls to one hot tool", xLabel: "calls to the hot tool, %",
		yLabel: "ns a call, of the wall clock",
		lines: measure(40*time.Millisecond, []int{0, 10, 25, 50, 75, 90, 100}, []curve{
			{"by name", two(func(names []string, n int) { bench.ByNameCalls(g.Registry, names, n) })},
			{"Gate", two(func(names []string, n int) { bench.GateCalls(g, names, n) })},
		}, nanoseconds),
	}
}

func byMemory() chart {
	xs := []int{100, 300, 1000, 2000, 3000, 5000, 10_000, 20_000, 30_000, 50_000, 100_000}
	at := func(name string, add func(*toolhealth.Registry, string)) line {
		l := line{name: name}
		for _, n := range xs {
			l.x = append(l.x, float64(n))
			l.y = append(l.y, bench.MeasureFootprint(n, add).BytesPerTool)
		}
		return l
	}
	return chart{
		title: "Memory of a tool beyond its name", xLabel: "tools", yLabel: "bytes a tool", xLog: true,
		lines: []line{at("registered", bench.Register), at("called once", bench.CallOnce), at("open", bench.Open)},
	}
}

// registering registers 100,000 names and calls each after every 2,000.
func registering(names []string, each func(tools int)) {
	c := toolhealth.DefaultConfig()
	c.MaxTools = len(names)
	r, err := toolhealth.NewRegistryWithConfig(c)
	if err != nil {
		panic(err)
	}
	for i, name := range names {
		bench.Register(r, name)
		if (i+1)%2000 == 0 {
			each(i + 1)
		}
	}
	runtime.KeepAlive(r)
}

func registerTime() chart {
	samples := make(map[int][]float64)
	names := bench.NewNames(100_000).Registered
	for range *rounds {
		runtime.GC()
		start := time.Now()
		registering(names, func(n int) {
			samples[n] = append(samples[n], float64(time.Since(start).Microseconds())/1000)
		})
	}
	l := line{name: "all so far"}
	for n := 2000; n <= 100_000; n += 2000 {
		l.x, l.y = append(l.x, float64(n)), append(l.y, median(samples[n]))
	}
	return chart{title: "Registering 100,000 names: time", xLabel: "names", yLabel: "ms", lines: []line{l}}
}

func registerMemory() chart {
	var m runtime.MemStats
	names := bench.NewNames(100_000).Registered
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	l := line{name: "live heap, names included"}
	registering(names, func(n int) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		l.x, l.y = append(l.x, float64(n)), append(l.y, float64(int64(m.HeapAlloc)-int64(before))/1e6)
	})
	return chart{title: "Registering 100,000 names: memory", xLabel: "names", yLabel: "MB", lines: []line{l}}
}

// quantiles are the shares of calls that pause draws.
var quantiles = []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999}

func pause() chart {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	names := bench.NewNames(10_000)
	g := gate(names.Registered)
	beside := func(name string, other func()) line { return beside(name, g, names.Lookups, other) }
	c := chart{
		title: "A call through the Gate among 10,000 tools, while another goroutine ...", xLabel: "of the calls took at most this long",
		yLabel: "ns, two readings of the clock included", yLog: true,
		lines: []line{
			beside("is not there", nil),
			beside("computes", func() { runtime.KeepAlive(spin()) }),
			beside("allocates like a summary", func() { runtime.KeepAlive(make([]toolhealth.ToolHealth, 10_000)) }),
			beside("takes summaries", func() { g.Registry.HealthSummary() }),
		},
	}
	for _, q := range quantiles {
		c.xTicks = append(c.xTicks, tick{-math.Log10(1 - q), fmt.Sprintf("%.4g %%", 100*q)})
	}
	return c
}

// beside times single calls while other runs on the other processor, again and again;
// nil for nothing there.
func beside(name string, g *toolhealth.Gate, names []string, other func()) line {
	var stop atomic.Bool
	var wg sync.WaitGroup
	if other != nil {
		wg.Go(func() {
			for !stop.Load() {
				other()
			}
		})
	}
	// Calls come in batches. A batch is left out if the kernel gave the processor
	// to another program meanwhile, but not if this thread gave it up.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const batch = 100
	took := make([]time.Duration, 0, 2_000_000)
	for len(took)+batch <= cap(took) {
		kept, interrupted := len(took), bench.Interrupted()
		for i := range batch {
			start := time.Now()
			permit, err := g.Allow(context.Background(), names[(kept+i)%len(names)])
			if err != nil {
				panic(err)
			}
			permit.Done(context.Background(), nil)
			took = append(took, time.Since(start))
		}
		if bench.Interrupted() != interrupted {
			took = took[:kept]
		}
	}
	stop.Store(true)
	wg.Wait()
	slices.Sort(took)
	l := line{name: name}
	for _, q := range quantiles {
		l.x = append(l.x, -math.Log10(1-q))
		l.y = append(l.y, float64(took[int(q*float64(len(took)))]))
	}
	return l
}

//go:noinline
func spin() (sum uint64) {
	for i := range uint64(100_000) {
		sum += i * i
	}
	return sum
}
