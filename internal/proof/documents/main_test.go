// Package documents_test checks what is written down: doc comments, the tests that
// documents name, their code and links, the texts of enumerations, which packages are
// imported, that tests look for leaked goroutines, and the shape of the sources: lengths,
// names, which file may use which, and the modules that get updates.
package documents_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
