package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxState is what containerd's limit of 42 characters for a socket directory
// leaves of it for Config.State, with "/s" behind.
const maxState = 40

// initDir is the init's root below Config.State, initName the program in it.
const (
	initDir  = "init"
	initName = "crib-init"
)

// socketDir is where the embedded engine's shims have their sockets.
func socketDir(state string) string { return filepath.Join(state, "s") }

// makeDirs makes the engine's directories. State can be passed through: in a
// user namespace the way down to a bundle must be.
func makeDirs(cfg Config) error {
	if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
		return fmt.Errorf("making engine.root: %w", err)
	}
	if err := os.MkdirAll(cfg.State, 0o711); err != nil {
		return fmt.Errorf("making engine.state: %w", err)
	}
	// Names of an earlier process's pipes.
	if err := os.RemoveAll(filepath.Join(cfg.State, execDir)); err != nil {
		return fmt.Errorf("sweeping engine.state: %w", err)
	}
	return nil
}

// buildInitRoot makes the directory that every init has as its root: the
// program and the mount points. The program is replaced only if it differs, and
// by rename: running ones keep theirs.
func buildInitRoot(state, program string) (string, error) {
	root := filepath.Join(state, initDir)
	for _, dir := range []string{"", "dev", "proc", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", fmt.Errorf("making the root of pod inits: %w", err)
		}
	}
	want, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("reading engine.init: %w", err)
	}
	target := filepath.Join(root, initName)
	if have, err := os.ReadFile(target); err == nil && bytes.Equal(have, want) {
		return root, nil
	}
	// A file left over by a crash is overwritten: it has a fixed name.
	next := filepath.Join(root, "."+initName)
	if err := os.WriteFile(next, want, 0o755); err != nil {
		return "", fmt.Errorf("copying engine.init: %w", err)
	}
	if err := os.Rename(next, target); err != nil {
		return "", fmt.Errorf("copying engine.init: %w", err)
	}
	return root, nil
}

// removeContent empties a directory, which may be missing.
func removeContent(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return errors.Join(errs...)
}

// lockRoot takes Root for this process; closing the file gives it back.
// Without it, a second engine would wait for ever for the first one's database.
func lockRoot(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking engine.root: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another engine has it, stop that one or choose another directory: %w", errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// linkShim makes the name by which the embedded engine knows the shim's binary;
// why it is not the path itself is said at [server.disconnect].
func linkShim(link, shim string) error {
	if _, err := os.Stat(shim); err != nil {
		return fmt.Errorf("looking for engine.shim: %w", err)
	}
	next := filepath.Join(filepath.Dir(link), "."+filepath.Base(link))
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("linking engine.shim: %w", err)
	}
	if err := os.Symlink(shim, next); err != nil {
		return fmt.Errorf("linking engine.shim: %w", err)
	}
	if err := os.Rename(next, link); err != nil {
		return fmt.Errorf("linking engine.shim: %w", err)
	}
	return nil
}

// listenUnix listens at path for root only. A socket that a crash left there is
// replaced; anything else is not.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replacing socket %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restricting socket %s: %w", path, err), l.Close())
	}
	return l, nil
}
