// Package soak_test runs many goroutines, or many random histories, against one
// registry, and compares every total and every law with what the callers saw.
// TOOLHEALTH_LONG makes the soak last a minute.
package soak_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
