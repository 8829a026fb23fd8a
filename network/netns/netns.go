package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Spec says which namespaces a pod gets and where they are pinned. An empty path
// means that the namespace is not made: the pod uses the host's. The directories
// of the paths are made if they are missing.
type Spec struct {
	Net, IPC, UTS string
	User          string            // owns the others; needs Users
	Users         Users             // of the user namespace
	Hostname      string            // needs UTS; "" keeps the host's name
	Sysctls       map[string]string // see ValidateSysctls
}

// Pin is a namespace held by a bind mount.
type Pin struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"` // tells this namespace from a later one at the same path
}

// Pins are the namespaces that were made for a pod. A zero Pin stands for the
// host's namespace.
type Pins struct {
	Net Pin `json:"net,omitzero"`
	IPC Pin `json:"ipc,omitzero"`
	UTS Pin `json:"uts,omitzero"`
	// User is what owns the others.
	User Pin `json:"user,omitzero"`
}

// namespace is one kind of namespace on its way from a Spec to Pins.
type namespace struct {
	name string // in /proc/PID/ns
	flag int
	path string // where to pin it
	pin  *Pin
}

// Create makes the namespaces of spec, sets lo up, the hostname and the sysctls,
// and pins them. What is found at a path from an earlier attempt is removed
// first. After an error nothing stays. The error is of class InvalidArgument if
// the spec is wrong. Safe for concurrent use with different paths.
func Create(ctx context.Context, spec Spec) (Pins, error) {
	if err := ctx.Err(); err != nil {
		return Pins{}, fmt.Errorf("making namespaces: %w", err)
	}
	if spec.Hostname != "" && spec.UTS == "" {
		return Pins{}, fmt.Errorf("setting hostname %q: the pod uses the host's UTS namespace: %w",
			spec.Hostname, errdefs.ErrInvalidArgument)
	}
	if err := ValidateSysctls(spec.Sysctls, spec.Net == "", spec.IPC == ""); err != nil {
		return Pins{}, err
	}
	create := func(wanted []namespace) error { return throwAway(func() error { return spec.create(wanted) }) }
	if spec.User != "" {
		if err := errors.Join(spec.Users.UIDs.Validate(), spec.Users.GIDs.Validate()); err != nil {
			return Pins{}, fmt.Errorf("making a user namespace: %w", err)
		}
		create = spec.createOwned
	}
	var pins Pins
	wanted := spec.namespaces(&pins)
	if len(wanted) == 0 {
		return Pins{}, nil
	}
	if err := create(wanted); err != nil {
		return Pins{}, errors.Join(err, Remove(pins))
	}
	return pins, nil
}

// namespaces lists what spec asks for; the pins are written into pins.
func (s Spec) namespaces(pins *Pins) []namespace {
	all := []namespace{
		{"user", unix.CLONE_NEWUSER, s.User, &pins.User},
		{"net", unix.CLONE_NEWNET, s.Net, &pins.Net},
		{"ipc", unix.CLONE_NEWIPC, s.IPC, &pins.IPC},
		{"uts", unix.CLONE_NEWUTS, s.UTS, &pins.UTS},
	}
	wanted := all[:0]
	for _, n := range all {
		if n.path != "" {
			wanted = append(wanted, n)
		}
	}
	return wanted
}

// create does the work of Create on the thread that is thrown away.
func (s Spec) create(wanted []namespace) error {
	flags := 0
	for _, n := range wanted {
		if err := n.clear(); err != nil {
			return err
		}
		flags |= n.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	if err := s.configure(); err != nil {
		return err
	}
	for _, n := range wanted {
		if err := n.bind("/proc/thread-self/ns/" + n.name); err != nil {
			return fmt.Errorf("pinning %s namespace at %s: %w", n.name, n.path, err)
		}
	}
	return nil
}

// configure sets what belongs to the namespaces of the calling thread.
func (s Spec) configure() error {
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("setting hostname %q: %w", s.Hostname, err)
		}
	}
	if s.Net != "" {
		if err := LoopbackUp(); err != nil {
			return fmt.Errorf("setting lo up: %w", err)
		}
	}
	return writeSysctls(s.Sysctls)
}

// clear removes what an earlier attempt left at the path, and makes the directory
// that it is in: one that processes in user namespaces may pass.
func (n namespace) clear() error {
	if err := os.MkdirAll(filepath.Dir(n.path), 0o711); err != nil {
		return fmt.Errorf("making the place of a %s namespace: %w", n.name, err)
	}
	if err := (Pin{Path: n.path}).remove(); err != nil {
		return fmt.Errorf("clearing the place of a %s namespace: %w", n.name, err)
	}
	return nil
}

// bind pins a namespace of proc(5). The pin is noted as soon as there is something
// to remove.
func (n namespace) bind(source string) error {
	var st unix.Stat_t
	if err := unix.Stat(source, &st); err != nil {
		return err
	}
	fd, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	*n.pin = Pin{Path: n.path, Inode: st.Ino}
	_ = unix.Close(fd)
	return unix.Mount(source, n.path, "", unix.MS_BIND, "")
}

// Remove unpins namespaces. What is not there counts as removed. It tries every
// pin and joins the errors. The kernel frees a namespace later, when nothing
// else holds it.
func Remove(pins Pins) error {
	return errors.Join(pins.Net.remove(), pins.IPC.remove(), pins.UTS.remove(), pins.User.remove())
}

// remove unmounts everything at the path, then deletes the file. A file that is
// still busy, since it is mounted on elsewhere, at least loses its name.
func (p Pin) remove() error {
	if p.Path == "" {
		return nil
	}
	for {
		err := unix.Unmount(p.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == nil {
			continue // there may be another one below
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		return fmt.Errorf("unmounting %s: %w", p.Path, err)
	}
	err := unix.Unlink(p.Path)
	if errors.Is(err, unix.EBUSY) {
		err = p.renameAway()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unlinking %s: %w", p.Path, err)
	}
	return nil
}

// renameAway frees the name of a busy file and deletes it if that is possible by now.
func (p Pin) renameAway() error {
	dir, name := filepath.Split(p.Path)
	away, err := os.MkdirTemp(dir, ".gone-")
	if err != nil {
		return err
	}
	if err := unix.Rename(p.Path, filepath.Join(away, name)); err != nil {
		return errors.Join(err, unix.Rmdir(away))
	}
	_ = os.RemoveAll(away) // what stays has a neutral name, and goes with the next reboot
	return nil
}

// Alive reports whether Check finds nothing wrong.
func Alive(pins Pins) bool { return Check(pins) == nil }

// Check returns nil if each pin still holds the namespace that was made, else an
// error of class NotFound which names the pin. Zero pins count as held.
func Check(pins Pins) error {
	for _, p := range []Pin{pins.Net, pins.IPC, pins.UTS, pins.User} {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// check looks for an nsfs file of the recorded inode.
func (p Pin) check() error {
	if p.Path == "" {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.Path, &fs); err != nil {
		return fmt.Errorf("checking namespace %s: %w: %w", p.Path, err, errdefs.ErrNotFound)
	}
	var st unix.Stat_t
	if err := unix.Stat(p.Path, &st); err != nil {
		return fmt.Errorf("checking namespace %s: %w: %w", p.Path, err, errdefs.ErrNotFound)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("checking namespace %s: nothing is mounted there: %w", p.Path, errdefs.ErrNotFound)
	}
	if st.Ino != p.Inode {
		return fmt.Errorf("checking namespace %s: inode %d instead of %d, it belongs to another pod: %w",
			p.Path, st.Ino, p.Inode, errdefs.ErrNotFound)
	}
	return nil
}

// LoopbackUp sets lo of the calling thread's namespace up, by the ioctl of
// netdevice(7): one system call, no netlink socket.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
