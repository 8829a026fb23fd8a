package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Heal makes pins again that somebody unmounted, as long as a process still is in
// the namespace. What is pinned is left alone. The error is of class NotFound when
// a namespace is gone, or its pin's place is taken by another one.
func Heal(pins Pins) error {
	var errs []error
	for name, pin := range map[string]Pin{"user": pins.User, "net": pins.Net, "ipc": pins.IPC, "uts": pins.UTS} {
		if err := pin.check(); err != nil {
			errs = append(errs, pin.heal(name, err))
		}
	}
	return errors.Join(errs...)
}

// heal pins the namespace again; why says what is wrong with the pin.
func (p Pin) heal(name string, why error) error {
	var fs unix.Statfs_t
	if unix.Statfs(p.Path, &fs) == nil && fs.Type == unix.NSFS_MAGIC {
		return why // another one's
	}
	source, err := p.inhabitant(name)
	if err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o711); err != nil {
		return fmt.Errorf("making the place of a %s namespace: %w", name, err)
	}
	fd, err := unix.Open(p.Path, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return fmt.Errorf("making the file %s for a pin: %w", p.Path, err)
	}
	_ = unix.Close(fd)
	if err := unix.Mount(source, p.Path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pinning %s namespace at %s again: %w", name, p.Path, err)
	}
	if err := p.check(); err != nil { // the process may have moved, or its number be another's
		return errors.Join(err, unix.Unmount(p.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// inhabitant returns the path by which proc(5) has the namespace of a process in it.
func (p Pin) inhabitant(name string) (string, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/ns/" + name)
	if err != nil {
		return "", err
	}
	want := fmt.Sprintf("%s:[%d]", name, p.Inode)
	for _, path := range paths {
		if is, err := os.Readlink(path); err == nil && is == want {
			return path, nil
		}
	}
	return "", fmt.Errorf("no process is in it any more: %w", errdefs.ErrNotFound)
}
