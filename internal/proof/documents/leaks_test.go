package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every test package of the root module fails if its tests leave a goroutine behind.
func TestMain_VerifiesLeaksInEveryPackage(t *testing.T) {
	nested := make(map[string]bool) // folders of the modules in sub-folders
	for _, path := range filesNamed(t, "go.mod") {
		if dir := filepath.Dir(path); dir != filepath.Clean(root) {
			nested[dir] = true
		}
	}
	require.NotEmpty(t, nested)
	verified := make(map[string]bool) // by folder
	for path, file := range parseAll(t, "_test") {
		dir := filepath.Dir(path)
		if !isBelow(dir, nested) {
			verified[dir] = verified[dir] || verifiesLeaks(file)
		}
	}
	require.Greater(t, len(verified), 10)
	for dir, ok := range verified {
		assert.True(t, ok, "%s has tests and no TestMain that calls goleak.VerifyTestMain", dir)
	}
}

func TestMain_WithoutVerificationIsNoticed(t *testing.T) {
	for body, want := range map[string]bool{
		`func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }`:               true,
		`func TestMain(m *testing.M) { setUp(); goleak.VerifyTestMain(m, opt) }`: true,
		`func TestMain(m *testing.M) { os.Exit(m.Run()) }`:                       false,
		`func TestOther(m *testing.T) { goleak.VerifyTestMain(m) }`:              false,
		`func (x T) TestMain(m *testing.M) { goleak.VerifyTestMain(m) }`:         false,
		`func TestMain(m *testing.M) { goleak.VerifyNone(m) }`:                   false,
		`// goleak.VerifyTestMain(m)`:                                            false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", "package p\n"+body, 0)
		require.NoError(t, err)
		assert.Equal(t, want, verifiesLeaks(file), body)
	}
}

// isBelow reports whether dir is one of the folders or inside one.
func isBelow(dir string, folders map[string]bool) bool {
	for folder := range folders {
		if dir == folder || strings.HasPrefix(dir, folder+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// verifiesLeaks reports whether a test file has a TestMain that calls
// goleak.VerifyTestMain.
func verifiesLeaks(file *ast.File) (found bool) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name != "TestMain" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if ok && sel.Sel.Name == "VerifyTestMain" {
					pkg, ok := sel.X.(*ast.Ident)
					found = found || ok && pkg.Name == "goleak"
				}
			}
			return true
		})
	}
	return found
}
