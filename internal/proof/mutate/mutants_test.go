package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keys returns the keys of the mutants of the package in dir.
func keys(t *testing.T, dir string) (keys []string) {
	p, err := load(dir)
	require.NoError(t, err)
	for _, m := range p.mutants {
		keys = append(keys, m.key())
	}
	return keys
}

// Without the end of its loop the function would not compile.
func TestPack_NoBreakOutOfEndlessLoop(t *testing.T) {
	found := keys(t, toyDir(t))
	assert.Contains(t, found, "search: leave out `continue`")
	assert.NotContains(t, found, "search: `break` in the place of `continue`")
}

func TestPack_LoadsOnlyFilesOfThisPlatform(t *testing.T) {
	dir := toyDir(t)
	other := "//go:build never\n\npackage toy\n\nfunc add(a, b int) int { return b + a }\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "never.go"), []byte(other), 0o600))
	assert.NotContains(t, keys(t, dir), "add: `b + a` with -")
}
