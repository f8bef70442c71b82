// Mutate breaks a package on purpose, in every place that it knows how to, and
// reports which of the breaks the tests do not notice.
//
//	go run ./internal/proof/mutate [flags] [directory]
//
// A mutant is one such break: a statement or a defer left out, break in the place
// of continue, another operator or none in an assignment, a condition that is
// always or never true, a comparison moved by one or turned round, && and ||
// exchanged, + and -, ++ and --, * and /, min and max; a literal or an enumeration
// value that is one too high, a result that is zero, a compare-and-swap that stores
// unconditionally.
//
// All mutants of the package are compiled in at once, each behind a number, so that
// trying one costs a run of some tests and no build. The tree is never touched: the
// changed files reach the compiler through -overlay. The package's own tests become
// one binary. The flag -with adds one binary for each test package that matches its
// patterns and depends on the mutated package, built with the same overlay and run
// in the folder of its own package:
//
//	go run ./internal/proof/mutate -with ./internal/proof/... .
//
// First, every test of every binary runs alone without a mutant. That run shows which
// mutants' places the test passes and how long it takes. Then each mutant is tried
// with the tests that pass its place, in their short form, the quickest first and up
// to the first failure. A mutant that survives those is tried with all other tests
// too before it counts as a survivor: where goroutines race, a test need not pass the
// same places twice. Survivors that are listed as equivalent are spared that second
// step. On a single processor goroutines hardly race, and a weakened compare-and-swap
// survives.
//
// A survivor has to be listed in testdata/equivalent_mutants.txt of the mutated
// package, with the reason why no caller can tell it from the original:
//
//	Delay: `base <= 0` with < # a base of 0 gives 0 on the long way too
//
// The text before " # " is what mutate prints after the position, whole, however long
// it is. It names the function and the change, not the file or the line.
//
// Mutate exits with 1 if a survivor is not listed, or if a listed mutant was noticed
// or does not exist; with 2 if it could not try, for example because the tests fail
// without a mutant. The flag -stale only looks for listed mutants that do not exist,
// which takes seconds.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	var o options
	with := flag.String("with", "", "also use the tests of the packages that match these patterns, separated by spaces")
	flag.StringVar(&o.only, "only", "", "try only mutants whose description matches this regular expression")
	flag.StringVar(&o.tests, "run", ".", "use only the tests whose names match this regular expression")
	flag.StringVar(&o.skip, "skip", "", "as go test -skip: leave out these tests, such as those of allocations")
	flag.DurationVar(&o.timeout, "timeout", time.Second, "kill a run that takes this much longer than ten times what its tests took without a mutant; counts as noticed")
	flag.IntVar(&o.parallel, "parallel", 2, "how many mutants to try at once")
	flag.BoolVar(&o.list, "list", false, "list the mutants and stop")
	flag.BoolVar(&o.stale, "stale", false, "report listed mutants that do not exist and stop")
	flag.BoolVar(&o.verbose, "v", false, "print the fate of every mutant")
	flag.IntVar(&o.every, "every", 1, "try only every n-th mutant: a sample")
	flag.Parse()
	o.with = strings.Fields(*with)
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
	dir, only, tests, skip string
	with                   []string
	timeout                time.Duration
	parallel, every        int
	list, stale, verbose   bool
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
	if err := markEquivalent(o.dir, pkg); err != nil {
		return false, err
	}
	if o.stale || len(pkg.mutants) == 0 {
		return report(pkg, nil), nil
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
	fmt.Printf("%d mutants in %s, %d tests in %d packages; built and traced in %v\n",
		len(chosen), o.dir, len(t.tests), len(t.binaries), time.Since(start).Round(time.Second))
	t.tryAll(chosen)
	t.tryAgain(chosen)
	ok = report(pkg, chosen)
	fmt.Printf("%d runs in %v\n", t.runs.Load(), time.Since(start).Round(time.Second))
	return ok, nil
}
