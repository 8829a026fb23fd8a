package logpump

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// small makes a cgroup with 16 MiB of memory for a test, where the kernel has version 2.
func small(t *testing.T) string {
	t.Helper()
	enabled, err := os.ReadFile(filepath.Join(cgroups, "cgroup.subtree_control"))
	if err != nil || !strings.Contains(string(enabled), "memory") {
		t.Skip("no memory controller of cgroup v2 here")
	}
	if os.Getuid() != 0 {
		t.Skip("cgroups are root's")
	}
	dir := filepath.Join(cgroups, fmt.Sprintf("crib-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	for file, value := range map[string]string{"memory.max": "16777216", "memory.swap.max": "0"} {
		err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600)
		if err != nil && !os.IsNotExist(err) { // kernels without swap accounting
			t.Fatal(err)
		}
	}
	return dir
}

// startIn runs a shell's script in a cgroup; it begins when something is written.
func startIn(t *testing.T, cgroup, script string) (*exec.Cmd, io.Writer) {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	cmd := exec.Command("sh", "-c", "read go; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in
}

// removeWhenEmpty removes a cgroup as soon as the kernel allows it, which is
// before systemd would.
func removeWhenEmpty(cgroup string) <-chan error {
	gone := make(chan error)
	go func() {
		for {
			if err := os.Remove(cgroup); err == nil || !isBusy(err) {
				gone <- err
				return
			}
		}
	}()
	return gone
}

func isBusy(err error) bool { return strings.Contains(err.Error(), unix.EBUSY.Error()) }

func TestOOMKillsAreNoticedThoughTheCgroupGoesAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   bool
	}{
		"the process itself": {"exec tail /dev/zero", true},
		"a child":            {"tail /dev/zero; exit 3", true},
		"none":               {"exit 3", false},
		"killed by a signal": {"kill -9 $$", false},
	} {
		t.Run(name, func(t *testing.T) {
			cgroup := small(t)
			cmd, in := startIn(t, cgroup, test.script)
			w, err := WatchOOM(t.TempDir(), cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			gone := removeWhenEmpty(cgroup)
			if _, err := io.WriteString(in, "go\n"); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it ended well")
			}
			if err := <-gone; err != nil {
				t.Error(err)
			}
			if killed, err := w.End(); err != nil || killed != test.want {
				t.Errorf("End() = %v, %v, want %v", killed, err, test.want)
			}
		})
	}
}

func TestAWatchOfALivingCgroupEnds(t *testing.T) {
	w, err := WatchOOM(t.TempDir(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if killed, err := w.End(); err != nil || killed {
		t.Errorf("End() = %v, %v", killed, err)
	}
}
