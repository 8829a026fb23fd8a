package hostlocal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// locked calls do while holding the directory's flock, of which each call opens
// a description of its own: so it excludes our goroutines as well.
func (d *Dir) locked(do func() error) error {
	f, err := d.openLock()
	if err != nil {
		return fmt.Errorf("open lock of %s: %w", d.path, err)
	}
	defer func() { _ = f.Close() }() // closing unlocks
	if err := d.flock(f); err != nil {
		return err
	}
	return do()
}

// openLock makes the directory again when somebody has removed it.
func (d *Dir) openLock() (*os.File, error) {
	name := filepath.Join(d.path, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(d.path, 0o755); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	}
	return f, err
}

// flock tries again and again, since a blocking flock cannot be given up.
func (d *Dir) flock(f *os.File) error {
	pause := 100 * time.Microsecond
	for end := time.Now().Add(d.wait); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("lock %s: another process has held it for %v (fuser shows which): %w", f.Name(), d.wait, errdefs.ErrUnavailable)
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}
