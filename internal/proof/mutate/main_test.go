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

// The package under test: add is tested, idle is not reached, twice has a test
// that looks away, what start gives is there before any test begins, and hidden
// is reached only if the tests run together.
var toy = map[string]string{
	"go.mod": "module toy\n\ngo 1.26.0\n",
	"toy.go": `package toy

var begun = start()

func start() int { return 7 }

func add(a, b int) int { return a + b }

func twice(a int) int {
	if a > 10 {
		return a * 2
	}
	return a + a
}

func hidden() int { return 3 }

func idle(n int) int { return n + 1 }

func sum(list ...int) (total, n int) {
	for _, x := range list {
		if x < 0 {
			continue
		}
		total += x
		n++
	}
	return total, n
}

func search(x int) int {
	for {
		if x++; x%7 != 0 {
			continue
		}
		return x
	}
}
`,
	"toy_test.go": `package toy

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(m.Run()) }

var others int

func TestSlow(t *testing.T) {
	others++
	time.Sleep(100 * time.Millisecond)
	if add(2, 3) != 5 {
		t.Fatal("slow")
	}
}

func TestAdd(t *testing.T) {
	others++
	if add(2, 3) != 5 {
		t.Fatal("add")
	}
}

func TestTwice(t *testing.T) {
	if twice(3) != 6 || twice(30) != 60 {
		t.Fatal("twice")
	}
	if total, n := sum(3, -1, 4); total != 7 || n != 2 || search(8) != 14 {
		t.Fatal("sum or search")
	}
	if others == 2 && hidden() != 3 {
		t.Fatal("hidden")
	}
}

func FuzzBegun(f *testing.F) {
	f.Add(7)
	f.Fuzz(func(t *testing.T, n int) {
		if begun != n {
			t.Fatal("begun")
		}
	})
}
`,
}

func toyDir(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range toy {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// traced returns the toy, built and traced, and its mutants by key.
func traced(t *testing.T) (*tester, map[string]*mutant) {
	o := options{dir: toyDir(t), tests: ".", timeout: time.Minute, parallel: 2, every: 1}
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

func names(tests []*test) (names []string) {
	for _, x := range tests {
		names = append(names, x.name)
	}
	return names
}

func TestAMutantIsTriedWithTheTestsThatPassItsPlaceAndASurvivorWithAll(t *testing.T) {
	x, mutants := traced(t)
	assert.True(t, slices.IsSortedFunc(x.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) }))
	all := []string{"FuzzBegun", "TestAdd", "TestSlow", "TestTwice"}
	assert.ElementsMatch(t, all, names(x.tests))
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
		{"sum: `break` in the place of `continue`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `total = x` in the place of `total += x`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `total -= x` in the place of `total += x`", []string{"TestTwice"}, killed, 1, "TestTwice"},
		{"sum: `n--` in the place of `n++`", []string{"TestTwice"}, killed, 1, "TestTwice"},
	} {
		m := mutants[c.key]
		require.NotNil(t, m, c.key)
		assert.ElementsMatch(t, c.tests, names(m.tests), c.key)
		before := x.runs.Load()
		x.tryOut(m)
		assert.Equal(t, c.fate, m.fate, c.key)
		assert.Contains(t, m.by, c.by, c.key)
		if c.runs > 0 {
			assert.Equal(t, c.runs, x.runs.Load()-before, c.key)
		}
	}
}

// Without the loop's end the function would not compile.
func TestALoopWithoutAnEndIsNotBrokenOutOf(t *testing.T) {
	_, mutants := traced(t)
	assert.Contains(t, mutants, "search: leave out `continue`")
	assert.NotContains(t, mutants, "search: `break` in the place of `continue`")
}

func TestThePlanIsQuickTestsFirstAndThenAllThatIsLeft(t *testing.T) {
	ms := func(name string, n time.Duration) *test { return &test{name, n * time.Millisecond} }
	a, b, c, d, e, f := ms("a", 0), ms("b", 20), ms("c", 30), ms("d", 90), ms("e", 100), ms("f", 5000)
	x := &tester{tests: []*test{a, b, c, d, e, f}}
	for _, c := range []struct{ passing, want string }{
		{"abcdef", "abc de f"},
		{"bcd", "bc d aef"},
		{"f", "f abcde"},
		{"", "abcdef"},
	} {
		m := new(mutant)
		for _, test := range x.tests {
			if strings.Contains(c.passing, test.name) {
				m.tests = append(m.tests, test)
			}
		}
		var runs []string
		for _, run := range x.plan(m) {
			runs = append(runs, strings.Join(names(run), ""))
		}
		assert.Equal(t, c.want, strings.Join(runs, " "))
	}
}

func TestSurvivorsHaveToBeListedWithAReason(t *testing.T) {
	dir := toyDir(t)
	list := filepath.Join(dir, "list.txt")
	o := options{dir: dir, tests: ".", timeout: time.Minute, parallel: 2, every: 1, only: "never `a > 10`", equivalent: list}

	ok, err := run(o)
	require.NoError(t, err)
	assert.False(t, ok)

	require.NoError(t, os.WriteFile(list, []byte("twice: never `a > 10` # a + a is a * 2\n"), 0o600))
	ok, err = run(o)
	require.NoError(t, err)
	assert.True(t, ok)

	require.NoError(t, os.WriteFile(list, []byte("twice: never `a > 10`\n"), 0o600))
	_, err = run(o)
	assert.ErrorContains(t, err, "no reason")
}

func TestWhatIsListedHasToExistAndToSurvive(t *testing.T) {
	alive := &mutant{fn: "f", change: "a", fate: survived}
	nowhere := &mutant{fn: "f", change: "b", fate: unreached}
	dead := &mutant{fn: "f", change: "c", fate: killed}
	slow := &mutant{fn: "f", change: "d", fate: timedOut}
	untried := &mutant{fn: "f", change: "e"}
	tried := []*mutant{alive, nowhere, dead, slow}
	for list, want := range map[string]bool{
		"f: a,f: b":            true,
		"f: a,f: b,f: e":       true,
		"f: a":                 false,
		"f: b":                 false,
		"f: a,f: b,f: c":       false,
		"f: a,f: b,f: d":       false,
		"f: a,f: b,f: a [2]":   false,
		"f: a,f: b,g: no such": false,
	} {
		listed := make(map[string]bool)
		for _, key := range strings.Split(list, ",") {
			listed[key] = true
		}
		assert.Equal(t, want, report(append(tried, untried), tried, listed), list)
	}
}

// A test that failed by itself does not take a mutant off the list, and a race that
// did not come about does not put one there.
func TestWhatContradictsTheListIsTriedAgain(t *testing.T) {
	x, mutants := traced(t)
	listed, noticed := mutants["twice: never `a > 10`"], mutants["add: `a + b` with -"]
	other := mutants["twice: `a > 10` with >="]
	for _, m := range []*mutant{listed, noticed, other} {
		m.fate = timedOut
	}
	missed := mutants["sum: `n--` in the place of `n++`"]
	missed.fate = survived
	x.tryAgain([]*mutant{listed, noticed, other, missed}, map[string]bool{listed.key(): true, noticed.key(): true})
	assert.Equal(t, survived, listed.fate)
	assert.Equal(t, killed, noticed.fate)
	assert.Equal(t, timedOut, other.fate, "it is not on the list")
	assert.Equal(t, killed, missed.fate, "neither is this one, and it had survived")
}

func TestARunThatEndedForAnotherReasonIsNoNotice(t *testing.T) {
	x, mutants := traced(t)
	m := mutants["add: `a + b` with -"]
	x.work = t.TempDir() // there is no binary in it
	x.tryOut(m)
	assert.Equal(t, untried, m.fate)
	assert.False(t, report([]*mutant{m}, []*mutant{m}, nil))
	assert.False(t, report([]*mutant{m}, []*mutant{m}, map[string]bool{m.key(): true}))
}
