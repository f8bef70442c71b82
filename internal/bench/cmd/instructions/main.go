// Command instructions counts the instructions of one call of every serial case
// under callgrind and writes them to RESULTS.md. They do not depend on what else
// the machine does, so a change of a few instructions shows, which the clock
// cannot show.
//
// It runs each case twice, with few calls and with many, and divides the
// difference, so the cost of setting up cancels out. The garbage collector is off and
// not counted. Under valgrind a reading of the clock is a system call, of which only
// the part outside the kernel is counted, and texts are hashed without the
// processor's AES instructions.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/toolhealth/toolhealth/internal/bench"
)

var (
	only    = flag.String("run", "", "count only the cases that match this regular expression, and write no file")
	results = flag.String("results", "RESULTS.md", "file to write the table to")
	loop    = flag.String("loop", "", "run this case (used by the command itself)")
	calls   = flag.Int("n", 0, "how often (used by the command itself)")
)

const few, many = 2_000, 52_000

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *loop != "" {
		runLoop(*loop, *calls)
		return
	}
	if err := countAll(); err != nil {
		log.Fatal(err)
	}
}

func runLoop(name string, n int) {
	var t bench.Teardown
	bench.CaseNamed(name).New(&t)(n)
}

// The count omits other threads: those of the runtime do more work the longer the run
// takes. The loop stays on the first thread.
func init() { runtime.LockOSThread() }

func countAll() error {
	match := regexp.MustCompile(*only)
	var cases []bench.Case
	for _, c := range bench.Cases() {
		if c.Workers == 0 && !c.Last && !strings.HasPrefix(c.Name, "toolhealth/summary/") && match.MatchString(c.Name) {
			cases = append(cases, c)
		}
	}

	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "instructions")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/instructions").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}

	counts, errs := make([]float64, len(cases)), make([]error, len(cases))
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for i, c := range cases {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			counts[i], errs[i] = perCall(program, c.Name)
		})
	}
	wg.Wait()

	var table strings.Builder
	fmt.Fprintf(&table, "| case | instructions a call |\n|---|---:|\n")
	for i, c := range cases {
		if errs[i] != nil {
			return errs[i]
		}
		fmt.Fprintf(&table, "| %s | %.0f |\n", c.Name, counts[i])
	}
	fmt.Print(table.String())
	if *only != "" {
		return nil
	}
	about := fmt.Sprintf("`go run ./cmd/instructions`, %s, %s: callgrind, the difference of %d and %d calls, without garbage collection. "+
		"A reading of the clock is a system call here, and its kernel part is not counted.\n\n",
		runtime.Version(), runtime.GOARCH, many, few)
	return bench.WriteSection(*results, "instructions", "## Instructions\n\n"+about+table.String())
}

func perCall(program, name string) (float64, error) {
	var counts [2]int
	for i, n := range [2]int{few, many} {
		out := fmt.Sprintf("%s.%s.%d", program, strings.ReplaceAll(name, "/", "."), n)
		cmd := exec.Command("valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file="+out,
			program, "-loop", name, "-n", strconv.Itoa(n))
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off",
			"GODEBUG=asyncpreemptoff=1") // callgrind 3.19 does not survive the signals
		if said, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", name, err, said)
		}
		data, err := os.ReadFile(out + "-01")
		if err != nil {
			return 0, err
		}
		found := regexp.MustCompile(`(?m)^(?:totals|summary): (\d+)`).FindSubmatch(data)
		if found == nil {
			return 0, fmt.Errorf("%s: callgrind wrote no total", name)
		}
		counts[i], _ = strconv.Atoi(string(found[1]))
	}
	return float64(counts[1]-counts[0]) / (many - few), nil
}
