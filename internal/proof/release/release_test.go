package release

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root       = "../../.."
	rootModule = "github.com/toolhealth/toolhealth"
)

// run runs a command in a folder and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s%s", name, args, out, errors.String())
	return strings.TrimSpace(string(out))
}

// checkout returns a repository with the files of this one as they are, and its origin.
func checkout(t *testing.T) (dir, origin string) {
	t.Helper()
	dir, origin = t.TempDir(), t.TempDir()
	for _, name := range strings.Split(run(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) || name == "" {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	run(t, origin, nil, "git", "init", "-q", "--bare", "-b", "main")
	run(t, dir, nil, "git", "init", "-q", "-b", "main")
	run(t, dir, nil, "git", "config", "user.name", "Release")
	run(t, dir, nil, "git", "config", "user.email", "release@example.com")
	run(t, dir, nil, "git", "remote", "add", "origin", origin)
	run(t, dir, nil, "git", "add", "-A")
	run(t, dir, nil, "git", "commit", "-q", "-m", "Before")
	return dir, origin
}

// steps returns the commands of CONTRIBUTING.md for this version.
func steps(t *testing.T, version string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".github", "CONTRIBUTING.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^## Releasing$.*?^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 1)
	first := regexp.MustCompile(`(?m)^version=v[0-9.]+ `)
	require.Len(t, first.FindAllString(blocks[0][1], -1), 1)
	return first.ReplaceAllString(blocks[0][1], "version="+version+" ")
}

// publish makes a module proxy of files from the tags of a repository, and returns its
// modules.
func publish(t *testing.T, repository, proxy, version string) (modules []string) {
	t.Helper()
	for _, tag := range strings.Fields(run(t, repository, nil, "git", "tag")) {
		subdir := strings.TrimSuffix(strings.TrimSuffix(tag, version), "/")
		mod := module.Version{Path: path.Join(rootModule, subdir), Version: version}
		folder := filepath.Join(proxy, filepath.FromSlash(mod.Path), "@v")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC().Format(time.RFC3339)})
		require.NoError(t, err)
		for name, text := range map[string]string{
			".info": string(info), ".mod": run(t, repository, nil, "git", "show", tag+":"+path.Join(subdir, "go.mod")) + "\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(folder, version+name), []byte(text), 0o644))
		}
		archive, err := os.Create(filepath.Join(folder, version+".zip"))
		require.NoError(t, err)
		require.NoError(t, zip.CreateFromVCS(archive, mod, repository, tag, subdir), tag)
		require.NoError(t, archive.Close())
		modules = append(modules, mod.Path)
	}
	return modules
}

// forget removes a version of the modules from the module cache.
func forget(t *testing.T, cache string, modules []string, version string) {
	for _, mod := range modules {
		folder := filepath.Join(cache, filepath.FromSlash(mod)+"@"+version)
		_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
		assert.NoError(t, os.RemoveAll(folder))
		files, err := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(mod), "@v", version+".*"))
		assert.NoError(t, err)
		for _, file := range files {
			assert.NoError(t, os.Remove(file))
		}
	}
}

// A user who has no checkout requires the modules by their versions, and builds.
func TestRelease_ModulesWorkWithoutCheckout(t *testing.T) {
	version := fmt.Sprintf("v0.0.1-test.%d", time.Now().UnixNano()) // no other test, and no release, has it
	dir, origin := checkout(t)
	run(t, dir, nil, "bash", "-euo", "pipefail", "-c", steps(t, version))
	proxy := t.TempDir()
	for _, file := range goMods(t) { // in the repository they build as before
		if !strings.Contains(file, "testdata/") {
			run(t, filepath.Join(dir, path.Dir(file)), []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}, "go", "list", "-deps", "./...")
		}
	}
	clone := t.TempDir()
	run(t, clone, nil, "git", "clone", "-q", origin, ".")
	modules := publish(t, clone, proxy, version)
	require.Equal(t, released(t), modules)

	cache := run(t, root, nil, "go", "env", "GOMODCACHE")
	t.Cleanup(func() { forget(t, cache, modules, version) })
	env := []string{
		"GOFLAGS=-mod=mod", "GOWORK=off", "GONOSUMDB=" + rootModule + "," + rootModule + "/*",
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + run(t, root, nil, "go", "env", "GOPROXY"),
	}
	user := t.TempDir()
	var imports strings.Builder
	get := []string{"get"}
	for _, mod := range modules {
		fmt.Fprintf(&imports, "\t_ %q\n", mod)
		get = append(get, mod+"@"+version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(user, "user.go"), []byte("package user\n\nimport (\n"+imports.String()+")\n"), 0o644))
	run(t, user, env, "go", "mod", "init", "example.com/user")
	run(t, user, env, "go", get...)
	run(t, user, env, "go", "build", "./...")
	for _, mod := range modules {
		assert.Equal(t, version+" <nil>", run(t, user, env, "go", "list", "-m", "-f", "{{.Version}} {{.Replace}}", mod))
	}
}

// released returns the modules that users may require, by the folders in which they are.
func released(t *testing.T) []string {
	t.Helper()
	modules := map[string]bool{rootModule: true}
	for _, pattern := range []string{"integrations/*/go.mod", "integrations/fleet/*/go.mod"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			modules[modfile.ModulePath(text)] = true
		}
	}
	require.Greater(t, len(modules), 5)
	// git sorts tags: that of the root comes last
	return slices.SortedFunc(maps.Keys(modules), func(a, b string) int {
		return strings.Compare(tagOf(a), tagOf(b))
	})
}

// tagOf returns the tag of a module without the version.
func tagOf(mod string) string {
	if mod == rootModule {
		return "v"
	}
	return strings.TrimPrefix(mod, rootModule+"/")
}

// goMods returns the paths of every go.mod of the repository.
func goMods(t *testing.T) []string {
	t.Helper()
	return strings.Fields(run(t, root, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard", "*go.mod"))
}

// In the repository a nested module is built with the root that lies beside it, without a
// tag: its go.mod replaces nothing but modules of the repository, by their folders.
func TestRelease_ModulesReplaceOnlyWhatLiesBesideThem(t *testing.T) {
	nested := 0
	for _, file := range goMods(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		mod, err := modfile.Parse(file, text, nil)
		require.NoError(t, err)
		if file == "go.mod" || strings.Contains(file, "testdata/") {
			assert.Empty(t, mod.Replace, file)
			continue
		}
		nested++
		assert.Equal(t, path.Join(rootModule, path.Dir(file)), mod.Module.Mod.Path)
		replaced := make(map[string]bool)
		for _, r := range mod.Replace {
			replaced[r.Old.Path] = true
			folder := path.Join(path.Dir(file), r.New.Path)
			assert.Equal(t, r.Old.Path, path.Join(rootModule, folder), "%s: %s", file, r.New.Path)
			assert.Empty(t, r.Old.Version+r.New.Version, "%s: of every version", file)
		}
		for _, r := range mod.Require {
			if r.Mod.Path == rootModule || strings.HasPrefix(r.Mod.Path, rootModule+"/") {
				assert.True(t, replaced[r.Mod.Path], "%s requires %s", file, r.Mod.Path)
			}
		}
	}
	assert.Greater(t, nested, 5)
}
