package cni

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch tells of changes in a directory, and in its parent of the directory's
// own coming and going. It belongs to one goroutine.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	seen    os.FileInfo // the directory that the watch is on; nil for none
}

// newWatch returns a watch that is not armed yet. Where the kernel gives none, it
// says so and stays silent: the regular look must do.
func newWatch(dir string, log *slog.Logger) *watch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("CNI directory is not watched, only read every so often", "dir", dir, "error", err)
		watcher = &fsnotify.Watcher{}
	}
	return &watch{dir: dir, watcher: watcher}
}

func (w *watch) close() {
	if w.events() != nil {
		_ = w.watcher.Close()
	}
}

// events yields what happened; nil where there is no watch.
func (w *watch) events() <-chan fsnotify.Event { return w.watcher.Events }

// missed yields an error where events were lost.
func (w *watch) missed() <-chan error { return w.watcher.Errors }

// concerns tells whether an event changes the directory or what is in it; of the
// parent's other entries nothing matters. After one of the directory itself the
// watch may be on nothing: its inode's number alone may well be in use again.
func (w *watch) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	if e.Name == w.dir {
		w.seen = nil
		return true
	}
	return filepath.Dir(e.Name) == w.dir
}

// arm puts the watch on the directory that now has the name. A watch stays with
// the inode: one that was renamed away or removed must be set anew.
func (w *watch) arm() {
	if w.events() == nil {
		return
	}
	_ = w.watcher.Add(filepath.Dir(w.dir)) // if missing, the regular look finds it later
	now, err := os.Stat(w.dir)
	if err == nil && w.seen != nil && os.SameFile(now, w.seen) {
		return
	}
	w.seen = nil
	_ = w.watcher.Remove(w.dir) // an error says that there was none
	if err == nil && w.watcher.Add(w.dir) == nil {
		w.seen = now
	}
}
