package mcphealth_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		runChild(mode)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
