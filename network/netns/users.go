package netns

import (
	"fmt"
	"math"
	"strings"

	"github.com/containerd/containerd/v2/pkg/sys"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// IDMap maps a range of ids of a user namespace to ids of the host:
// user_namespaces(7), "/proc/pid/uid_map".
type IDMap struct {
	Inside uint32 `json:"inside"`
	Host   uint32 `json:"host"`
	Size   uint32 `json:"size"`
}

// String returns the map as the kernel and containerd write it.
func (m IDMap) String() string { return fmt.Sprintf("%d:%d:%d", m.Inside, m.Host, m.Size) }

// Users maps the users and groups of a user namespace. The zero value is no
// namespace: the host's.
type Users struct {
	UIDs IDMap `json:"uids"`
	GIDs IDMap `json:"gids"`
}

// IsZero says that there is no user namespace.
func (u Users) IsZero() bool { return u == Users{} }

// OCI returns the maps as the OCI runtime specification has them.
func (u Users) OCI() (uids, gids []specs.LinuxIDMapping) {
	of := func(m IDMap) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: m.Inside, HostID: m.Host, Size: m.Size}}
	}
	return of(u.UIDs), of(u.GIDs)
}

// Validate returns an error of class InvalidArgument for a map that the kernel does
// not take, and for one without the root of the namespace, as whom nothing could be
// set up.
func (m IDMap) Validate() error {
	switch {
	case m.Size == 0:
		return fmt.Errorf("the length of the map is 0: %w", errdefs.ErrInvalidArgument)
	case m.Inside != 0:
		return fmt.Errorf("the map begins at id %d of the container, and not at 0: %w", m.Inside, errdefs.ErrInvalidArgument)
	case uint64(m.Host)+uint64(m.Size) > math.MaxUint32:
		return fmt.Errorf("the map ends beyond the last id of the host: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// createOwned makes the namespaces in a user namespace of the pod's, which owns
// them. Go cannot unshare that one in a process with threads, so that a child is
// made in it, which never runs a program: it waits for us to trace it.
func (s Spec) createOwned(wanted []namespace) error {
	flags := 0
	for _, n := range wanted {
		if err := n.clear(); err != nil {
			return err
		}
		if n.flag != unix.CLONE_NEWUSER {
			flags |= n.flag
		}
	}
	err := sys.UnshareAfterEnterUserns(s.Users.UIDs.String(), s.Users.GIDs.String(), uintptr(flags), func(pid int) error {
		for _, n := range wanted {
			if err := n.bind(fmt.Sprintf("/proc/%d/ns/%s", pid, n.name)); err != nil {
				return fmt.Errorf("pinning %s namespace at %s: %w", n.name, n.path, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making namespaces in a user namespace (is user.max_user_namespaces 0?): %w", err)
	}
	return throwAway(func() error {
		for _, n := range wanted {
			if n.flag == unix.CLONE_NEWUSER {
				continue // we may do all in those that it owns
			}
			if err := enter(n.path, n.flag); err != nil {
				return err
			}
		}
		return s.configureOwned()
	})
}

// configureOwned is configure with the sysctls of IPC, which only the root of the
// user namespace may set, whatever our capabilities. The thread is thrown away.
func (s Spec) configureOwned() error {
	ipc := map[string]string{}
	rest := s
	rest.Sysctls = map[string]string{}
	for name, value := range s.Sysctls {
		if strings.HasPrefix(name, "net") {
			rest.Sysctls[name] = value
		} else {
			ipc[name] = value
		}
	}
	if err := rest.configure(); err != nil || len(ipc) == 0 {
		return err
	}
	// Of this thread alone, which the functions of package syscall would not do.
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(s.Users.UIDs.Host), same); errno != 0 {
		return fmt.Errorf("becoming the root of a user namespace: %w", errno)
	}
	return writeSysctls(ipc)
}

// enter moves the calling thread.
func enter(path string, flag int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, flag); err != nil {
		return fmt.Errorf("entering namespace %s: %w", path, err)
	}
	return nil
}
