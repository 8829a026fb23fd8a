// Package files makes the files of a pod that its containers get to see, below
// one directory for each pod:
//
//	<state>/pods/<id>/          0711: user namespaces must pass
//	  hostname hosts resolv.conf
//	  shm/                      a tmpfs, unless the pod uses the host's
//	  ns/                       where package sandbox has namespaces pinned
//
// [Pods.Make] is idempotent; [Pods.Remove] removes the whole directory, mounts
// first, and needs nothing to be there. All of it is below /run and gone after a
// reboot. A crash leaves a directory that recovery finds by [Pods.List].
//
// # Decisions
//
//  1. hosts is a copy of the host's: the kubelet mounts one of its own over it
//     in pods with a network of their own. Rejected: an empty file, which breaks
//     "localhost" for people who use crictl.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox"
)

// shmOptions are those of the field: 64 MiB.
const shmOptions = "mode=1777,size=65536k"

// Pods is the directory that holds those of the pods.
type Pods struct {
	Root string // <state>/pods
}

// Dir returns a pod's directory; nothing need be there.
func (p Pods) Dir(id string) string { return filepath.Join(p.Root, id) }

// Make writes the pod's files and mounts its shm.
func (p Pods) Make(_ context.Context, pod *sandbox.Pod) error {
	dir := p.Dir(pod.ID)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	resolv, err := resolvConf(pod.Spec.DNS)
	if err != nil {
		return err
	}
	hostname, err := hostname(&pod.Spec)
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "hosts"), hosts, 0o644),
		os.WriteFile(filepath.Join(dir, "resolv.conf"), resolv, 0o644),
		os.WriteFile(filepath.Join(dir, "hostname"), []byte(hostname+"\n"), 0o644),
	); err != nil {
		return err
	}
	if pod.Spec.Namespaces.HostIPC {
		return nil
	}
	return mountShm(filepath.Join(dir, "shm"))
}

// hostname returns the name that the pod's UTS namespace has.
func hostname(spec *sandbox.Spec) (string, error) {
	if spec.Hostname != "" && !spec.Namespaces.HostNetwork {
		return spec.Hostname, nil
	}
	return os.Hostname()
}

// resolvConf renders resolv.conf(5), or copies the host's when nothing is asked.
func resolvConf(dns sandbox.DNS) ([]byte, error) {
	if len(dns.Servers)+len(dns.Searches)+len(dns.Options) == 0 {
		b, err := os.ReadFile("/etc/resolv.conf")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return b, err
	}
	var b strings.Builder
	if len(dns.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.Searches, " "))
	}
	for _, server := range dns.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.Options, " "))
	}
	return []byte(b.String()), nil
}

// mountShm mounts a tmpfs unless it is there from an earlier call.
func mountShm(dir string) error {
	if err := os.MkdirAll(dir, 0o1777); err != nil {
		return err
	}
	mounted, err := isMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("shm", dir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, shmOptions); err != nil {
		return &fs.PathError{Op: "mount shm on", Path: dir, Err: err}
	}
	return nil
}

// isMountPoint asks the kernel by statx(2), which works for a tmpfs below a tmpfs.
func isMountPoint(dir string) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return false, &fs.PathError{Op: "statx", Path: dir, Err: err}
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// Remove unmounts and deletes all that is in a pod's directory. Pins of
// namespaces must be gone before: what is still mounted below is an error.
func (p Pods) Remove(_ context.Context, id string) error {
	dir := p.Dir(id)
	shm := filepath.Join(dir, "shm")
	err := unix.Unmount(shm, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return &fs.PathError{Op: "unmount", Path: shm, Err: err}
	}
	return os.RemoveAll(dir)
}

// List returns the ids that have a directory.
func (p Pods) List() ([]string, error) {
	entries, err := os.ReadDir(p.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ids := make([]string, 0, len(entries))
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids, err
}
