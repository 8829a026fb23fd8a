package netns_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// Give the main thread, which nstest locked, back to the scheduler: the
	// package has to avoid it by itself.
	runtime.UnlockOSThread()
	os.Exit(nstest.Main(m))
}

// full is a spec with everything, pinned below a new directory.
func full(t *testing.T) netns.Spec {
	dir := t.TempDir()
	return netns.Spec{
		Net: filepath.Join(dir, "net"), IPC: filepath.Join(dir, "ipc"), UTS: filepath.Join(dir, "uts"),
		Hostname: "pod-1",
		Sysctls: map[string]string{
			"net.ipv4.ip_unprivileged_port_start": "0",
			"net/core/somaxconn":                  "77",
			"kernel.shm_rmid_forced":              "1",
			"fs.mqueue.msg_max":                   "13",
		},
	}
}

// create makes namespaces that are removed at the end of the test.
func create(t *testing.T, spec netns.Spec) netns.Pins {
	t.Helper()
	pins, err := netns.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Remove(pins); err != nil {
			t.Error(err)
		}
	})
	return pins
}

func TestCreatePinsNamespacesThatAreAlive(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	if err := netns.Check(pins); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"net", "ipc", "uts"} {
		var ours unix.Stat_t
		if err := unix.Stat("/proc/self/ns/"+name, &ours); err != nil {
			t.Fatal(err)
		}
		for _, p := range []netns.Pin{pins.Net, pins.IPC, pins.UTS} {
			if p.Inode == ours.Ino {
				t.Errorf("%s is pinned at %s, the process's own namespace", name, p.Path)
			}
		}
	}
}

func TestCreateSetsLoopbackUp(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	err := netns.Do(pins.Net.Path, func() error {
		lo, err := net.InterfaceByName("lo")
		if err == nil && lo.Flags&net.FlagUp == 0 {
			err = errors.New("lo is down")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateSetsSysctlsInside(t *testing.T) {
	nstest.Lab(t)
	outside := read(t, "/proc/sys/net/core/somaxconn")
	pins := create(t, full(t))
	var inside string
	if err := netns.Do(pins.Net.Path, func() error {
		inside = read(t, "/proc/sys/net/core/somaxconn")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if inside != "77" || read(t, "/proc/sys/net/core/somaxconn") != outside {
		t.Errorf("inside %s, outside %s, was %s", inside, read(t, "/proc/sys/net/core/somaxconn"), outside)
	}
}

func TestCreateKeepsTheHostsName(t *testing.T) {
	nstest.Lab(t)
	before, _ := os.Hostname()
	create(t, full(t))
	if after, _ := os.Hostname(); after != before {
		t.Errorf("hostname %q, was %q", after, before)
	}
}

func TestCreateMakesOnlyWhatIsAskedFor(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, netns.Spec{Net: filepath.Join(t.TempDir(), "net")})
	if pins.Net.Inode == 0 || pins.IPC != (netns.Pin{}) || pins.UTS != (netns.Pin{}) {
		t.Errorf("got %+v", pins)
	}
	if none := create(t, netns.Spec{}); none != (netns.Pins{}) {
		t.Errorf("got %+v", none)
	}
}

func TestCreateReplacesWhatAnEarlierAttemptLeft(t *testing.T) {
	nstest.Lab(t)
	spec := full(t)
	first := create(t, spec)
	if err := os.WriteFile(spec.UTS+"x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(spec.UTS, spec.Net, "", unix.MS_BIND, ""); err != nil { // a second mount on top
		t.Fatal(err)
	}
	second := create(t, spec)
	if netns.Alive(first) || !netns.Alive(second) {
		t.Errorf("first alive %v, second alive %v", netns.Alive(first), netns.Alive(second))
	}
}

func TestCreateLeavesNothingAfterAnError(t *testing.T) {
	nstest.Lab(t)
	noSysctl, noDir, long := full(t), full(t), full(t)
	noSysctl.Sysctls["net.no_such_thing"] = "1"
	noDir.UTS = "/proc/self/comm/uts" // below a file
	long.Hostname = strings.Repeat("x", 65)
	for name, spec := range map[string]netns.Spec{"sysctl": noSysctl, "directory": noDir, "hostname": long} {
		pins, err := netns.Create(t.Context(), spec)
		if err == nil || pins != (netns.Pins{}) {
			t.Errorf("%s: got %+v, %v", name, pins, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(spec.Net)); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

func TestCreateRefusesAHostnameWithoutUTS(t *testing.T) {
	_, err := netns.Create(t.Context(), netns.Spec{Net: "/nowhere", Hostname: "x"})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}

func TestCreateHonoursACancelledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := netns.Create(ctx, netns.Spec{Net: "/nowhere"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveIsIdempotent(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	for range 3 {
		if err := netns.Remove(pins); err != nil {
			t.Fatal(err)
		}
	}
	if err := netns.Check(pins); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestCheckTellsANamespaceFromAnotherAtItsPath(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	other := pins
	other.IPC.Inode++
	if err := netns.Check(other); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), pins.IPC.Path) {
		t.Errorf("got %v", err)
	}
}

func TestCheckRefusesAnOrdinaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := netns.Check(netns.Pins{Net: netns.Pin{Path: path}}); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestDoReturnsNotFoundWhenTheNamespaceIsGone(t *testing.T) {
	err := netns.Do(filepath.Join(t.TempDir(), "gone"), func() error { return nil })
	if !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// Lab looks at every thread, the main one included.
func TestDoMovesNoThreadForGood(t *testing.T) {
	nstest.Lab(t)
	pins := create(t, full(t))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			err := netns.Do(pins.Net.Path, func() error {
				var st unix.Stat_t
				if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
					return err
				}
				if st.Ino != pins.Net.Inode {
					return errors.New("runs outside of the namespace")
				}
				if unix.Gettid() == unix.Getpid() {
					return errors.New("runs on the main thread")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestShareMakesASharedMountOnce(t *testing.T) {
	nstest.Lab(t)
	dir := filepath.Join(t.TempDir(), "netns")
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for range 3 {
		if err := netns.Share(dir); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if strings.Contains(line, " "+dir+" ") {
			found = append(found, line)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], " shared:") {
		t.Errorf("mounts: %q", found)
	}
	create(t, netns.Spec{Net: filepath.Join(dir, "crib-1")})
}

func TestGiveBackUndoesShareWhenNothingIsLeft(t *testing.T) {
	nstest.Lab(t)
	dir := filepath.Join(t.TempDir(), "netns")
	if err := netns.Share(dir); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "somebody's")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := netns.GiveBack(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("with a name left: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := netns.GiveBack(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestListFindsOurNamesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"crib-0123456789abcdef", "cni-1234", "blue"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := netns.List(dir)
	if err != nil || len(names) != 1 || names[0] != "crib-0123456789abcdef" {
		t.Errorf("got %q, %v", names, err)
	}
	if names, err := netns.List(filepath.Join(dir, "missing")); err != nil || names != nil {
		t.Errorf("got %q, %v", names, err)
	}
}

func TestValidateSysctls(t *testing.T) {
	tests := []struct {
		name             string
		hostNet, hostIPC bool
		ok               bool
	}{
		{name: "net.ipv4.ip_forward", ok: true},
		{name: "net/ipv4/conf/eth0.100/forwarding", ok: true},
		{name: "net.ipv4.ip_forward", hostNet: true},
		{name: "net.ipv4.ip_forward", hostIPC: true, ok: true},
		{name: "kernel.shmmax", ok: true},
		{name: "kernel.shmmax", hostIPC: true},
		{name: "kernel.sem", ok: true},
		{name: "kernel.semaphore"},
		{name: "kernel.msgmnb", ok: true},
		{name: "fs.mqueue.queues_max", ok: true},
		{name: "fs.mqueue.queues_max", hostNet: true, hostIPC: true},
		{name: "kernel.panic"},
		{name: "vm.swappiness"},
		{name: "net/../kernel/panic"},
		{name: "net..x"},
		{name: ""},
	}
	for _, tt := range tests {
		err := netns.ValidateSysctls(map[string]string{tt.name: "1"}, tt.hostNet, tt.hostIPC)
		if (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt, err)
		}
		if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.name)) {
			t.Errorf("%+v: error without class or name: %v", tt, err)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	nstest.Lab(b)
	dir := b.TempDir()
	spec := netns.Spec{Net: dir + "/net", IPC: dir + "/ipc", UTS: dir + "/uts"}
	for b.Loop() {
		pins, err := netns.Create(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if err := netns.Remove(pins); err != nil {
			b.Fatal(err)
		}
	}
}

// read returns a file's text without the last newline.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}
