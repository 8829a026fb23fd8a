package netns

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// Share makes dir a mount point with shared propagation, as `ip netns` does with
// /run/netns: pins made there later are seen in other mount namespaces, and are
// gone there when they are removed here. It creates dir if necessary and is
// idempotent; not safe for concurrent use with the same dir.
func Share(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making directory of namespaces: %w", err)
	}
	err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind mounting %s on itself: %w", dir, err)
		}
		err = unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("making mount %s shared: %w", dir, err)
	}
	return nil
}

// GiveBack takes back what Share did, if no namespace of anybody is left in dir:
// the mount, and the directory where it is empty then. Else it does nothing.
func GiveBack(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing network namespaces: %w", err)
	}
	if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmounting %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("removing directory of namespaces: %w", err)
	}
	return nil
}

// List returns the names of the network namespaces in dir that bear our mark
// (network.NetnsName), for a sweep of those without a record. A missing dir is
// an empty one.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), network.Prefix+"-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
