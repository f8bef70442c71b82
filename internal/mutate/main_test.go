package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The package under test: add is tested, idle is not reached, and twice has a
// test that looks away.
var toy = map[string]string{
	"go.mod": "module toy\n\ngo 1.26.0\n",
	"toy.go": `package toy

func add(a, b int) int { return a + b }

func twice(a int) int {
	if a > 10 {
		return a * 2
	}
	return a + a
}

func idle(n int) int { return n + 1 }
`,
	"toy_test.go": `package toy

import "testing"

func TestAdd(t *testing.T) {
	if add(2, 3) != 5 {
		t.Fatal("add")
	}
	if twice(3) != 6 || twice(30) != 60 {
		t.Fatal("twice")
	}
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

func TestTheTestsOfAToyNoticeWhatTheyTest(t *testing.T) {
	dir := toyDir(t)
	o := options{dir: dir, timeout: time.Minute, parallel: 2, every: 1}

	pkg, err := load(dir)
	require.NoError(t, err)
	fates := make(map[string]fate)
	work := t.TempDir()
	tester := tester{o: o, binary: filepath.Join(work, "toy.test")}
	require.NoError(t, tester.build(pkg, work))
	trace := filepath.Join(work, "trace")
	f, out := tester.try(0, "", trace)
	require.Equal(t, survived, f, "%s", out)
	reached, err := readTrace(trace)
	require.NoError(t, err)
	tester.tryAll(pkg.mutants, reached)
	for _, m := range pkg.mutants {
		fates[m.key()] = m.fate
	}
	assert.Equal(t, killed, fates["add: `a + b` with -"])
	assert.Equal(t, killed, fates["add: zero for `return a + b`"])
	assert.Equal(t, killed, fates["twice: `a + a` with -"])
	assert.Equal(t, survived, fates["twice: never `a > 10`"], "a+a is a*2: equivalent")
	assert.Equal(t, survived, fates["twice: `a > 10` with >="])
	assert.Equal(t, unreached, fates["idle: `n + 1` with -"])
}

func TestSurvivorsHaveToBeListedWithAReason(t *testing.T) {
	dir := toyDir(t)
	list := filepath.Join(dir, "list.txt")
	o := options{dir: dir, timeout: time.Minute, parallel: 2, every: 1, only: "never `a > 10`", equivalent: list}

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
