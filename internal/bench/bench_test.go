package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestCases_DoWhatTheirNamesSay sets every case up and runs it a few times:
// each loop panics if a call has another result than the one that is measured.
func TestCases_DoWhatTheirNamesSay(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			calls := 2*tools + 1 // every name more than once
			if strings.HasPrefix(c.Name, "toolhealth/summary/") {
				calls = 2
			}
			var down Teardown
			defer down.Run()
			run := c.New(&down)
			run(1)
			run(calls)
		})
	}
}

// Benchmark runs every case under go test -bench, for profiles of one of them.
func Benchmark(b *testing.B) {
	for _, c := range Cases() {
		b.Run(c.Name, func(b *testing.B) {
			var down Teardown
			defer down.Run()
			run := c.New(&down)
			b.ReportAllocs()
			b.ResetTimer()
			run(b.N)
		})
	}
}

func TestBars_HaveTheirCases(t *testing.T) {
	m := Medians{Ns: make(map[string]float64), Allocs: make(map[string]float64)}
	for _, c := range Cases() {
		m.Ns[c.Name], m.Allocs[c.Name] = 1, 0
	}
	for _, b := range Bars(m, Footprint{}, Footprint{}) {
		if b.Verdict() == "not measured" {
			t.Errorf("%s: needs a case that does not exist", b.What)
		}
	}
	delete(m.Ns, GateDone)
	if got := Bars(m, Footprint{}, Footprint{})[0].Verdict(); got != "not measured" {
		t.Errorf("a bar without its case is %s", got)
	}
}

func TestBar_IsMetAtItsLimit(t *testing.T) {
	for _, c := range []struct {
		measured float64
		atLeast  bool
		met      bool
	}{{1.5, false, true}, {1.51, false, false}, {1.5, true, true}, {1.49, true, false}} {
		if b := (Bar{Limit: 1.5, AtLeast: c.atLeast, Measured: c.measured}); b.Met() != c.met {
			t.Errorf("%v, at least %v: met is %v", c.measured, c.atLeast, b.Met())
		}
	}
}

func TestMeasure_CountsAllocations(t *testing.T) {
	var sink *[64]byte
	r := Measure(Case{Name: "x", New: func(*Teardown) func(int) {
		return func(n int) {
			for range n {
				sink = new([64]byte)
			}
		}
	}}, 5*time.Millisecond, make(Yardstick))
	if r.AllocsOp < 0.99 || r.AllocsOp > 1.2 || r.BytesPerOp < 63 || r.BytesPerOp > 80 || r.NsPerOp <= 0 {
		t.Errorf("one allocation of 64 bytes was measured as %v", r)
	}
	_ = sink
}

func TestYardstick_KnowsItsBestAndWhatIsLonger(t *testing.T) {
	y := make(Yardstick)
	for range 100 {
		y.quiet(1)
	}
	if y[1] <= 0 || len(y) != 1 {
		t.Fatalf("the best of one at a time: %v", y)
	}
	y[1] = time.Nanosecond
	if y.quiet(1) || y[1] != time.Nanosecond {
		t.Errorf("thousands of times its best is not quiet, and no new best: %v", y)
	}
	y.quiet(2)
	if n := min(2, runtime.GOMAXPROCS(0)); y[n] <= 0 {
		t.Errorf("two at once have a best of their own: %v", y)
	}
	y[1] = time.Hour
	if !y.quiet(1) || y[1] == time.Hour {
		t.Errorf("a new best is quiet: %v", y)
	}
}

// Measure uses the yardstick while it counts allocations.
func TestYardstick_ForOneWorkerAllocatesNothing(t *testing.T) {
	y := make(Yardstick)
	if n := testing.AllocsPerRun(100, func() { y.quiet(0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWriteSection_ReplacesInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "R.md")
	for _, s := range [][2]string{{"a", "1\n"}, {"b", "2\n"}, {"a", "3\n"}} {
		if err := WriteSection(path, s[0], s[1]); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(path)
	if want := "<!-- a -->\n3\n<!-- /a -->\n\n<!-- b -->\n2\n<!-- /b -->\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
