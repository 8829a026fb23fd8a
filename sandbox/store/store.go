package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox"
)

// layout is the number in VERSION.
const layout = "1"

// syncEvery is how long a record may wait until it is on disk.
const syncEvery = time.Second

// Store is a directory of records. It is safe for concurrent use, but two
// changes of one pod must not run at once.
type Store struct {
	root string
	lock *os.File

	mu    sync.Mutex // guards dirty
	dirty bool       // something was written since the last sync
}

// Open makes the directory if it is missing and locks it. It is an error if
// another process has it, or if a newer crib wrote it.
func Open(root string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(root, "pods"), 0o700); err != nil {
		return nil, err
	}
	lock, err := Lock(root)
	if err != nil {
		return nil, err
	}
	s := &Store{root: root, lock: lock}
	if err := s.checkVersion(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return s, nil
}

// Lock makes a directory this process's own, until the file is closed: it holds
// the file LOCK in it. It does not wait; the error names the process that has it.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "LOCK")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: another crib (PID %s) has it: %w", path, strings.TrimSpace(string(owner)), err)
	}
	// The PID is for people only: a full disk is no reason not to start.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}

func (s *Store) checkVersion() error {
	path := filepath.Join(s.root, "VERSION")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return replaceFile(path, []byte(layout+"\n"), true)
	}
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(b)); got != layout {
		return fmt.Errorf("%s is %q and this crib knows %q: run the crib that wrote it, or remove %s", path, got, layout, s.root)
	}
	return nil
}

// Close syncs what is not on disk yet and gives the lock back.
func (s *Store) Close() error {
	return errors.Join(s.sync(), s.lock.Close())
}

// Serve syncs changed records to disk every second until ctx ends. It returns the
// first error; nothing is lost by that, and it can be called again.
func (s *Store) Serve(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.sync(); err != nil {
				return err
			}
		}
	}
}

// sync writes the root's file system out if a record changed: one call for all
// of them costs less than one for each. After an error it is due again.
func (s *Store) sync() error {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	if err := unix.Syncfs(int(s.lock.Fd())); err != nil {
		s.touch()
		return fmt.Errorf("sync %s: %w", s.root, err)
	}
	return nil
}

// touch notes that something waits for the next sync.
func (s *Store) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = true
}

func (s *Store) podDir(id string) string { return filepath.Join(s.root, "pods", id) }

// Put replaces the record of a pod.
func (s *Store) Put(pod *sandbox.Pod) error {
	b, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.podDir(pod.ID), 0o700); err != nil {
		return err
	}
	defer s.touch()
	return replaceFile(filepath.Join(s.podDir(pod.ID), "pod.json"), b, false)
}

// Delete removes the record of a pod. Its directory stays while it holds records
// of containers: [Store.Load] then reports the pod as one that cannot be read, so
// that what is left of it is still undone.
func (s *Store) Delete(id string) error {
	defer s.touch()
	dir := s.podDir(id)
	for _, name := range []string{"pod.json", "pod.json.new"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !missing(err) {
			return err
		}
	}
	left, err := containerNames(dir)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.RemoveAll(dir)
}

// Load returns all records, and the ids of those that cannot be read.
func (s *Store) Load() (pods []*sandbox.Pod, broken []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.root, "pods"))
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		var pod sandbox.Pod
		b, err := os.ReadFile(filepath.Join(s.podDir(entry.Name()), "pod.json"))
		if err == nil {
			err = json.Unmarshal(b, &pod)
		}
		if err != nil || pod.ID != entry.Name() {
			broken = append(broken, entry.Name())
			continue
		}
		pods = append(pods, &pod)
	}
	return pods, broken, nil
}

// SetFact keeps a small value under a name; it is on disk when this returns.
func (s *Store) SetFact(name string, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.root, name+".json"), append(b, '\n'), true)
}

// Fact reads the value under a name; a missing one leaves value as it is.
func (s *Store) Fact(name string, value any) error {
	b, err := os.ReadFile(filepath.Join(s.root, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, value); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.root, name+".json"), err)
	}
	return nil
}

// replaceFile writes a file beside path and renames it. With durable set, both
// the content and the name are on disk when it returns.
func replaceFile(path string, content []byte, durable bool) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	if err := os.Rename(path+".new", path); err != nil || !durable {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
