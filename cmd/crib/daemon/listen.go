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
)

// listen makes a unix socket for root and a group, in the place of one that an
// earlier process left. One that somebody answers at is not taken away.
func listen(path, group string, mode fs.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on %s: another process answers there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	gid, err := groupID(group)
	if err != nil {
		return nil, err
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

func groupID(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("the socket's group: %w", err)
	}
	return strconv.Atoi(group.Gid)
}
