package documents_test

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
)

// documents are the texts for people, by their paths below root.
var documents = []string{
	"README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md",
	"examples/agent/README.md", "examples/gateway/README.md", "examples/llm/README.md", "examples/recipes/README.md",
	"internal/proof/README.md", "internal/bench/README.md", "testdata/scenarios/README.md",
	"integrations/checkpoint/README.md",
	"integrations/dashboard/README.md",
	"integrations/einohealth/README.md",
	"integrations/fantasyhealth/README.md",
	"integrations/genkithealth/README.md",
	"integrations/grpchealth/README.md",
	"integrations/httphealth/README.md",
	"integrations/langchainhealth/README.md",
	"integrations/mcpgohealth/README.md",
	"integrations/mcphealth/README.md",
	"integrations/otelhealth/README.md",
	"integrations/promhealth/README.md",
	"integrations/sloghealth/README.md",
	"integrations/watch/README.md",
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks returns the blocks of code of one language in a document.
func blocks(t *testing.T, document, language string) (found []string) {
	t.Helper()
	for _, m := range fenced.FindAllStringSubmatch(readDocument(t, document), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// goFiles returns the text of all Go files in these folders.
func goFiles(t *testing.T, folders ...string) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, folder)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			all.Write(text)
		}
	}
	return all.String()
}

// isProgram reports whether a block can be run as it is.
func isProgram(block string) bool { return strings.HasPrefix(block, "package main\n") }

// A program in a document prints what the document says, and every other piece of Go
// stands word for word in a file that is compiled and tested.
func TestDocuments_CodeIsCompiledAndRun(t *testing.T) {
	for _, c := range []struct {
		document         string
		compiled         []string
		programs, pieces int
	}{
		{"README.md", []string{"."}, 1, 3},
		{"examples/gateway/README.md", []string{"examples/gateway"}, 0, 3},
		{"integrations/httphealth/README.md", []string{"integrations/httphealth"}, 0, 2},
		{"integrations/dashboard/README.md", []string{"integrations/dashboard"}, 0, 1},
		{"integrations/watch/README.md", []string{"integrations/watch"}, 0, 1},
		{"integrations/sloghealth/README.md", []string{"integrations/sloghealth"}, 0, 2},
		{"integrations/einohealth/README.md", []string{"integrations/einohealth"}, 0, 1},
		{"integrations/fantasyhealth/README.md", []string{"integrations/fantasyhealth"}, 0, 1},
		{"integrations/genkithealth/README.md", []string{"integrations/genkithealth"}, 0, 1},
		{"integrations/grpchealth/README.md", []string{"integrations/grpchealth"}, 0, 2},
		{"integrations/langchainhealth/README.md", []string{"integrations/langchainhealth"}, 0, 2},
		{"integrations/mcphealth/README.md", []string{"integrations/mcphealth"}, 0, 1},
		{"integrations/mcpgohealth/README.md", []string{"integrations/mcpgohealth"}, 0, 2},
		{"integrations/otelhealth/README.md", []string{"integrations/otelhealth"}, 0, 1},
		{"integrations/promhealth/README.md", []string{"integrations/promhealth"}, 0, 1},
		{"examples/recipes/README.md", []string{"examples/recipes"}, 0, 5},
	} {
		source := goFiles(t, c.compiled...)
		programs, pieces := 0, 0
		for _, block := range blocks(t, c.document, "go") {
			if isProgram(block) {
				programs++
				formatted, err := format.Source([]byte(block))
				require.NoError(t, err)
				assert.Equal(t, string(formatted), block, c.document)
				assert.Equal(t, wantOutput(t, block), runProgram(t, block), c.document)
				continue
			}
			pieces++
			assert.Contains(t, source, "\n"+block, "%s has code that is not in %v", c.document, c.compiled)
		}
		assert.Equal(t, c.programs, programs, c.document)
		assert.Equal(t, c.pieces, pieces, c.document)
	}
}

// wantOutput returns the output that a program promises in its Output comment.
func wantOutput(t *testing.T, program string) string {
	t.Helper()
	_, after, found := strings.Cut(program, "\t// Output:\n")
	require.True(t, found, "the program says what it prints")
	var want strings.Builder
	for line := range strings.Lines(after) {
		if text, ok := strings.CutPrefix(line, "\t// "); ok {
			want.WriteString(text)
		}
	}
	return want.String()
}

// runProgram compiles and runs a program in this module and returns what it prints.
func runProgram(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(path, []byte(program), 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "run", path)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(out)
}

func TestREADME_IsDoor(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(readDocument(t, "README.md"), "\n"), "\n")
	assert.LessOrEqual(t, len(lines), 260)
	first := strings.Join(lines[:40], "\n")
	program := blocks(t, "README.md", "go")[0]
	assert.Contains(t, first+"\n", "```go\n"+program+"```\n", "the program and its output are in the first 40 lines")
	for _, command := range []string{"go run ./examples/quickstart", "go test ./..."} {
		assert.Contains(t, first, command)
	}
}

// What the configuration of the README says is in force, and all else is the default.
func TestREADME_ConfigurationMeansWhatItSays(t *testing.T) {
	text := blocks(t, "README.md", "json")[0]
	assert.LessOrEqual(t, strings.Count(text, "\n"), 20)
	s, err := toolhealth.Load(strings.NewReader(text))
	require.NoError(t, err)
	breaker := toolhealth.BreakerConfig{
		FailureThreshold: 3, RecoveryDuration: 30 * time.Second, ProbeTimeout: 30 * time.Second, RecoveryJitter: 0.2,
	}
	crawl, search := breaker, breaker
	crawl.FailureThreshold, crawl.SlowCallDuration = 5, time.Minute
	search.RecoveryDuration = 10 * time.Second
	policy := toolhealth.Policy{Timeout: 10 * time.Second}
	slow, mail := policy, policy
	slow.Timeout, slow.MaxAttempts = 2*time.Minute, 1
	mail.SideEffects = true
	assert.Equal(t, toolhealth.Settings{
		Breaker: breaker, Policy: policy, RegisteredOnly: true,
		Tools: map[string]toolhealth.ToolSettings{
			"search": {Breaker: &search, Substitutes: []string{"search_backup"}},
			"crawl":  {Breaker: &crawl, Policy: &slow, Labels: map[string]string{"team": "research"}},
			"mail":   {Policy: &mail},

			"search_backup": {},
		},
	}, s)
	_, err = toolhealth.New(s)
	assert.NoError(t, err)
}

// The summary of the README is that of a registry after these calls.
func TestREADME_SummaryIsOneThatRegistryWrites(t *testing.T) {
	text := blocks(t, "README.md", "json")[1]
	assert.LessOrEqual(t, strings.Count(text, "\n"), 15)
	var shown bytes.Buffer
	require.NoError(t, json.Compact(&shown, []byte(text)))

	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		for range 40 {
			r.RecordSuccess("search", 250*time.Millisecond)
		}
		time.Sleep(90 * time.Second)
		timeout := toolhealth.Verdict{Outcome: toolhealth.OutcomeFailure, Kind: toolhealth.KindTimeout}
		for range 3 {
			r.Record("search", timeout, 10*time.Second)
		}
		for range 2 {
			assert.False(t, r.AllowRequest("search"))
		}
		time.Sleep(18 * time.Second)
		written, err := json.Marshal(r.HealthSummary())
		require.NoError(t, err)
		assert.Equal(t, string(written), shown.String())
	})
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func TestDocuments_LinksLeadToFiles(t *testing.T) {
	links := 0
	for _, document := range documents {
		prose := fenced.ReplaceAllString(readDocument(t, document), "") // a call of a generic function looks like a link
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			_, err := os.Stat(filepath.Join(root, filepath.Dir(document), filepath.FromSlash(m[1])))
			assert.NoError(t, err, "%s links to %s", document, m[1])
		}
	}
	assert.Greater(t, links, 8)
}
