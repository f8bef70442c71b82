package toolhealth_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wellKnown are methods whose contract is that of an interface everybody knows.
var wellKnown = map[string]bool{"Error": true, "String": true, "Unwrap": true}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	files := parseSources(t, ".", func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
	require.NotEmpty(t, files)
	seen := 0
	for path, file := range files {
		for _, name := range undocumented(file, &seen) {
			t.Errorf("%s: %s has no doc comment", path, name)
		}
	}
	assert.Greater(t, seen, 100, "the package has more exported names than were looked at")
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	const source = `package p
func Bare() {}
type T struct{}
func (T) Method() {}
func (T) String() string { return "" }
func (t) Hidden() {}
type t int
const C = 1
var (
	V = 1 // said here
	W = 1
)
// Said is.
func Said() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	require.NoError(t, err)
	seen := 0
	assert.Equal(t, []string{"Bare", "T", "T.Method", "C", "W"}, undocumented(file, &seen))
	assert.Equal(t, 7, seen)
}

// undocumented returns the exported names of a file that nothing is said about,
// and adds to seen how many names it looked at.
func undocumented(file *ast.File, seen *int) (names []string) {
	note := func(name string, docs ...*ast.CommentGroup) {
		*seen++
		for _, doc := range docs {
			if strings.TrimSpace(doc.Text()) != "" {
				return
			}
		}
		names = append(names, name)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if !d.Name.IsExported() || wellKnown[name] && d.Recv != nil {
				continue
			}
			if d.Recv != nil {
				receiver := receiverName(d.Recv.List[0].Type)
				if !ast.IsExported(receiver) {
					continue
				}
				name = receiver + "." + name
			}
			note(name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						note(s.Name.Name, d.Doc, s.Doc)
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						if id.IsExported() {
							note(id.Name, d.Doc, s.Doc, s.Comment)
						}
					}
				}
			}
		}
	}
	return names
}

func receiverName(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func parseSources(t *testing.T, dir string, want func(name string) bool) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if !want(path) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		files[path] = file
	}
	return files
}

// testName finds the tests, examples, fuzz targets and benchmarks that a text
// names in backticks, and the scenarios, which are subtests of TestScenarios.
var testName = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Z_]?\\w*)(?:/([\\w-]+))?`")

func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	exists := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				exists[f.Name.Name] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	named := 0
	for _, document := range []string{
		"README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", "internal/proof/README.md", "examples/gateway/README.md",
	} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			assert.True(t, exists[m[1]], "%s names %s, which does not exist", document, m[1])
			if m[2] != "" {
				assert.FileExists(t, filepath.Join("testdata", "scenarios", m[2]+".scenario"), "named in %s", document)
			}
		}
	}
	assert.Greater(t, named, 10, "internal/proof/README.md names the tests that prove what is promised")
}
