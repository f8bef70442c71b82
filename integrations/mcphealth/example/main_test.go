package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serving) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestRun_ToolsComeBack(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out))
	assert.Equal(t, `tools for the model: 4
  search search has worked
the server dies, and cannot be started:
  crash  tool outcome unknown: the action may have been carried out, check before repeating it
  search tool failed: the tool cannot be reached
  read   tool temporarily unavailable: circuit breaker open; retry after 2s
  write  tool temporarily unavailable: circuit breaker open; retry after 2s
tools for the model: 0
it can be started again:
  search search has worked
  read   read has worked
  write  write has worked
tools for the model: 4
`, out.String())
}
