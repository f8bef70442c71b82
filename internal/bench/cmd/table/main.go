// Command table measures every case in interleaved rounds, prints one Markdown
// table with the medians and one with the bars, and writes both to RESULTS.md.
//
// Each round runs every case once, each in a process of its own, so that drift of
// the machine affects all cases alike, no case pays for the heap that another one has
// left, and none profits from its addresses or hashes in one process.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth/internal/bench"
	"golang.org/x/perf/benchmath"
)

var (
	rounds    = flag.Int("rounds", 15, "rounds: runs of every case")
	benchtime = flag.Duration("benchtime", 20*time.Millisecond, "time of one case in one round")
	only      = flag.String("run", "", "measure only the cases that match this regular expression, and write no file")
	raw       = flag.String("raw", "", "also write every measurement to this file, for benchstat")
	results   = flag.String("results", "RESULTS.md", "file to write the tables to")
	list      = flag.Bool("list", false, "list the cases and stop")
	yardstick = flag.String("yardstick", "{}", "what the yardstick has taken so far (used by the command itself)")
	child     = flag.String("child", "", "measure this case once and print it (used by the command itself)")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	var cases []bench.Case
	match := regexp.MustCompile(*only)
	for _, c := range bench.Cases() {
		if match.MatchString(c.Name) {
			cases = append(cases, c)
		}
	}
	switch {
	case *list:
		for _, c := range cases {
			fmt.Println(c.Name)
		}
	case *child != "":
		y := make(bench.Yardstick)
		if err := json.Unmarshal([]byte(*yardstick), &y); err != nil {
			log.Fatal(err)
		}
		r := bench.Measure(bench.CaseNamed(*child), *benchtime, y)
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			log.Fatal(err)
		}
	default:
		if err := runAll(cases); err != nil {
			log.Fatal(err)
		}
	}
}

// runAll measures the cases and prints the tables. Without -run it writes them to the
// results, too.
func runAll(cases []bench.Case) error {
	samples, err := sample(cases)
	if err != nil {
		return err
	}
	table, medians := tableOf(cases, samples)
	fmt.Print(table)
	if *only != "" {
		return nil // the bars need all cases
	}
	bars := barsOf(medians)
	fmt.Print("\n" + bars)
	about := fmt.Sprintf("%s, %s/%s, %s, %d cores, %s. %d rounds of %v a case: the median, and the 95 %% confidence interval around it. "+
		"Load of the machine over the last minutes: %s.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, cpu(), runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), *rounds, *benchtime, load())
	if err := bench.WriteSection(*results, "bars", "## Bars\n\n"+about+bars); err != nil {
		return err
	}
	return bench.WriteSection(*results, "table", "## Every case\n\n"+table)
}

// sample runs all cases, round after round, and returns the results by case.
func sample(cases []bench.Case) (map[string][]bench.Result, error) {
	start := time.Now()
	samples := make(map[string][]bench.Result)
	y := make(bench.Yardstick)
	var lines []string
	for round := range *rounds {
		for _, c := range cases {
			r, err := measure(c, y)
			if err != nil {
				return nil, err
			}
			y = r.Yardstick
			samples[c.Name] = append(samples[c.Name], r)
			lines = append(lines, r.String())
		}
		fmt.Fprintf(os.Stderr, "\rround %d of %d, %v", round+1, *rounds, time.Since(start).Round(time.Second))
	}
	fmt.Fprintln(os.Stderr)
	if *raw == "" {
		return samples, nil
	}
	return samples, os.WriteFile(*raw, []byte(header()+strings.Join(lines, "\n")+"\n"), 0o644)
}

// tableOf returns the table of the cases and the medians that it shows.
func tableOf(cases []bench.Case, samples map[string][]bench.Result) (string, bench.Medians) {
	medians := bench.Medians{Ns: make(map[string]float64), Allocs: make(map[string]float64)}
	var table strings.Builder
	disturbed := false
	fmt.Fprintf(&table, "| case | ns/op | spread | B/op | allocs/op | keeps |\n|---|---:|---:|---:|---:|---|\n")
	for _, c := range cases {
		s := bench.Undisturbed(samples[c.Name])
		name := c.Name
		if s[0].Disturbed {
			name += " †"
			disturbed = true
		}
		ns := summary(s, func(r bench.Result) float64 { return r.NsPerOp })
		allocs := summary(s, func(r bench.Result) float64 { return r.AllocsOp })
		size := summary(s, func(r bench.Result) float64 { return r.BytesPerOp })
		medians.Ns[c.Name], medians.Allocs[c.Name] = ns.Center, allocs.Center
		fmt.Fprintf(&table, "| %s | %s | %s | %.0f | %.0f | %s |\n",
			name, figure(ns.Center), ns.PctRangeString(), size.Center, allocs.Center, c.Keeps)
	}
	if disturbed {
		table.WriteString("\n† Never had the processors to itself: too high.\n")
	}
	return table.String(), medians
}

// barsOf returns the table of the bars. It measures the footprints, so this process must
// have made no registry before.
func barsOf(medians bench.Medians) string {
	idle, registered := bench.Footprints()
	var bars strings.Builder
	fmt.Fprintf(&bars, "| bar | limit | measured | |\n|---|---:|---:|---|\n")
	for _, b := range bench.Bars(medians, idle, registered) {
		fmt.Fprintf(&bars, "| %s | %s | %.3g%s | %s |\n", b.What, b.Bound(), b.Measured, b.Unit, b.Verdict())
	}
	return bars.String()
}

// measure runs a case once in a new process.
func measure(c bench.Case, y bench.Yardstick) (r bench.Result, err error) {
	known, err := json.Marshal(y)
	if err != nil {
		return r, err
	}
	cmd := exec.Command(os.Args[0], "-child", c.Name, "-benchtime", benchtime.String(), "-yardstick", string(known))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w", c.Name, err)
	}
	return r, json.Unmarshal(out, &r)
}

func summary(s []bench.Result, of func(bench.Result) float64) benchmath.Summary {
	values := make([]float64, len(s))
	for i, r := range s {
		values[i] = of(r)
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
}

// figure returns nanoseconds with three significant digits.
func figure(ns float64) string {
	if ns < 100 {
		return fmt.Sprintf("%.3g", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}

func header() string {
	return fmt.Sprintf("goos: %s\ngoarch: %s\npkg: github.com/toolhealth/toolhealth/internal/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu())
}

// cpu returns the name of the processor in Linux.
func cpu() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// load returns the load averages of 1, 5 and 15 minutes: 1 is this command.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	return strings.Join(fields[:min(3, len(fields))], ", ")
}
