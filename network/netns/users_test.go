package netns_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// owned is full with users of its own.
func owned(t *testing.T) netns.Spec {
	t.Helper()
	spec := full(t)
	spec.User = filepath.Join(filepath.Dir(spec.IPC), "user")
	spec.Users = netns.Users{
		UIDs: netns.IDMap{Host: 1 << 17, Size: 1 << 16},
		GIDs: netns.IDMap{Host: 1 << 18, Size: 1 << 16},
	}
	return spec
}

func TestTheUserNamespaceOwnsTheOthers(t *testing.T) {
	pins := create(t, owned(t))
	if !netns.Alive(pins) || pins.User.Inode == 0 {
		t.Fatalf("pins: %+v", pins)
	}
	for _, pin := range []netns.Pin{pins.Net, pins.IPC, pins.UTS} {
		f, err := os.Open(pin.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		owner, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		err = unix.Fstat(owner, &st)
		_ = unix.Close(owner)
		if err != nil || st.Ino != pins.User.Inode {
			t.Errorf("%s is owned by %d, %v, want %d", pin.Path, st.Ino, err, pins.User.Inode)
		}
	}
}

func TestOwnedNamespacesAreConfiguredLikeOthers(t *testing.T) {
	spec := owned(t)
	spec.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "7"}
	pins := create(t, spec)
	err := netns.Do(pins.Net.Path, func() error {
		b, err := os.ReadFile("/proc/thread-self/root/proc/sys/net/ipv4/ip_unprivileged_port_start")
		if got := strings.TrimSpace(string(b)); err == nil && got != "7" {
			t.Errorf("the sysctl is %q", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMapsThatTheKernelDoesNotTakeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*netns.Users){
		"empty":        func(u *netns.Users) { u.GIDs.Size = 0 },
		"without root": func(u *netns.Users) { u.UIDs.Inside = 1 },
		"too long":     func(u *netns.Users) { u.UIDs.Size = 1<<32 - 1 },
	} {
		spec := owned(t)
		change(&spec.Users)
		if _, err := netns.Create(t.Context(), spec); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Create() = %v", name, err)
		}
		if _, err := os.Lstat(spec.User); err == nil {
			t.Errorf("%s: something was made", name)
		}
	}
}
