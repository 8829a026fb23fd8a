package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/cgroup"
)

// cgroupRetry is the pause between two attempts at a cgroup whose processes end.
const cgroupRetry = 10 * time.Millisecond

// freeCgroup removes the cgroup of a container whose task is deleted, and kills
// what runs in it. Usually nothing is left; but an OCI runtime that is killed
// while it makes a container, as when the daemon dies, has nobody who cleans up
// after it. It is idempotent.
func (e *Engine) freeCgroup(ctx context.Context, id string, spec typeurl.Any) error {
	if spec == nil {
		return nil
	}
	var s specs.Spec
	if err := typeurl.UnmarshalTo(spec, &s); err != nil {
		return fmt.Errorf("reading the spec of container %s: %w", id, err)
	}
	if s.Linux == nil {
		return nil
	}
	path := cgroup.Path(s.Linux.CgroupsPath, e.cfg.SystemdCgroup)
	if !strings.Contains(filepath.Base(path), id) {
		return nil // it may be shared with others
	}
	dirs, err := filepath.Glob(filepath.Join(cgroup.Root, "*", path))
	if err != nil {
		return fmt.Errorf("looking for the cgroup of container %s: %w", id, err)
	}
	var errs []error
	for _, dir := range append(dirs, filepath.Join(cgroup.Root, path)) {
		errs = append(errs, removeTree(ctx, dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the cgroup of container %s: %w", id, err)
	}
	return nil
}

// removeTree removes a cgroup with those below it.
func removeTree(ctx context.Context, root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := removeEmptied(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeEmptied kills what is in a cgroup and removes it. The kernel takes a
// process out of its cgroup a moment after its end.
func removeEmptied(ctx context.Context, dir string) error {
	tick := time.NewTicker(cgroupRetry)
	defer tick.Stop()
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		killCgroup(dir)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// killCgroup kills the processes of a cgroup. That one is left shows in its removal.
func killCgroup(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, field := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
