package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/files"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMakeWritesWhatWasAsked(t *testing.T) {
	nstest.Lab(t)
	p := files.Pods{Root: t.TempDir()}
	pod := &sandbox.Pod{ID: "a", Spec: sandbox.Spec{
		Hostname: "web-0",
		DNS: sandbox.DNS{
			Servers: []string{"10.96.0.10", "fd00::10"}, Searches: []string{"a.svc", "svc"}, Options: []string{"ndots:5"},
		},
	}}
	for range 2 { // Make is idempotent
		if err := p.Make(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	const resolv = "search a.svc svc\nnameserver 10.96.0.10\nnameserver fd00::10\noptions ndots:5\n"
	if got := read(t, filepath.Join(p.Dir("a"), "resolv.conf")); got != resolv {
		t.Errorf("resolv.conf is %q", got)
	}
	if got := read(t, filepath.Join(p.Dir("a"), "hostname")); got != "web-0\n" {
		t.Errorf("hostname is %q", got)
	}
	if got, want := read(t, filepath.Join(p.Dir("a"), "hosts")), read(t, "/etc/hosts"); got != want {
		t.Errorf("hosts is %q", got)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(p.Dir("a"), "shm"), &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("shm is a file system of type %x, %v", st.Type, err)
	}
	if size := uint64(st.Bsize) * st.Blocks; size != 64<<20 {
		t.Errorf("shm has %d bytes", size)
	}
	for range 2 { // Remove is, too
		if err := p.Remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := p.List(); err != nil || len(ids) > 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
}

func TestAPodInTheHostsNamespacesGetsTheHostsNameAndNoShm(t *testing.T) {
	nstest.Lab(t)
	p := files.Pods{Root: t.TempDir()}
	pod := &sandbox.Pod{ID: "a", Spec: sandbox.Spec{
		Hostname:   "web-0",
		Namespaces: sandbox.Namespaces{HostNetwork: true, HostIPC: true},
	}}
	if err := p.Make(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(p.Dir("a"), "hostname")); got != host+"\n" {
		t.Errorf("hostname is %q, the host's is %q", got, host)
	}
	if _, err := os.Stat(filepath.Join(p.Dir("a"), "shm")); !os.IsNotExist(err) {
		t.Errorf("shm: %v", err)
	}
	if err := p.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyDNSCopiesTheHosts(t *testing.T) {
	nstest.Lab(t)
	p := files.Pods{Root: t.TempDir()}
	if err := p.Make(t.Context(), &sandbox.Pod{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(p.Dir("a"), "resolv.conf")); got != string(want) {
		t.Errorf("resolv.conf is %q", got)
	}
	if err := p.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
