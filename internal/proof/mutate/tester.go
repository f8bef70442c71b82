package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// tester tries mutants.
type tester struct {
	o        options
	work     string // folder for binaries and traces
	binaries []*binary
	tests    []*test // tests of all binaries, the quickest first
	runs     atomic.Int64
}

// binary is the compiled tests of one package, with all mutants in it.
type binary struct {
	path string
	dir  string // folder of its package, where it runs
}

// test is a test, an example or the seeds of a fuzz target.
type test struct {
	*binary
	name string
	took time.Duration // time alone, without a mutant, less the start of the process
}

// build compiles all mutants into one test binary for each test package.
func (t *tester) build(pkg *pack) error {
	overlay, err := t.overlay(pkg)
	if err != nil {
		return err
	}
	dirs, err := testDirs(t.o.dir, t.o.with)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		b := &binary{filepath.Join(t.work, strconv.Itoa(i)+".test"), dir}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the tests in %s: %w\n%s", dir, err, out)
		}
		t.binaries = append(t.binaries, b)
	}
	return nil
}

// overlay writes the files with the mutants, and returns the name of the file that
// tells the go command about them.
func (t *tester) overlay(pkg *pack) (string, error) {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	files := pkg.render()
	files[filepath.Join(filepath.Dir(pkg.files[0].path), "zz_mutants.go")] = pkg.support()
	for name, text := range files {
		path := filepath.Join(t.work, filepath.Base(name)+".txt")
		overlay.Replace[name] = path
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(t.work, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// testDirs returns the folders of the test packages: that of the package in dir, if
// it has tests, and those that match a pattern and depend on that package.
func testDirs(dir string, patterns []string) (dirs []string, err error) {
	own, err := goList(dir, ".")
	if err != nil {
		return nil, err
	}
	path := own[0].ImportPath
	list := own[1:]
	if len(patterns) > 0 {
		others, err := goList(".", patterns...)
		if err != nil {
			return nil, err
		}
		list = append(list, others...)
	}
	for _, p := range list { // the main package of a test binary is named for what it tests
		isTest := p.ForTest == "" && strings.HasSuffix(p.ImportPath, ".test")
		if isTest && (p.ImportPath == path+".test" || slices.Contains(p.Deps, path)) && !slices.Contains(dirs, p.Dir) {
			dirs = append(dirs, p.Dir)
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no tests of %s", path)
	}
	return dirs, nil
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, ForTest string
	Deps                     []string
}

// goList lists the packages that match the patterns, seen from dir, each followed by
// those that make its test binary.
func goList(dir string, patterns ...string) (list []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-test", "-json=Dir,ImportPath,ForTest,Deps"}, patterns...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
}

// traceAll runs each test alone without a mutant, and notes with each mutant the
// tests that pass its place. Places that are passed before the first test begins
// are in the trace of every one.
func (t *tester) traceAll(mutants []*mutant) error {
	for _, b := range t.binaries {
		cmd := exec.Command(b.path, "-test.list="+t.o.tests)
		cmd.Dir = b.dir
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("list the tests in %s: %w\n%s", b.dir, err, out)
		}
		for _, name := range testName.FindAllString(string(out), -1) {
			t.tests = append(t.tests, &test{binary: b, name: name})
		}
	}
	passes := make(map[*test][]int)
	var failed error
	var mu sync.Mutex
	atOnce(t.o.parallel, t.tests, func(x *test) {
		trace := x.path + "." + x.name + ".trace"
		begin := time.Now()
		fate, out := t.run(0, []*test{x}, trace)
		x.took = time.Since(begin)
		ids, err := readTrace(trace)
		if fate != survived {
			err = fmt.Errorf("%s in %s without a mutant: %v\n%s", x.name, x.dir, fate, out)
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
	if fate, out := t.try(0, t.tests); fate != survived {
		return fmt.Errorf("all tests together without a mutant: %v\n%s", fate, out)
	}
	return nil
}

var testName = regexp.MustCompile(`(?m)^(Test|Example|Fuzz)\S*$`)

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

// try runs some tests with one mutant, one binary after the other up to the first
// that notices it; 0 is no mutant.
func (t *tester) try(id int, tests []*test) (f fate, out []byte) {
	for _, b := range t.binaries {
		var of []*test
		for _, x := range tests {
			if x.binary == b {
				of = append(of, x)
			}
		}
		if len(of) > 0 {
			if f, out = t.run(id, of, ""); f != survived {
				return f, out
			}
		}
	}
	return survived, out
}

// run runs some tests of one binary with one mutant; 0 is none.
func (t *tester) run(id int, tests []*test, trace string) (fate, []byte) {
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
	cmd := exec.CommandContext(ctx, tests[0].path, "-test.short", "-test.failfast",
		"-test.run=^("+strings.Join(names, "|")+")$", "-test.skip="+t.o.skip)
	cmd.Dir = tests[0].dir
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
	case errors.As(err, &exit) && exit.Exited(): // not by a signal from outside
		return killed, out
	}
	return untried, append(out, err.Error()...)
}

// tryOut finds out the fate of a mutant.
func (t *tester) tryOut(m *mutant) {
	m.fate, m.by = survived, ""
	for _, tests := range t.plan(m) {
		var out []byte
		if m.fate, out = t.try(m.id, tests); m.fate != survived {
			m.by = string(failure.Find(out))
			return
		}
	}
	if len(m.tests) == 0 {
		m.fate = unreached
	}
}

var failure = regexp.MustCompile(`(?m)^(--- FAIL|panic|fatal error): .*`)

// plan returns what to run in turn for a mutant: the tests that pass its place, the
// quickest first, and then all others, but not for one that is listed as equivalent.
// Most mutants are noticed by many tests, so the first run is short, and each that
// follows may take four times as long.
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
	if m.equivalent {
		return runs
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
		if n := done.Add(1); t.o.verbose || m.alive() != m.equivalent {
			fmt.Printf("%d/%d %v\n", n, len(mutants), m.verdict())
		}
	})
}

// tryAgain gives the mutants whose fate is not what the list says another try, after
// all others, alone and with more patience. On a busy machine a test may fail by
// itself, and a mutant that gives the same results may be a hundred times slower. A
// survivor that is not listed has five tries: a race need not come about in the first.
func (t *tester) tryAgain(mutants []*mutant) {
	t.o.timeout = max(t.o.timeout, 5*time.Minute)
	for _, m := range mutants {
		tries := 5
		if m.equivalent {
			tries = 1
		}
		for n := 0; n < tries && m.alive() != m.equivalent; n++ {
			t.tryOut(m)
		}
	}
}
