// Package checkpoint keeps what a registry knows against its tools in a file, so that a
// process that starts again need not learn it from failing calls.
//
// It is for one process and one file: two that save to the same file overwrite each
// other. The file has names of tools and operators in it, and no error, address or
// secret.
package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Suffix is what the name of the temporary file has more than that of the file. There is
// one such name, so that a process that is killed leaves no more than one file behind,
// which the next Save takes away.
const Suffix = ".tmp"

// saving is held while a temporary file is written: all savers of one file share its name.
var saving sync.Mutex

// Load restores the registry from the file; call it before there is traffic. A file that
// is not there is no error. After any error nothing has changed, and the registry can be
// used as it is; one that is [toolhealth.ErrCheckpoint] says that the file is no
// checkpoint, or not the one that was saved.
func Load(r *toolhealth.Registry, path string) (toolhealth.Restored, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return toolhealth.Restored{}, nil
	}
	if err != nil {
		return toolhealth.Restored{}, err
	}
	defer f.Close()
	return r.Restore(f)
}

// Save writes the file, with mode 0600: a reader finds the old one or the new one, whole,
// also if the process is killed or the machine stops meanwhile. It writes a temporary
// file beside it, whose name has [Suffix], syncs it and renames it. After an error the
// old file is still there, unless only the folder could not be synced. Several goroutines
// may save at once; they take turns.
func Save(r *toolhealth.Registry, path string) error {
	saving.Lock()
	defer saving.Unlock()
	var text bytes.Buffer
	if err := r.Checkpoint(&text); err != nil {
		return err
	}
	if err := writeSynced(path+Suffix, text.Bytes()); err != nil {
		return err
	}
	if err := os.Rename(path+Suffix, path); err != nil {
		return errors.Join(err, os.Remove(path+Suffix))
	}
	return syncFolder(filepath.Dir(path))
}

// writeSynced makes a file that was not there; one that was left behind is removed, never
// written to, as it may be a link. After an error there is none.
func writeSynced(path string, text []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// syncFolder makes a rename in the folder last. Windows has no such call.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Keep saves after each transition of a breaker and each stated wait, at most once in
// every, until ctx is done; then it saves once more and returns. An interval of zero or
// less is one second. A streak that has not opened its breaker yet is in the file only
// after the next save.
//
// Each error of a save goes to fail, which may be nil; Keep tries again after every. Run it on a goroutine
// of your own, and wait for it before the process ends. No call of a tool ever waits for
// it.
func Keep(ctx context.Context, r *toolhealth.Registry, path string, every time.Duration, fail func(error)) {
	if every <= 0 {
		every = time.Second
	}
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default: // a save is due already
		}
	}
	defer r.OnTransition(func(toolhealth.Transition) { note() })()
	defer r.OnStatedWait(func(toolhealth.StatedWait) { note() })()
	save := func() {
		err := Save(r, path)
		if err != nil {
			note() // again, after every
		}
		if err != nil && fail != nil {
			fail(err)
		}
	}
	defer save()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select { // not before the pause is over
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			save()
			pause.Reset(every)
		}
	}
}
