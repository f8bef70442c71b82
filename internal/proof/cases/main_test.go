// Package cases_test plays failures that people have reported of breakers and agents.
// testdata/cases.txt names the scenario or the test for each case. A test here is named
// for its case. It is about a race, a hook, a flood of names, a classifier, a text or a
// guarded call, which a scenario cannot show.
package cases_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
