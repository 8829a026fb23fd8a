package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// listen makes a unix socket for root and a group, in the place of one that an
// earlier process left.
func listen(path, group string, mode fs.FileMode) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	if err := clearStale(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(path, 0, gid), os.Chmod(path, mode)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// clearStale removes a socket at which nobody answers. One whose owner is busy is not
// taken away, and neither is what is no socket: the path may be a mistake.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is something that is no socket; remove it or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return errors.New("another process answers there")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("another process may have it: %w", err)
	}
	return os.Remove(path)
}

func groupID(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("find the group %q of the socket (key \"group\"): %w", name, err)
	}
	return strconv.Atoi(group.Gid)
}
