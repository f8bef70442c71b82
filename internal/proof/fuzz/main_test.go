// Package fuzz_test has the fuzz targets: random operations on a registry and on the
// model, configurations, summaries and scenarios in any text, and hostile errors. go
// test runs their corpora, which are in testdata/fuzz; -fuzz searches.
package fuzz_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
