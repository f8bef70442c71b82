// Package fuzz_test has the fuzz targets, with their corpora in testdata/fuzz: random
// operations on a registry and on the model of it, configurations, summaries and
// scenarios in any text, and hostile errors. go test runs the corpora; -fuzz searches.
package fuzz_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
