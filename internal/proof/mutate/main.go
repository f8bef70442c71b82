// Mutate breaks a package on purpose, in every place that it knows how to, and
// says which of the breaks its tests do not notice.
//
//	go run ./internal/proof/mutate [flags] [directory]
//
// All mutants are compiled into one test binary, each behind a number, so that
// trying one costs a run of some tests and no build. The tree is never touched:
// the changed files reach the compiler through -overlay. What a mutant is:
// statements and defers that are left out, break in the place of continue, another
// operator or none in an assignment, conditions that are always or never true,
// comparisons moved by one or turned round, && and || exchanged, + and -, ++ and --,
// * and /, min and max; literals and enumeration values that are one too high,
// results that are zero, compare-and-swaps that store whatever is there.
//
// At first every test runs alone and unbroken, to see which mutants' places it
// passes and how long it takes. A mutant is then tried with the tests that pass
// its place, the quickest first. What survives them is tried with all others as
// well before it is called a survivor: where goroutines race, a test need not pass
// the same places twice. On a single processor they hardly race, and a weakened
// compare-and-swap survives.
//
// A mutant that no test kills has to stand in the file of equivalent mutants,
// with the reason why nobody can tell it from the original; that file is matched
// by function and change, not by line. Mutate exits with 1 if a survivor is not
// in the file, or something in the file did not survive or does not exist, and
// with 2 if it could not try: if the tests fail without a mutant, for example.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "try only mutants whose description matches this regular expression")
	flag.StringVar(&o.tests, "run", ".", "use only the tests whose names match this regular expression")
	flag.StringVar(&o.skip, "skip", "", "as go test -skip: leave out these tests, such as those of allocations")
	flag.StringVar(&o.equivalent, "equivalent", "", "file of equivalent mutants (default DIRECTORY/testdata/equivalent_mutants.txt)")
	flag.DurationVar(&o.timeout, "timeout", 3*time.Second, "kill a run that takes this much longer than ten times what its tests took unbroken; counts as noticed")
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
	dir, only, tests, skip, equivalent string
	timeout                            time.Duration
	parallel, every                    int
	list, verbose                      bool
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
	equivalent, err := readEquivalent(o)
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	start := time.Now()
	t := tester{o: o, work: work}
	if err := t.build(pkg); err != nil {
		return false, err
	}
	if err := t.traceAll(pkg.mutants); err != nil {
		return false, err
	}
	fmt.Printf("%d mutants in %s, %d tests; built and traced in %v\n", len(chosen), o.dir, len(t.tests), time.Since(start).Round(time.Second))
	t.tryAll(chosen)
	t.tryAgain(chosen, equivalent)
	ok = report(pkg.mutants, chosen, equivalent)
	fmt.Printf("%d runs in %v\n", t.runs.Load(), time.Since(start).Round(time.Second))
	return ok, nil
}

// fate is what became of a mutant.
type fate int

const (
	survived fate = iota
	killed
	timedOut
	unreached // no test runs the place
	untried   // the tests could not be run, or something else ended them
)

var fateTexts = [...]string{"SURVIVED", "killed", "timed out", "NOT REACHED", "NOT TRIED"}

func (f fate) String() string { return fateTexts[f] }

type tester struct {
	o     options
	work  string  // a folder for what is built and traced
	tests []*test // the quickest first
	runs  atomic.Int64
}

// test is a test, an example or the seeds of a fuzz target.
type test struct {
	name string
	took time.Duration // alone, without a mutant and the start of the process
}

func (t *tester) binary() string { return filepath.Join(t.work, "mutants.test") }

// build compiles all mutants into one test binary.
func (t *tester) build(pkg *pack) error {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	write := func(name string, text []byte) error {
		path := filepath.Join(t.work, filepath.Base(name)+".txt")
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
	file := filepath.Join(t.work, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file, "-o", t.binary(), ".")
	cmd.Dir = t.o.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// traceAll runs each test alone without a mutant, and notes with each mutant the
// tests that pass its place. Places that are passed before the first test begins
// are in the trace of every one.
func (t *tester) traceAll(mutants []*mutant) error {
	cmd := exec.Command(t.binary(), "-test.list="+t.o.tests)
	cmd.Dir = t.o.dir
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w\n%s", err, out)
	}
	for _, name := range testName.FindAllString(string(out), -1) {
		t.tests = append(t.tests, &test{name: name})
	}
	passes := make(map[*test][]int)
	var failed error
	var mu sync.Mutex
	atOnce(t.o.parallel, t.tests, func(x *test) {
		trace := filepath.Join(t.work, x.name+".trace")
		begin := time.Now()
		fate, out := t.try(0, []*test{x}, trace)
		x.took = time.Since(begin)
		ids, err := readTrace(trace)
		if fate != survived {
			err = fmt.Errorf("%s without a mutant: %v\n%s", x.name, fate, out)
		}
		mu.Lock()
		defer mu.Unlock()
		passes[x] = ids
		failed = cmp.Or(failed, err)
	})
	if failed != nil {
		return failed
	}
	slices.SortStableFunc(t.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	var start time.Duration // of the process, about
	if len(t.tests) > 0 {
		start = t.tests[0].took
	}
	for _, x := range t.tests {
		x.took -= start
		for _, id := range passes[x] {
			mutants[id-1].tests = append(mutants[id-1].tests, x)
		}
	}
	if fate, out := t.try(0, t.tests, ""); fate != survived {
		return fmt.Errorf("all tests together without a mutant: %v\n%s", fate, out)
	}
	return nil
}

var testName = regexp.MustCompile(`(?m)^(Test|Example|Fuzz)\S*$`)

// atOnce calls do with everything in list, for at most n at once.
func atOnce[T any](n int, list []T, do func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, n)
	for _, x := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(x)
		})
	}
	wg.Wait()
}

// try runs some tests with one mutant; 0 is none.
func (t *tester) try(id int, tests []*test, trace string) (fate, []byte) {
	timeout := t.o.timeout
	if id == 0 {
		timeout = 10 * time.Minute // how long they take is not known yet
	}
	names := make([]string, len(tests))
	for i, x := range tests {
		names[i] = x.name
		timeout += 10 * x.took
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.binary(), "-test.short", "-test.failfast",
		"-test.run=^("+strings.Join(names, "|")+")$", "-test.skip="+t.o.skip)
	cmd.Dir = t.o.dir
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(id), "MUTANT_TRACE="+trace)
	cmd.WaitDelay = time.Second
	t.runs.Add(1)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived, out
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut, out
	case errors.As(err, &exit) && exit.Exited(): // not by a signal of somebody else's
		return killed, out
	}
	return untried, append(out, err.Error()...)
}

// tryOut finds out the fate of a mutant.
func (t *tester) tryOut(m *mutant) {
	m.fate, m.by = survived, ""
	for _, tests := range t.plan(m) {
		var out []byte
		if m.fate, out = t.try(m.id, tests, ""); m.fate != survived {
			m.by = string(failure.Find(out))
			return
		}
	}
	if len(m.tests) == 0 {
		m.fate = unreached
	}
}

var failure = regexp.MustCompile(`(?m)^(--- FAIL|panic|fatal error): .*`)

// plan returns what to run in turn for a mutant: the tests that pass its place,
// the quickest first, and then all others. Most mutants are noticed by many, so
// the first run is short, and each that follows may take four times as long.
func (t *tester) plan(m *mutant) (runs [][]*test) {
	limit, sum := 50*time.Millisecond, time.Duration(0)
	var now []*test
	for _, x := range m.tests {
		if sum += x.took; sum > limit && len(now) > 0 {
			runs = append(runs, now)
			now, sum, limit = nil, x.took, 4*limit
		}
		now = append(now, x)
	}
	if len(now) > 0 {
		runs = append(runs, now)
	}
	var others []*test
	for _, x := range t.tests {
		if !slices.Contains(m.tests, x) {
			others = append(others, x)
		}
	}
	if len(others) > 0 {
		runs = append(runs, others)
	}
	return runs
}

func (t *tester) tryAll(mutants []*mutant) {
	var done atomic.Int64
	atOnce(t.o.parallel, mutants, func(m *mutant) {
		t.tryOut(m)
		if n := done.Add(1); t.o.verbose || m.alive() {
			fmt.Printf("%d/%d %v\n", n, len(mutants), m.verdict())
		}
	})
}

// tryAgain gives the mutants whose fate is not what the list says another try,
// last of all, alone and with more patience. On a busy machine a test may fail by
// itself, and what gives the same result may be a hundred times slower; and a race
// may not come about while another run of the tests has the other processor.
func (t *tester) tryAgain(mutants []*mutant, equivalent map[string]bool) {
	t.o.timeout *= 30
	for _, m := range mutants {
		if equivalent[m.key()] == !m.alive() {
			t.tryOut(m)
		}
	}
}

// readTrace returns the mutants whose places a run has passed.
func readTrace(file string) (ids []int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// report prints the sum and holds what was tried against the list.
func report(all, tried []*mutant, equivalent map[string]bool) (ok bool) {
	count := make(map[fate]int)
	unknown := maps.Clone(equivalent)
	for _, m := range all {
		delete(unknown, m.key())
	}
	ok = true
	complain := func(format string, args ...any) {
		ok = false
		fmt.Printf(format+"\n", args...)
	}
	excused := 0
	for _, m := range tried {
		count[m.fate]++
		switch listed := equivalent[m.key()]; {
		case m.alive() && listed:
			excused++
		case m.alive() || m.fate == untried:
			complain("%s", m.verdict())
		case listed:
			complain("listed as equivalent, but %s", m.verdict())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(unknown)) {
		complain("listed as equivalent, but there is no such mutant: %s", key)
	}
	fmt.Printf("%d mutants: %d killed, %d timed out, %d survived, %d not reached; %d of the last two are listed as equivalent\n",
		len(tried), count[killed], count[timedOut], count[survived], count[unreached], excused)
	return ok
}

// readEquivalent reads the keys of mutants that nobody can tell from the
// original. A line is "KEY # reason"; an empty or missing reason is an error.
func readEquivalent(o options) (map[string]bool, error) {
	file := o.equivalent
	if file == "" {
		file = filepath.Join(o.dir, "testdata", "equivalent_mutants.txt")
	}
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
