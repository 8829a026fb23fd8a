package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// A plugin outlives a daemon that is killed. Were DEL run while its ADD still is,
// what ADD makes afterwards would stay for ever. So a file is locked while ADD
// runs, by a descriptor that the plugin and its children inherit: the lock is gone
// when the last of them is, whatever became of the daemon.

// lockPause is between looks at a lock that another daemon's plugin holds.
const lockPause = 50 * time.Millisecond

// hold makes and locks the file of an ADD. The caller calls letGo.
func (n *Networks) hold(rt *libcni.RuntimeConf) (*os.File, error) {
	path := n.lockPath(rt)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("mark ADD as running: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("mark ADD as running: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("mark ADD as running: lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// letGo removes the file of an ADD that has ended.
func letGo(f *os.File) error {
	return errors.Join(os.Remove(f.Name()), f.Close())
}

// awaitOrphan waits for an ADD that an earlier daemon began and did not see the
// end of, as long as a plugin may take. Then DEL must be tried all the same.
func (n *Networks) awaitOrphan(ctx context.Context, rt *libcni.RuntimeConf) {
	f, err := os.Open(n.lockPath(rt))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Timeout)
	defer cancel()
	if err == nil {
		err = errors.Join(awaitLock(ctx, f), letGo(f))
	}
	if err != nil {
		n.cfg.Log.Warn("DEL is run although an earlier ADD may still be running",
			"pod", rt.ContainerID, "interface", rt.IfName, "error", err)
	}
}

func awaitLock(ctx context.Context, f *os.File) error {
	look := time.NewTicker(lockPause)
	defer look.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

func (n *Networks) lockPath(rt *libcni.RuntimeConf) string {
	return filepath.Join(n.cfg.CacheDir, "running", rt.ContainerID+"-"+rt.IfName)
}
