package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is a module with the package to mutate: add is tested, idle is not reached,
// twice has a test that misses a branch, the value of start is there before any test
// begins, hidden is reached only if the tests run together, and Shown is tested in
// another package. The package other has nothing to do with it.
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

func Shown() int { return 5 }

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
	"proof/number.txt": "5",
	"proof/proof_test.go": `package proof

import (
	"os"
	"strconv"
	"testing"

	"toy"
)

func TestTwice(t *testing.T) {
	text, err := os.ReadFile("number.txt")
	if err != nil || strconv.Itoa(toy.Shown()) != string(text) {
		t.Fatal("shown", err)
	}
}
`,
	"proof/other/other_test.go": `package other

import "testing"

func TestOther(t *testing.T) { t.Fatal("never to be run") }
`,
}

func toyDir(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range toy {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

// list writes the list of equivalent mutants of the package in dir.
func list(t *testing.T, dir, text string) {
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "testdata"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "testdata", "equivalent_mutants.txt"), []byte(text), 0o600))
}

func TestRun_SurvivorHasToBeListed(t *testing.T) {
	dir := toyDir(t)
	o := options{dir: dir, tests: ".", timeout: time.Minute, parallel: 2, every: 1, only: "never `a > 10`"}

	ok, err := run(o)
	require.NoError(t, err)
	assert.False(t, ok)

	list(t, dir, "twice: never `a > 10` # a + a is a * 2\n")
	ok, err = run(o)
	require.NoError(t, err)
	assert.True(t, ok)
}

// There are no tests in the folder: with -stale nothing is built or run.
func TestRun_StaleFindsListedMutantsThatDoNotExist(t *testing.T) {
	dir := toyDir(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "toy_test.go")))
	o := options{dir: dir, tests: ".", every: 1, stale: true}

	list(t, dir, "twice: never `a > 10` # a + a is a * 2\n")
	ok, err := run(o)
	require.NoError(t, err)
	assert.True(t, ok)

	list(t, dir, "thrice: never `a > 10` # a + a is a * 2\n")
	ok, err = run(o)
	require.NoError(t, err)
	assert.False(t, ok)
}
