package documents_test

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

// root is the root of the repository.
const root = "../../.."

// wellKnown are methods of interfaces whose contract every Go programmer knows.
var wellKnown = map[string]bool{"Error": true, "String": true, "Unwrap": true}

func TestDocuments_ExportedNamesAreDocumented(t *testing.T) {
	seen := map[string]int{} // exported names, by folder
	for path, file := range parseAll(t, "") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		names, n := undocumented(file)
		seen[filepath.Dir(path)] += n
		for _, name := range names {
			t.Errorf("%s: %s has no doc comment", path, name)
		}
	}
	assert.Greater(t, seen[filepath.Clean(root)], 100, "the package has more exported names than were looked at")
	assert.Greater(t, len(seen), 5, "there are more packages than were looked at")
}

func TestDocuments_UndocumentedNamesAreFound(t *testing.T) {
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
	names, seen := undocumented(file)
	assert.Equal(t, []string{"Bare", "T", "T.Method", "C", "W"}, names)
	assert.Equal(t, 7, seen)
}

// undocumented returns the exported names of a file that have no comment, and how many
// exported names there are.
func undocumented(file *ast.File) (names []string, seen int) {
	note := func(name string, docs ...*ast.CommentGroup) {
		seen++
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
	return names, seen
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

// parseAll returns the parsed Go files of the repository whose names end with suffix and
// .go, by path.
func parseAll(t *testing.T, suffix string) map[string]*ast.File {
	t.Helper()
	files := make(map[string]*ast.File)
	for _, path := range filesNamed(t, suffix+".go") {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		files[path] = file
	}
	return files
}

// filesNamed returns the paths of the repository's files whose names end with suffix.
func filesNamed(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return nil
	})
	require.NoError(t, err)
	return paths
}

// testName finds the tests, examples, fuzz targets and benchmarks that a text
// names in backticks, and the scenarios, which are subtests of TestScenarios.
var testName = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Z_]?\\w*)(?:/([\\w-]+))?`")

func TestDocuments_NamedTestsExist(t *testing.T) {
	exists := make(map[string]bool)
	for _, file := range parseAll(t, "_test") {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				exists[f.Name.Name] = true
			}
		}
	}
	named := 0
	for _, document := range filesNamed(t, ".md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			assert.True(t, exists[m[1]], "%s names %s, which does not exist", document, m[1])
			if m[2] != "" {
				assert.FileExists(t, filepath.Join(root, "testdata", "scenarios", m[2]+".scenario"), "named in %s", document)
			}
		}
	}
	assert.Greater(t, named, 10, "the documents name the tests that prove their promises")
}
