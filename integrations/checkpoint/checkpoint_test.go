package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/integrations/checkpoint"
)

func tripped(tools ...string) *toolhealth.Registry {
	r := toolhealth.NewRegistry()
	trip(r, tools...)
	return r
}

func trip(r *toolhealth.Registry, tools ...string) {
	for _, tool := range tools {
		for range 3 {
			r.RecordFailure(tool, 0)
		}
	}
}

// load returns what is in the file.
func load(t *testing.T, path string) (*toolhealth.Registry, toolhealth.Restored) {
	t.Helper()
	r := toolhealth.NewRegistry()
	res, err := checkpoint.Load(r, path)
	require.NoError(t, err)
	return r, res
}

func files(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSave_IsLoaded(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "tools.json")
	_, res := load(t, path)
	assert.Zero(t, res, "a file that is not there is no error")

	require.NoError(t, checkpoint.Save(tripped("a", "b"), path))
	r, res := load(t, path)
	assert.Equal(t, 2, res.Tools)
	assert.False(t, r.Available("a"))
	assert.Equal(t, []string{"tools.json"}, files(t, folder))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, checkpoint.Save(tripped("c"), path))
	_, res = load(t, path)
	assert.Equal(t, 1, res.Tools)
}

func TestLoad_ReportsWhatIsNoCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.json")
	require.NoError(t, checkpoint.Save(tripped("a"), path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	r := toolhealth.NewRegistry()
	_, err = checkpoint.Load(r, path)
	assert.ErrorIs(t, err, toolhealth.ErrCheckpoint)
	assert.Zero(t, r.Len())
	_, err = checkpoint.Load(r, filepath.Dir(path))
	assert.Error(t, err, "a folder")
	_, err = checkpoint.Load(r, path+"\x00")
	assert.Error(t, err)
}

// What an earlier process left behind, or another one put there, is not written to.
func TestSave_TakesTheTemporaryFileAway(t *testing.T) {
	folder := t.TempDir()
	path, other := filepath.Join(folder, "tools.json"), filepath.Join(folder, "other")
	require.NoError(t, os.WriteFile(other, []byte("precious"), 0o644))
	if err := os.Symlink(other, path+checkpoint.Suffix); err != nil {
		t.Skip(err)
	}
	require.NoError(t, checkpoint.Save(tripped("a"), path))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
	assert.Equal(t, []string{"other", "tools.json"}, files(t, folder))
}

func TestSave_ErrorLeavesOldFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "tools.json")
	assert.Error(t, checkpoint.Save(tripped("a"), filepath.Join(folder, "none", "tools.json")))
	require.NoError(t, checkpoint.Save(tripped("a"), path))
	require.NoError(t, os.MkdirAll(filepath.Join(path+checkpoint.Suffix, "full"), 0o700))
	assert.Error(t, checkpoint.Save(tripped("b"), path))
	r, _ := load(t, path)
	assert.False(t, r.Available("a"))

	target := filepath.Join(folder, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(target, "full"), 0o700))
	assert.Error(t, checkpoint.Save(tripped("b"), target))
	assert.NotContains(t, files(t, folder), "folder"+checkpoint.Suffix, "nothing is left behind")
}

func TestSave_ManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.json")
	r := tripped("a", "b")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				assert.NoError(t, checkpoint.Save(r, path))
			}
		})
	}
	wg.Wait()
	_, res := load(t, path)
	assert.Equal(t, 2, res.Tools)
}

func TestKeep_SavesAfterChangesAndAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.json")
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			checkpoint.Keep(ctx, r, path, 10*time.Second, func(err error) { t.Error(err) })
		}()
		kept := func() int {
			synctest.Wait()
			_, res := load(t, path)
			return res.Tools
		}
		assert.Zero(t, kept())
		trip(r, "a")
		assert.Equal(t, 1, kept())
		trip(r, "b", "c")
		assert.Equal(t, 1, kept(), "at most once in that time")
		time.Sleep(10 * time.Second)
		assert.Equal(t, 3, kept())
		time.Sleep(10 * time.Second)
		r.Record("d", toolhealth.Verdict{Outcome: toolhealth.OutcomeThrottled, RetryAfter: time.Minute}, 0)
		assert.Equal(t, 4, kept(), "a stated wait is no transition")
		r.RecordFailure("e", 0)
		assert.Equal(t, 4, kept())
		cancel()
		<-done
		assert.Equal(t, 5, kept(), "at the end")
		trip(r, "f")
		assert.Equal(t, 5, kept(), "and not after it")
	})
}

func TestKeep_ReportsErrorsAndGoesOn(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "later", "tools.json")
	synctest.Test(t, func(t *testing.T) {
		r := toolhealth.NewRegistry()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var failures []error
		go func() {
			defer close(done)
			checkpoint.Keep(ctx, r, path, 0, func(err error) { failures = append(failures, err) })
		}()
		synctest.Wait()
		trip(r, "a")
		synctest.Wait()
		assert.Len(t, failures, 1)
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		time.Sleep(time.Second)
		synctest.Wait()
		_, res := load(t, path)
		assert.Equal(t, 1, res.Tools, "tried again without another change")
		time.Sleep(time.Second)
		trip(r, "b")
		synctest.Wait()
		_, res = load(t, path)
		assert.Equal(t, 2, res.Tools)
		cancel()
		<-done
		assert.Len(t, failures, 1)
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
		checkpoint.Keep(ctx, r, path, 0, nil) // a failure is told to no function
	})
}

const childPath = "TOOLHEALTH_CHECKPOINT_PATH"

// TestChild is the process that TestSave_KilledProcessLeavesWholeFile kills.
func TestChild(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		t.Skip("it is run by another test")
	}
	r := toolhealth.NewRegistry()
	go checkpoint.Keep(context.Background(), r, path, time.Nanosecond, func(err error) { panic(err) })
	for i := 0; ; i++ {
		tool := fmt.Sprint("tool", i%500)
		trip(r, tool)
		if i%3 == 0 {
			r.Isolate(tool, "operator")
		}
		if i%500 == 499 {
			time.Sleep(time.Millisecond)
		}
	}
}

func TestSave_KilledProcessLeavesWholeFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "tools.json")
	read, tools := 0, 0
	kills := 60
	if testing.Short() {
		kills = 10
	}
	for i := range kills {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
		child.Env = append(os.Environ(), childPath+"="+path)
		var said bytes.Buffer
		child.Stdout, child.Stderr = &said, &said
		require.NoError(t, child.Start())
		if i == 0 { // the first one needs time to begin
			require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, time.Millisecond)
		}
		time.Sleep(time.Duration(20+7*i%50) * time.Millisecond)
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
		require.NotContains(t, said.String(), "panic")
		_, res := load(t, path)
		if res.Tools > 0 {
			read++
			tools += res.Tools
		}
		for _, name := range files(t, folder) {
			require.Contains(t, []string{"tools.json", "tools.json" + checkpoint.Suffix}, name)
		}
	}
	assert.Equal(t, kills, read)
	t.Logf("killed %d times, read %d times with %d tools on average", kills, read, tools/max(read, 1))
	require.NoError(t, checkpoint.Save(tripped("a"), path))
	assert.Equal(t, []string{"tools.json"}, files(t, folder), "the next save takes the rest away")
}
