package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRender_IsTheFile(t *testing.T) {
	page, err := render()
	require.NoError(t, err)
	file, err := os.ReadFile("../../dashboard.json")
	require.NoError(t, err)
	assert.Equal(t, string(page), string(file), "run go generate")
}
