package documents_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Updates are proposed for every module of the repository, the nested ones included.
func TestDependabot_ListsEveryModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	require.NoError(t, err)
	var modules []string
	for _, path := range filesNamed(t, "go.mod") {
		folder, err := filepath.Rel(root, filepath.Dir(path))
		require.NoError(t, err)
		modules = append(modules, "/"+strings.TrimPrefix(filepath.ToSlash(folder), "."))
	}
	require.Greater(t, len(modules), 2)
	slices.Sort(modules)
	assert.Equal(t, modules, updatedFolders(string(text), "gomod"))
}

func TestDependabot_FoldersAreThoseOfTheEcosystem(t *testing.T) {
	const text = `updates:
  - package-ecosystem: npm
    directories:
      - /site
  - package-ecosystem: gomod
    directories: # with a comment
      - /
      - /b # why
      - "/a/c"
    schedule:
      interval: weekly
  - package-ecosystem: docker
    directories:
      - /image
`
	assert.Equal(t, []string{"/", "/a/c", "/b"}, updatedFolders(text, "gomod"))
	assert.Equal(t, []string{"/image"}, updatedFolders(text, "docker"))
	assert.Empty(t, updatedFolders(text, "go"))
}

var listedFolder = regexp.MustCompile(`(?m)^ +- "?(/[^" #\n]*)`)

// updatedFolders returns the sorted folders that a dependabot.yml lists, one a line, for
// an ecosystem.
func updatedFolders(text, ecosystem string) (folders []string) {
	_, entry, _ := strings.Cut(text, "package-ecosystem: "+ecosystem+"\n")
	entry, _, _ = strings.Cut(entry, "package-ecosystem:")
	for _, m := range listedFolder.FindAllStringSubmatch(entry, -1) {
		folders = append(folders, m[1])
	}
	slices.Sort(folders)
	return folders
}
