package netns_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"golang.org/x/sys/unix"
)

// inhabit runs a process in the namespaces until the function is called that it
// returns.
func inhabit(t *testing.T, pins netns.Pins) (leave func()) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+pins.Net.Path, "--ipc="+pins.IPC.Path, "--uts="+pins.UTS.Path, "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // so it is inside
		t.Fatal(err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

func unpin(t *testing.T, pins netns.Pins) {
	t.Helper()
	for _, p := range []netns.Pin{pins.Net, pins.IPC, pins.UTS} {
		if err := unix.Unmount(p.Path, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHealPinsWhatAProcessIsIn(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	defer inhabit(t, pins)()
	unpin(t, pins)
	if err := os.Remove(pins.UTS.Path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := netns.Heal(pins); err != nil {
			t.Fatal(err)
		}
		if err := netns.Check(pins); err != nil {
			t.Error(err)
		}
	}
}

func TestHealOfANamespaceThatIsGoneIsNotFound(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	unpin(t, pins)
	if err := netns.Heal(pins); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestHealLeavesAnotherNamespaceInThePlaceAlone(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	defer inhabit(t, pins)()
	unpin(t, pins)
	other := create(t, full(t))
	if err := unix.Mount(other.Net.Path, pins.Net.Path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := netns.Heal(netns.Pins{Net: pins.Net}); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if netns.Check(netns.Pins{Net: netns.Pin{Path: pins.Net.Path, Inode: other.Net.Inode}}) != nil {
		t.Error("the other's pin is gone")
	}
}
