// Mutate breaks a package on purpose, in every place that it knows how to, and
// says which of the breaks its tests do not notice.
//
//	go run ./internal/mutate [flags] [directory]
//
// All mutants are compiled into one test binary, each behind a number, so that
// trying one costs a run of the tests and no build. The tree is never touched:
// the changed files reach the compiler through -overlay. What a mutant is:
// statements and defers that are left out, conditions that are always or never
// true, comparisons moved by one or turned round, && and || exchanged, + and -, *
// and /, min and max; literals and enumeration values that are one too high,
// results that are zero, compare-and-swaps that store whatever is there.
//
// A mutant that no test kills has to stand in the file of equivalent mutants,
// with the reason why nobody can tell it from the original; that file is matched
// by function and change, not by line. Mutate exits with 1 if a survivor is not
// in the file, or something in the file did not survive.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "try only mutants whose description matches this regular expression")
	flag.StringVar(&o.tests, "run", "", "as go test -run: use only these tests")
	flag.StringVar(&o.skip, "skip", "", "as go test -skip: leave out these tests, such as those of allocations")
	flag.StringVar(&o.first, "first", "", "as go test -run: try these tests first, and all others on what they leave")
	flag.StringVar(&o.equivalent, "equivalent", "", "file of equivalent mutants (default DIRECTORY/testdata/equivalent_mutants.txt)")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "kill a run of the tests that takes longer; counts as noticed")
	flag.IntVar(&o.parallel, "parallel", 2, "how many mutants to try at once")
	flag.BoolVar(&o.list, "list", false, "list the mutants and stop")
	flag.BoolVar(&o.verbose, "v", false, "print every mutant's fate")
	flag.IntVar(&o.every, "every", 1, "try only every n-th mutant: a sample")
	flag.Parse()
	o.dir = "."
	if flag.NArg() > 0 {
		o.dir = flag.Arg(0)
	}
	ok, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type options struct {
	dir, only, tests, skip, first, equivalent string
	timeout                                   time.Duration
	parallel, every                           int
	list, verbose                             bool
}

func run(o options) (ok bool, err error) {
	pkg, err := load(o.dir)
	if err != nil {
		return false, err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return false, err
	}
	var chosen []*mutant
	for _, m := range pkg.mutants {
		if m.id%o.every == 0 && only.MatchString(m.String()) {
			chosen = append(chosen, m)
		}
	}
	if o.list {
		for _, m := range chosen {
			fmt.Println(m.id, m)
		}
		return true, nil
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	t := tester{o: o, binary: filepath.Join(work, "mutants.test")}
	if err := t.build(pkg, work); err != nil {
		return false, err
	}
	trace := filepath.Join(work, "trace")
	start := time.Now()
	if fate, out := t.try(0, o.tests, trace); fate != survived {
		return false, fmt.Errorf("the tests without a mutant: %v:\n%s", fate, out)
	}
	fmt.Printf("%d mutants in %s; one run of the tests takes %v\n", len(chosen), o.dir, time.Since(start).Round(time.Millisecond))
	reached, err := readTrace(trace)
	if err != nil {
		return false, err
	}
	t.tryAll(chosen, reached)
	return report(o, chosen)
}

// fate is what became of a mutant.
type fate int

const (
	survived fate = iota
	killed
	timedOut
	unreached // no test runs the place
)

var fateTexts = [...]string{"SURVIVED", "killed", "timed out", "NOT REACHED"}

func (f fate) String() string { return fateTexts[f] }

type tester struct {
	o      options
	binary string
}

// build compiles all mutants into one test binary.
func (t *tester) build(pkg *pack, work string) error {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	write := func(name string, text []byte) error {
		path := filepath.Join(work, filepath.Base(name)+".txt")
		overlay.Replace[name] = path
		return os.WriteFile(path, text, 0o600)
	}
	for name, text := range pkg.render() {
		if err := write(name, text); err != nil {
			return err
		}
	}
	abs, err := filepath.Abs(t.o.dir)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(abs, "zz_mutants.go"), pkg.support()); err != nil {
		return err
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	file := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file, "-o", t.binary, ".")
	cmd.Dir = t.o.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// try runs the tests with one mutant; 0 is none.
func (t *tester) try(id int, tests, trace string) (fate, []byte) {
	timeout := t.o.timeout
	if id == 0 {
		timeout = max(10*timeout, time.Minute) // no mutant that hangs, but a trace to write
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary, "-test.short", "-test.failfast", "-test.run="+tests, "-test.skip="+t.o.skip)
	cmd.Dir = t.o.dir
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(id), "MUTANT_TRACE="+trace)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return survived, out
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut, out
	}
	return killed, out
}

func (t *tester) tryAll(mutants []*mutant, reached map[int]bool) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, t.o.parallel)
	for i, m := range mutants {
		if !reached[m.id] {
			m.fate = unreached
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			if t.o.first != "" {
				m.fate, _ = t.try(m.id, t.o.first, "")
			}
			if m.fate == survived {
				m.fate, _ = t.try(m.id, t.o.tests, "")
			}
			if t.o.verbose || m.fate == survived {
				fmt.Printf("%d/%d %v: %v\n", i+1, len(mutants), m.fate, m)
			}
			<-slots
		})
	}
	wg.Wait()
}

// readTrace returns the mutants that a run has passed.
func readTrace(file string) (map[int]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reached := make(map[int]bool)
	for _, line := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		reached[id] = true
	}
	return reached, nil
}

// report prints the sum and holds the survivors against the equivalent ones.
func report(o options, mutants []*mutant) (ok bool, err error) {
	file := o.equivalent
	if file == "" {
		file = filepath.Join(o.dir, "testdata", "equivalent_mutants.txt")
	}
	equivalent, err := readEquivalent(file)
	if err != nil {
		return false, err
	}
	count := make(map[fate]int)
	ok = true
	excused := 0
	for _, m := range mutants {
		count[m.fate]++
		key := m.key()
		alive := m.fate == survived || m.fate == unreached
		switch {
		case alive && equivalent[key]:
			excused++
		case alive:
			ok = false
			fmt.Printf("%v: %v\n", m.fate, m)
		case equivalent[key] && o.only == "" && o.every == 1 && !slices.ContainsFunc(mutants, func(n *mutant) bool {
			return n.key() == key && (n.fate == survived || n.fate == unreached)
		}):
			ok = false
			fmt.Printf("listed as equivalent, but noticed: %v\n", m)
		}
	}
	fmt.Printf("%d mutants: %d killed, %d timed out, %d survived, %d not reached; %d of the last two are listed as equivalent\n",
		len(mutants), count[killed], count[timedOut], count[survived], count[unreached], excused)
	return ok, nil
}

// readEquivalent reads the keys of mutants that nobody can tell from the
// original. A line is "KEY # reason"; an empty or missing reason is an error.
func readEquivalent(file string) (map[string]bool, error) {
	keys := make(map[string]bool)
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return keys, nil
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, _ := strings.Cut(line, " # ")
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: no reason is given after \" # \"", file, n)
		}
		keys[strings.TrimSpace(key)] = true
	}
	return keys, lines.Err()
}
