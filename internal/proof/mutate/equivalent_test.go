package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEquivalent_LineNeedsReason(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"f: a", "f: a #", "f: a # "} {
		list(t, dir, line+"\n")
		assert.ErrorContains(t, markEquivalent(dir, new(pack)), ":1: no reason", line)
	}
}

func TestEquivalent_LineListedTwiceIsError(t *testing.T) {
	dir := t.TempDir()
	list(t, dir, "# heading\n\nf: a # reason\nf: a # another\n")
	assert.ErrorContains(t, markEquivalent(dir, new(pack)), ":4: listed twice: f: a")
}

func TestEquivalent_PackageWithoutListHasNone(t *testing.T) {
	p := &pack{mutants: []*mutant{{fn: "f", change: "a"}}}
	require.NoError(t, markEquivalent(t.TempDir(), p))
	assert.False(t, p.mutants[0].equivalent)
}

// A key is listed as it is printed: neither its length nor line breaks, tabs or the
// separator of the list in its source make a difference.
func TestEquivalent_PrintedKeyMatchesWhateverItsSource(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x+", 300) + "x"
	source := "package toy\n\nfunc f(x int) (y int) {\n\ty = " + long + "\n\ty = " + long + "-1\n" +
		"\tprintln(\"a # b\",\n\t\tx)\n\treturn y\n}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(toy["go.mod"]), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "toy.go"), []byte(source), 0o600))
	p, err := load(dir)
	require.NoError(t, err)

	var text strings.Builder
	longest, seen := 0, make(map[string]bool)
	for _, m := range p.mutants {
		_, key, _ := strings.Cut(m.String(), ": ") // as -list and a verdict print it
		text.WriteString(key + " # reason\n")
		longest = max(longest, len(key))
		assert.False(t, seen[key], key)
		seen[key] = true
	}
	assert.Greater(t, longest, 600)
	assert.Contains(t, text.String(), "f: leave out `println(\"a # b\", x)` # reason\n")

	list(t, dir, text.String())
	require.NoError(t, markEquivalent(dir, p))
	assert.Empty(t, p.stale)
	for _, m := range p.mutants {
		assert.True(t, m.equivalent, m.key())
	}
}

func TestReport_ListedMutantHasToExistAndToSurvive(t *testing.T) {
	dir := t.TempDir()
	alive := &mutant{fn: "f", change: "a", fate: survived}
	unseen := &mutant{fn: "f", change: "b", fate: unreached}
	dead := &mutant{fn: "f", change: "c", fate: killed}
	slow := &mutant{fn: "f", change: "d", fate: timedOut}
	left := &mutant{fn: "f", change: "e"}
	tried := []*mutant{alive, unseen, dead, slow}
	for keys, want := range map[string]bool{
		"f: a,f: b":            true,
		"f: a,f: b,f: e":       true,
		"f: a":                 false,
		"f: b":                 false,
		"f: a,f: b,f: c":       false,
		"f: a,f: b,f: d":       false,
		"f: a,f: b,f: a [2]":   false,
		"f: a,f: b,g: no such": false,
	} {
		p := &pack{mutants: append(tried, left)}
		list(t, dir, strings.ReplaceAll(keys, ",", " # reason\n")+" # reason\n")
		require.NoError(t, markEquivalent(dir, p))
		assert.Equal(t, want, report(p, tried), keys)
	}
}

func TestReport_MutantThatCouldNotBeTriedFails(t *testing.T) {
	for _, equivalent := range []bool{false, true} {
		m := &mutant{fn: "f", change: "a", fate: untried, equivalent: equivalent}
		p := &pack{mutants: []*mutant{m}}
		assert.False(t, report(p, p.mutants), equivalent)
	}
}
