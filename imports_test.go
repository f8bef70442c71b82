package toolhealth

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever imports this package must not get a network stack with it, or
// anything outside of the standard library.
func TestNothingLargeOrForeignIsImported(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	paths := strings.Fields(string(out))
	require.Contains(t, paths, "context")
	for _, path := range paths {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case path == "os/exec", path == "database/sql", path == "net", strings.HasPrefix(path, "net/"), strings.HasPrefix(path, "crypto/"):
			t.Errorf("%s is imported", path)
		case strings.Contains(first, "."):
			assert.True(t, strings.HasPrefix(path, "github.com/toolhealth/toolhealth"), "%s is imported", path)
		}
	}
}
