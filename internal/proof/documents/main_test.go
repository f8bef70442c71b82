// Package documents_test checks what is written down: doc comments, the tests that
// documents name, the texts of enumerations, and which packages are imported.
package documents_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
