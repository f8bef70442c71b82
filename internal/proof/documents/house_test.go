package documents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	maxFileLines     = 1000 // of a file of the root package
	maxFunctionLines = 60   // of a function outside of tests
	maxRootTests     = 15   // test files of the root package
	maxPositional    = 5    // fields of a struct literal that do not name them
)

func TestSources_RootFilesAreShort(t *testing.T) {
	for name, text := range rootFiles(t) {
		lines := strings.Count(text, "\n")
		assert.LessOrEqual(t, lines, maxFileLines, "%s has %d lines", name, lines)
	}
}

func TestSources_RootHasFewTestFiles(t *testing.T) {
	var tests []string
	for name := range rootFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, name)
		}
	}
	require.NotEmpty(t, tests)
	assert.LessOrEqual(t, len(tests), maxRootTests, "what proves and needs no inside belongs to internal/proof: %v", tests)
}

func TestSources_FunctionsAreShort(t *testing.T) {
	fset, folders := parseSources(t)
	for _, files := range folders {
		for _, file := range files {
			for _, f := range longFunctions(fset, file) {
				t.Errorf("%s, of %d at most", f, maxFunctionLines)
			}
		}
	}
}

func TestSources_StructLiteralsNameTheirFields(t *testing.T) {
	fset, folders := parseSources(t)
	for _, files := range folders {
		for _, place := range positionalLiterals(fset, files) {
			t.Errorf("%s, of %d at most", place, maxPositional)
		}
	}
}

// The pure step knows no clock, no lock and no other package of the library.
func TestSources_MachineImportsMathAndTimeOnly(t *testing.T) {
	_, folders := parseSources(t)
	files := folders[filepath.Join(root, "internal", "machine")]
	require.NotEmpty(t, files)
	assert.Subset(t, []string{"math", "time"}, importsOf(files))
}

func TestNames_NoTestBeginsWithAnArticle(t *testing.T) {
	seen := 0
	for path, file := range parseAll(t, "_test") {
		names := testsOf(file)
		seen += len(names)
		for _, name := range names {
			assert.False(t, beginsWithArticle(name), "%s: %s", path, name)
		}
	}
	require.Greater(t, seen, 300, "there are more tests than were looked at")
}

func TestNames_ArticlesAreFound(t *testing.T) {
	for name, want := range map[string]bool{
		"TestABreakerOpens": true, "TestAnErrorCounts": true, "TestTheGate": true, "TestThe_Gate": true,
		"ExampleARegistry": true, "FuzzAnyInput": false, "FuzzTheInput": true, "BenchmarkACall": true,
		"TestAttempt_Ends": false, "TestThenable_Ends": false, "TestAnswer_Ends": false, "TestBreaker_OpensAtThreshold": false,
	} {
		file := parse(t, token.NewFileSet(), "package p\nfunc "+name+"() {}\nfunc helper() {}\nfunc (T) TestTheMethod() {}")
		require.Equal(t, []string{name}, testsOf(file))
		assert.Equal(t, want, beginsWithArticle(name), name)
	}
}

func TestSources_LongFunctionsAreFound(t *testing.T) {
	body := strings.Repeat("\t_ = 0\n", maxFunctionLines-2) // with its two braces, as long as is allowed
	fset := token.NewFileSet()
	file := parse(t, fset, "package p\n"+
		"func fits() {\n"+body+"}\n"+
		"func (T) long() {\n\n"+body+"}\n"+
		"var literal = func() {\n\n"+body+"}\n")
	assert.Equal(t, []string{
		fmt.Sprintf("p.go:%d: long has %d lines", 2+maxFunctionLines, maxFunctionLines+1),
		fmt.Sprintf("p.go:%d: a function literal has %d lines", 3+2*maxFunctionLines, maxFunctionLines+1),
	}, longFunctions(fset, file))
}

func TestSources_PositionalLiteralsAreFound(t *testing.T) {
	fset := token.NewFileSet()
	file := parse(t, fset, `package p
import "elsewhere"
type five struct { a, b, c, d, e int }
type six[T any] struct { five; f T; g elsewhere.T; h, i, j int }
type list []int
var (
	_ = five{1, 2, 3, 4, 5}
	_ = list{1, 2, 3, 4, 5, 6}
	_ = [...]int{1, 2, 3, 4, 5, 6}
	_ = six[int]{f: 1, h: 2, i: 3, j: 4, g: elsewhere.V, five: five{}}
	_ = six[int]{five{}, 1, elsewhere.V, 2, 3, 4}
	_ = []*six[int]{
		{five{}, 1, elsewhere.V, 2, 3, 4},
	}
	_ = map[string]struct{ a, b, c, d, e, f int }{
		"a": {1, 2, 3, 4, 5, 6},
	}
)
`)
	assert.Equal(t, []string{
		"p.go:11: a struct literal has 6 fields without names",
		"p.go:13: a struct literal has 6 fields without names",
		"p.go:16: a struct literal has 6 fields without names",
	}, positionalLiterals(fset, []*ast.File{file}))
}

func TestSources_ImportsAreFound(t *testing.T) {
	fset := token.NewFileSet()
	files := []*ast.File{
		parse(t, fset, "package p\nimport \"time\""),
		parse(t, fset, "package p\nimport (\n\t\"math\"\n\t_ \"sync\"\n)"),
	}
	assert.Equal(t, []string{"math", "sync", "time"}, importsOf(files))
}

// rootFiles returns the texts of the Go files of the root package, by name.
func rootFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		texts[filepath.Base(path)] = string(text)
	}
	require.Contains(t, texts, "breaker.go")
	require.Contains(t, texts, "breaker_test.go")
	return texts
}

// parseSources returns the files of the repository that are no tests, by folder: those of
// nested modules and of other platforms too.
func parseSources(t *testing.T) (*token.FileSet, map[string][]*ast.File) {
	t.Helper()
	fset, folders := token.NewFileSet(), make(map[string][]*ast.File)
	for _, path := range filesNamed(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], file)
	}
	for _, folder := range []string{"", "internal/machine", "internal/bench/cmd/table", "examples/gateway"} {
		require.NotEmpty(t, folders[filepath.Join(root, folder)], "nothing was looked at in %q", folder)
	}
	return fset, folders
}

// parse returns the parsed text of a file that is called p.go.
func parse(t *testing.T, fset *token.FileSet, text string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(fset, "p.go", text, 0)
	require.NoError(t, err)
	return file
}

// longFunctions describes the functions of a file that have more lines than
// maxFunctionLines, from the word func to the closing brace.
func longFunctions(fset *token.FileSet, file *ast.File) (long []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		var name string
		switch f := n.(type) {
		case *ast.FuncDecl:
			name = f.Name.Name
		case *ast.FuncLit:
			name = "a function literal"
		default:
			return true
		}
		start, end := fset.Position(n.Pos()), fset.Position(n.End())
		if d, ok := n.(*ast.FuncDecl); ok { // Pos is that of the doc comment
			start = fset.Position(d.Type.Func)
		}
		if lines := end.Line - start.Line + 1; lines > maxFunctionLines {
			long = append(long, fmt.Sprintf("%s:%d: %s has %d lines", start.Filename, start.Line, name, lines))
		}
		return true
	})
	return long
}

// positionalLiterals describes the struct literals that have more than maxPositional
// fields and name none. It knows the types of the package itself; go vet reports such
// literals of imported types, of any length.
func positionalLiterals(fset *token.FileSet, files []*ast.File) (places []string) {
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	config := types.Config{
		Importer: nothingImported{},
		Error:    func(error) {}, // what is imported, or declared once for each platform
	}
	_, _ = config.Check("p", fset, files, info)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || len(literal.Elts) <= maxPositional {
				return true
			}
			if _, named := literal.Elts[0].(*ast.KeyValueExpr); !named && isStruct(info.TypeOf(literal)) {
				at := fset.Position(literal.Pos())
				places = append(places, fmt.Sprintf("%s:%d: a struct literal has %d fields without names", at.Filename, at.Line, len(literal.Elts)))
			}
			return true
		})
	}
	return places
}

// isStruct reports whether t is a struct or, as in a list of pointers whose elements
// leave the type out, a pointer to one.
func isStruct(t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	_, ok := t.Underlying().(*types.Struct)
	return ok
}

// nothingImported is an importer that makes every package an empty one.
type nothingImported struct{}

func (nothingImported) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// importsOf returns the sorted paths that the files import.
func importsOf(files []*ast.File) []string {
	paths := make(map[string]bool)
	for _, file := range files {
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			paths[path] = true
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// testsOf returns the names of a file's tests, examples, fuzz targets and benchmarks.
func testsOf(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testFunction.MatchString(f.Name.Name) {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

var (
	testFunction = regexp.MustCompile(`^(Test|Example|Fuzz|Benchmark)([^a-z]|$)`)
	article      = regexp.MustCompile(`^(Test|Example|Fuzz|Benchmark)(A|An|The)([^a-z]|$)`)
)

// beginsWithArticle reports whether the first word of a test's name is A, An or The.
// TestAPI counts, too: case alone does not tell an initialism from an article.
func beginsWithArticle(name string) bool { return article.MatchString(name) }
