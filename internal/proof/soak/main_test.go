// Package soak_test runs many goroutines, or many random histories, against one
// registry, and checks every total and every law against the answers that the callers
// got. TOOLHEALTH_LONG makes the soak last a minute.
package soak_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
