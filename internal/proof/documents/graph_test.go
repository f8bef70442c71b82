package documents_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// floors are the files of the root package, from the ground up. A file may use what is
// declared on a lower floor, and nothing else of the package: so there is no knot.
var floors = [][]string{
	{"doc.go"},
	{"classify.go"},
	{"config.go", "stats.go"},
	{"breaker.go"},
	{"group.go"},
	{"registry.go"},
	{"operator.go", "health.go"},
	{"hint.go", "checkpoint.go"},
	{"router.go"},
	{"attempt.go"},
	{"guard.go"},
	{"tool.go"},
	{"flight.go"},
}

func TestFiles_UseLowerFloorsOnly(t *testing.T) {
	files, uses := fileGraph(t)
	for _, problem := range upward(floors, files, uses) {
		t.Error(problem)
	}
	assert.NotEmpty(t, uses[[2]string{"guard.go", "registry.go"}], "no use was found")
}

func TestFiles_UpwardUsesAreFound(t *testing.T) {
	fset := token.NewFileSet()
	files := make([]*ast.File, 0, 4)
	for name, text := range map[string]string{
		"low.go":    "package p\ntype Low struct{ field int }\nfunc knot() { high() }\n",
		"beside.go": "package p\nfunc (l Low) method() int { return l.field }\nvar beside = 1\n",
		"high.go":   "package p\nfunc high() { knot(); var local Low; _ = local.method(); _ = local.field }\n",
		"new.go":    "package p\nvar _ = Low{field: beside}\n",
	} {
		file, err := parser.ParseFile(fset, filepath.Join("folder", name), text, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	names, uses, err := usesOf(fset, files, nothingImported{})
	require.NoError(t, err)
	slices.Sort(names)
	assert.Equal(t, []string{"beside.go", "high.go", "low.go", "new.go"}, names)
	assert.Equal(t, map[[2]string][]string{
		{"low.go", "high.go"}:    {"high"},
		{"beside.go", "low.go"}:  {"Low", "field"},
		{"high.go", "low.go"}:    {"Low", "field", "knot"},
		{"high.go", "beside.go"}: {"method"},
		{"new.go", "low.go"}:     {"Low", "field"},
		{"new.go", "beside.go"}:  {"beside"},
	}, uses)
	assert.Equal(t, []string{
		"gone.go is on a floor, and there is no such file",
		"low.go uses high of high.go, which is not on a lower floor",
		"new.go has no floor: which files may it use?",
	}, upward([][]string{{"low.go", "gone.go"}, {"beside.go"}, {"high.go"}}, names, uses))
	assert.Contains(t, upward([][]string{{"low.go", "beside.go"}, {"high.go", "new.go"}}, names, uses),
		"beside.go uses Low, field of low.go, which is not on a lower floor")
}

// upward describes each use that does not go to a lower floor, each file without a floor
// and each name on a floor without a file.
func upward(floors [][]string, files []string, uses map[[2]string][]string) (problems []string) {
	floorOf := make(map[string]int)
	for floor, names := range floors {
		for _, name := range names {
			floorOf[name] = floor
			if !slices.Contains(files, name) {
				problems = append(problems, name+" is on a floor, and there is no such file")
			}
		}
	}
	for _, name := range files {
		if _, ok := floorOf[name]; !ok {
			problems = append(problems, name+" has no floor: which files may it use?")
		}
	}
	for edge, names := range uses {
		from, known := floorOf[edge[0]]
		to, alsoKnown := floorOf[edge[1]]
		if known && alsoKnown && to >= from {
			problems = append(problems, edge[0]+" uses "+strings.Join(names, ", ")+" of "+edge[1]+", which is not on a lower floor")
		}
	}
	slices.Sort(problems)
	return problems
}

// fileGraph returns the files of the root package that are no tests, and what they use
// of each other.
func fileGraph(t *testing.T) ([]string, map[[2]string][]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", module)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := make(map[string]string) // files with the types of the imported packages, by path
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for name := range rootFiles(t) {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fset, filepath.Join(root, name), nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	names, uses, err := usesOf(fset, files, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	}))
	require.NoError(t, err)
	return names, uses
}

// usesOf returns the names of the files of one package, and what they use of each other:
// the sorted names, methods and fields by the file that uses and the one that declares
// them.
func usesOf(fset *token.FileSet, files []*ast.File, imports types.Importer) (names []string, uses map[[2]string][]string, err error) {
	fileOf := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for _, file := range files {
		names = append(names, fileOf(file.Package))
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	pkg, err := (&types.Config{Importer: imports}).Check(module, fset, files, info)
	if err != nil {
		return nil, nil, err
	}
	uses = make(map[[2]string][]string)
	for id, object := range info.Uses {
		edge := [2]string{fileOf(id.Pos()), fileOf(object.Pos())}
		if object.Pkg() == pkg && edge[0] != edge[1] {
			uses[edge] = append(uses[edge], object.Name())
		}
	}
	for edge := range uses {
		slices.Sort(uses[edge])
		uses[edge] = slices.Compact(uses[edge])
	}
	return names, uses, nil
}
