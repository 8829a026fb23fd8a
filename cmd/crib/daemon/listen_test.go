package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

// stale leaves a socket behind as a process that was killed does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestListenReplacesAStaleSocketAndSetsItsMode(t *testing.T) {
	nstest.Lab(t)
	path := filepath.Join(t.TempDir(), "run/crib.sock")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	stale(t, path)
	l, err := listen(path, "root", 0o660)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestListenTakesNothingAway(t *testing.T) {
	nstest.Lab(t)
	dir := t.TempDir()
	live := filepath.Join(dir, "live")
	l, err := net.Listen("unix", live)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(dir, "unused")
	stale(t, unused)
	for _, test := range []struct{ name, path, group, want string }{
		{"a live socket", live, "", "another process answers there"},
		{"a file", file, "", "no socket"},
		{"a directory", dir, "", "no socket"},
		{"a socket of a group that is not there", unused, "no-such-group", `group "no-such-group"`},
	} {
		if l, err := listen(test.path, test.group, 0o600); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v", test.name, l, err)
		}
		if _, err := os.Lstat(test.path); err != nil {
			t.Errorf("%s is gone: %v", test.name, err)
		}
	}
	conn, err := net.Dial("unix", live)
	if err != nil {
		t.Fatalf("the live socket: %v", err)
	}
	_ = conn.Close()
}

func TestGroupByNameOrNumber(t *testing.T) {
	for name, want := range map[string]int{"": 0, "root": 0, "4711": 4711} {
		if got, err := groupID(name); err != nil || got != want {
			t.Errorf("%q: got %d, %v", name, got, err)
		}
	}
}
