package documents_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// module is the path of the library.
const module = "github.com/toolhealth/toolhealth"

// A program that imports the library gets no network stack with it, and nothing from
// outside the standard library.
func TestImports_NothingLargeOrForeign(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module).Output()
	require.NoError(t, err)
	paths := strings.Fields(string(out))
	require.Contains(t, paths, "context")
	for _, path := range paths {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case path == "os/exec", path == "database/sql", path == "net", strings.HasPrefix(path, "net/"), strings.HasPrefix(path, "crypto/"):
			t.Errorf("%s is imported", path)
		case strings.Contains(first, "."):
			assert.True(t, strings.HasPrefix(path, module), "%s is imported", path)
		}
	}
}

// The module's tests import testify and goleak, and no other module, in any folder.
func TestImports_TestsUseTestifyAndGoleakOnly(t *testing.T) {
	t.Parallel()
	const imports = `{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}`
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", imports, module+"/...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	paths := strings.Fields(string(out))
	require.Contains(t, paths, "go.uber.org/goleak")
	for _, path := range paths {
		first, _, _ := strings.Cut(path, "/")
		if !strings.Contains(first, ".") || path == module || strings.HasPrefix(path, module+"/") {
			continue
		}
		assert.Regexp(t, `^(github\.com/stretchr/testify/(assert|require)|go\.uber\.org/goleak)$`, path)
	}
}
