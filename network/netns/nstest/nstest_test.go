package nstest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLabSeesEachKindOfLeak(t *testing.T) {
	leaks := []struct {
		name, seen string
		make       func(t *testing.T) (undo func())
	}{
		{"link", "+ link leak0", leakLink},
		{"address", "+ address 192.0.2.1/32", leakAddress},
		{"mount", "+ mount ", leakMount},
		{"nft table", "+ nft table inet leak", leakTable},
		{"process", "+ process ", leakProcess},
		{"descriptor", "+ descriptor to pipe", leakDescriptor},
		{"goroutine", "+ goroutine of ", leakGoroutine},
		{"thread", "+ thread in net:[", leakThread},
	}
	for _, leak := range leaks {
		t.Run(leak.name, func(t *testing.T) {
			Lab(t)
			before, err := observe()
			must(t, err)
			undo := leak.make(t)
			defer undo()
			if diff := strings.Join(compare(before), "\n"); !strings.Contains(diff, leak.seen) {
				t.Errorf("the leak is not in %q", diff)
			}
		})
	}
}

func leakLink(t *testing.T) func() {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "leak0"
	link := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(link))
	return func() { must(t, netlink.LinkDel(link)) }
}

func leakAddress(t *testing.T) func() {
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	addr, err := netlink.ParseAddr("192.0.2.1/32")
	must(t, err)
	must(t, netlink.AddrAdd(lo, addr))
	return func() { must(t, netlink.AddrDel(lo, addr)) }
}

func leakMount(t *testing.T) func() {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	return func() { must(t, unix.Unmount(dir, 0)) }
}

func leakTable(t *testing.T) func() {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft on PATH")
	}
	must(t, exec.Command("nft", "add", "table", "inet", "leak").Run())
	return func() { must(t, exec.Command("nft", "delete", "table", "inet", "leak").Run()) }
}

func leakProcess(t *testing.T) func() {
	cmd := exec.Command("sleep", "60")
	must(t, cmd.Start())
	return func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // reports the kill
	}
}

func leakDescriptor(t *testing.T) func() {
	r, w, err := os.Pipe()
	must(t, err)
	return func() { _, _ = r.Close(), w.Close() }
}

func leakGoroutine(*testing.T) func() {
	stop := make(chan struct{})
	go func() { <-stop }()
	return func() { close(stop) }
}

func leakThread(t *testing.T) func() {
	stop, moved := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		moved <- unix.Unshare(unix.CLONE_NEWNET)
		<-stop
	}()
	must(t, <-moved)
	return func() { close(stop) }
}
