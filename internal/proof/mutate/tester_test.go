package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// traced returns the toy, built and traced with the tests of the packages that match
// with, and its mutants by key. The working directory becomes that of the toy.
func traced(t *testing.T, with ...string) (*tester, map[string]*mutant) {
	t.Chdir(toyDir(t))
	o := options{dir: ".", tests: ".", with: with, timeout: time.Minute, parallel: 2, every: 1}
	pkg, err := load(o.dir)
	require.NoError(t, err)
	x := &tester{o: o, work: t.TempDir()}
	require.NoError(t, x.build(pkg))
	require.NoError(t, x.traceAll(pkg.mutants))
	mutants := make(map[string]*mutant)
	for _, m := range pkg.mutants {
		mutants[m.key()] = m
	}
	return x, mutants
}

// names returns the names of tests, each after that of its folder if it is not the
// mutated package's own.
func names(x *tester, tests []*test) (names []string) {
	for _, test := range tests {
		name := test.name
		if len(x.binaries) > 0 && test.binary != x.binaries[0] {
			name = filepath.Base(test.dir) + "." + name
		}
		names = append(names, name)
	}
	return names
}

func TestTester_TriesReachingTestsFirst(t *testing.T) {
	x, mutants := traced(t)
	assert.True(t, slices.IsSortedFunc(x.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) }))
	all := []string{"FuzzBegun", "TestAdd", "TestSlow", "TestTwice"}
	assert.ElementsMatch(t, all, names(x, x.tests))
	for _, c := range []struct {
		key   string
		tests []string // that pass its place
		fate  fate
		runs  int64 // 0: depends on how long the tests took
		by    string
	}{
		{"twice: `a + a` with -", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"twice: never `a > 10`", []string{"TestTwice"}, survived, 2, ""},
		{"twice: `a > 10` with >=", []string{"TestTwice"}, survived, 2, ""},
		{"add: `a + b` with -", []string{"TestAdd", "TestSlow"}, killed, 1, "Test"},
		{"start: zero for `return 7`", all, killed, 0, "FuzzBegun"},
		{"hidden: zero for `return 3`", nil, killed, 1, "TestTwice"},
		{"idle: `n + 1` with -", nil, unreached, 1, ""},
		{"Shown: zero for `return 5`", nil, unreached, 1, ""},
		{"sum: `break` in the place of `continue`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `total = x` in the place of `total += x`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `total -= x` in the place of `total += x`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `n--` in the place of `n++`", []string{"TestTwice"}, killed, 1, "TestTwice"},
	} {
		m := mutants[c.key]
		require.NotNil(t, m, c.key)
		assert.ElementsMatch(t, c.tests, names(x, m.tests), c.key)
		before := x.runs.Load()
		x.tryOut(m)
		assert.Equal(t, c.fate, m.fate, c.key)
		assert.Contains(t, m.by, c.by, c.key)
		if c.runs > 0 {
			assert.Equal(t, c.runs, x.runs.Load()-before, c.key)
		}
	}
}

// The test in proof reads a file of its own folder.
func TestTester_WithAddsDependentTestPackages(t *testing.T) {
	x, mutants := traced(t, "./...", "./proof")
	assert.ElementsMatch(t, []string{"FuzzBegun", "TestAdd", "TestSlow", "TestTwice", "proof.TestTwice"}, names(x, x.tests))
	for _, c := range []struct {
		key   string
		tests []string // that pass its place, but for start
		fate  fate
		runs  int64
	}{
		{"Shown: zero for `return 5`", []string{"proof.TestTwice"}, killed, 1},
		{"twice: `a + a` with -", []string{"TestTwice"}, killed, 1},
		{"twice: never `a > 10`", []string{"TestTwice"}, survived, 3},
		{"hidden: zero for `return 3`", nil, killed, 1},
	} {
		m := mutants[c.key]
		require.NotNil(t, m, c.key)
		assert.ElementsMatch(t, c.tests, names(x, m.tests), c.key)
		before := x.runs.Load()
		x.tryOut(m)
		assert.Equal(t, c.fate, m.fate, c.key)
		assert.Equal(t, c.runs, x.runs.Load()-before, c.key)
	}
}

func TestTester_PackageWithoutTestsNeedsOthersThatDependOnIt(t *testing.T) {
	t.Chdir(toyDir(t))
	require.NoError(t, os.Remove("toy_test.go"))
	_, err := testDirs(".", []string{"./proof/other"})
	assert.ErrorContains(t, err, "no tests of toy")
	dirs, err := testDirs(".", []string{"./proof/..."})
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	assert.Equal(t, "proof", filepath.Base(dirs[0]))
	_, err = testDirs(".", []string{"./no/such"})
	assert.ErrorContains(t, err, "go list ./no/such")
}

func TestTester_PlansQuickTestsFirst(t *testing.T) {
	ms := func(name string, n time.Duration) *test { return &test{name: name, took: n * time.Millisecond} }
	a, b, c, d, e, f := ms("a", 0), ms("b", 20), ms("c", 30), ms("d", 90), ms("e", 100), ms("f", 5000)
	x := &tester{tests: []*test{a, b, c, d, e, f}}
	for _, c := range []struct{ passing, want, equivalent string }{
		{"abcdef", "abc de f", "abc de f"},
		{"bcd", "bc d aef", "bc d"},
		{"f", "f abcde", "f"},
		{"", "abcdef", ""},
	} {
		m := new(mutant)
		for _, test := range x.tests {
			if strings.Contains(c.passing, test.name) {
				m.tests = append(m.tests, test)
			}
		}
		plan := func() string {
			var runs []string
			for _, run := range x.plan(m) {
				runs = append(runs, strings.Join(names(x, run), ""))
			}
			return strings.Join(runs, " ")
		}
		assert.Equal(t, c.want, plan())
		m.equivalent = true
		assert.Equal(t, c.equivalent, plan())
	}
}

// A test that failed by itself does not take a mutant off the list, and a race that
// did not come about does not put one there.
func TestTester_TriesAgainWhatContradictsList(t *testing.T) {
	x, mutants := traced(t)
	listed, noticed := mutants["twice: never `a > 10`"], mutants["add: `a + b` with -"]
	listed.equivalent, noticed.equivalent = true, true
	other := mutants["twice: `a > 10` with >="]
	for _, m := range []*mutant{listed, noticed, other} {
		m.fate = timedOut
	}
	missed := mutants["sum: `n--` in the place of `n++`"]
	missed.fate = survived
	x.tryAgain([]*mutant{listed, noticed, other, missed})
	assert.Equal(t, survived, listed.fate)
	assert.Equal(t, killed, noticed.fate)
	assert.Equal(t, timedOut, other.fate, "it is not on the list")
	assert.Equal(t, killed, missed.fate, "neither is this one, which had survived")
}

func TestTester_TriesUnlistedSurvivorFiveTimes(t *testing.T) {
	x, mutants := traced(t)
	m := mutants["twice: never `a > 10`"]
	m.fate = survived
	before := x.runs.Load()
	x.tryAgain([]*mutant{m})
	assert.Equal(t, int64(5*2), x.runs.Load()-before)
	assert.Equal(t, survived, m.fate)
}

func TestTester_RunThatEndedForAnotherReasonIsNoNotice(t *testing.T) {
	x, mutants := traced(t)
	m := mutants["add: `a + b` with -"]
	x.binaries[0].path = filepath.Join(t.TempDir(), "none")
	x.tryOut(m)
	assert.Equal(t, untried, m.fate)
}
