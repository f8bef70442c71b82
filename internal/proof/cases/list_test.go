package cases_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth/internal/proof/scenario"
)

// root is the root of the module.
const root = "../../.."

// caseFacts is what exists, to compare a list of cases with.
type caseFacts struct {
	index     []string        // numbers of all cases
	scenarios map[string]bool // names of all scenarios
	tests     map[string]bool // names of all test functions
}

var namedAfterACase = regexp.MustCompile(`^(?:Test)?(C[0-9]+)`)

// wrongLines returns the mistakes of a list of cases, such as testdata/cases.txt.
func (f caseFacts) wrongLines(list string) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	covered, named := map[string]bool{}, map[string]string{}
	for i, line := range strings.Split(list, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 3 {
			complain("line %d says nothing", i+1)
			continue
		}
		number, sort, name := words[0], words[1], words[2]
		if !slices.Contains(f.index, number) {
			complain("line %d: there is no case %s", i+1, number)
		}
		switch sort {
		case "scenario", "test":
			exist := map[string]map[string]bool{"scenario": f.scenarios, "test": f.tests}[sort]
			if len(words) > 3 || !exist[name] {
				complain("line %d: there is no %s %s", i+1, sort, strings.Join(words[2:], " "))
			}
			named[name] = number
			covered[number] = true
		case "decided":
		case "absent":
			covered[number] = true
		default:
			complain("line %d: %q is none of scenario, test, decided, absent", i+1, sort)
		}
	}
	for _, number := range f.index {
		if !covered[number] {
			complain("%s has neither a scenario nor a test", number)
		}
	}
	for _, names := range []map[string]bool{f.scenarios, f.tests} {
		for name := range names {
			if m := namedAfterACase.FindStringSubmatch(name); m != nil && named[name] != m[1] {
				complain("%s is not listed under %s", name, m[1])
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// testFunctions returns the names of all test functions in the repository.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	return names
}

func TestCases_EachHasScenarioTestOrReason(t *testing.T) {
	index, err := os.ReadFile(root + "/testdata/case_index.txt")
	require.NoError(t, err)
	list, err := os.ReadFile(root + "/testdata/cases.txt")
	require.NoError(t, err)
	files, err := scenario.Files(root + "/testdata/scenarios")
	require.NoError(t, err)
	facts := caseFacts{index: strings.Fields(string(index)), scenarios: map[string]bool{}, tests: testFunctions(t)}
	for _, file := range files {
		facts.scenarios[strings.TrimSuffix(filepath.Base(file), ".scenario")] = true
	}
	assert.Len(t, facts.index, 120)
	assert.Empty(t, facts.wrongLines(string(list)))
}

func TestCases_WrongListIsNoticed(t *testing.T) {
	facts := caseFacts{
		index:     []string{"C1", "C2"},
		scenarios: map[string]bool{"C1-story": true, "other": true},
		tests:     map[string]bool{"TestC2_Proof": true, "TestOther": true},
	}
	good := "# a list\nC1 scenario C1-story\nC1 decided so\nC2 test TestC2_Proof # and why\n"
	assert.Empty(t, facts.wrongLines(good))
	assert.Empty(t, facts.wrongLines(good+"C2 scenario other\nC1 test TestOther\nC1 absent for a reason"))
	for bad, says := range map[string]string{
		good + "C3 absent so":                          "line 5: there is no case C3",
		good + "C1 scenario none":                      "line 5: there is no scenario none",
		good + "C1 test TestNone":                      "line 5: there is no test TestNone",
		good + "C1 test TestOther or so":               "line 5: there is no test TestOther or so",
		good + "C1 open needs the guard":               `line 5: "open" is none of`,
		good + "C1 decided":                            "line 5 says nothing",
		"C1 scenario C1-story\nC2 decided so":          "C2 has neither a scenario nor a test",
		"C1 absent so\nC2 test TestC2_Proof":           "C1-story is not listed under C1",
		"C1 test TestC2_Proof\nC2 scenario C1-story\n": "TestC2_Proof is not listed under C2",
	} {
		assert.Contains(t, strings.Join(facts.wrongLines(bad), "\n"), says, bad)
	}
}
