package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// TestRotationUnderLoadLosesAndTearsNoLine rotates the log as a kubelet does, while
// the container prints as fast as it can.
func TestRotationUnderLoadLosesAndTearsNoLine(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	id := c.launch(podID, pod, c.Container("talk", "sh", "-c", "until [ -e /tmp/end ]; do seq 1000; done; echo 0"))
	path := filepath.Join(c.LogDir(pod), "talk.log")
	var paths []string
	for i := range 50 {
		rotated := fmt.Sprintf("%s.%d", path, i)
		if err := os.Rename(path, rotated); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, rotated)
		if _, err := c.ReopenContainerLog(t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("after the answer: %v", err)
		}
	}
	if _, err := c.Exec(t.Context(), id, "touch", "/tmp/end"); err != nil {
		t.Fatal(err)
	}
	c.exited(id)
	var log bytes.Buffer
	for _, path := range append(paths, path) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			t.Errorf("%s ends within a line", path)
		}
		log.Write(b)
	}
	sequences(t, 1000, strings.Split(strings.TrimSpace(log.String()), "\n"))
}

// TestALogIsWholeThoughTheDaemonWasAway has a container print 10 MB/s, for a minute in
// a long run, while there is no daemon.
func TestALogIsWholeThoughTheDaemonWasAway(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	talk := fmt.Sprintf("until [ -e /tmp/go ]; do usleep 1000; done; for i in $(seq %d); do seq 150000; usleep 90000; done; echo 0", long(10, 600))
	id := c.launch(podID, pod, c.Container("talk", "sh", "-c", talk))
	fd, err := unix.PidfdOpen(c.containerPID(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := c.Exec(t.Context(), id, "touch", "/tmp/go"); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10*60*1000); n != 1 {
		t.Fatalf("without a daemon the container does not end: %d, %v", n, err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.exited(id); got.ExitCode != 0 {
		t.Errorf("it ended with %d", got.ExitCode)
	}
	b, err := os.ReadFile(filepath.Join(c.LogDir(pod), "talk.log"))
	if err != nil {
		t.Fatal(err)
	}
	sequences(t, 150_000, strings.Split(strings.TrimSpace(string(b)), "\n"))
}

// long is how often something is done: seldom, unless CRIB_LONG asks for the long run.
func long(seldom, often int) int {
	if os.Getenv("CRIB_LONG") == "" {
		return seldom
	}
	return often
}

// sequences checks that lines count from 1 to n again and again, and end with 0.
func sequences(t *testing.T, n int, lines []string) {
	t.Helper()
	for i, line := range lines {
		want := i%n + 1
		if i == len(lines)-1 {
			want = 0
		}
		if !strings.HasSuffix(line, fmt.Sprintf(" stdout F %d", want)) {
			t.Fatalf("line %d of %d is %q, want %d", i, len(lines), line, want)
		}
	}
	if len(lines) < 10_000 {
		t.Errorf("%d lines are no load", len(lines))
	}
}

// TestManyExecsAtOnceLeaveNothing has commands that end, that are too slow, and that
// leave a child with their output behind.
func TestManyExecsAtOnceLeaveNothing(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	id := c.launch(podID, pod, c.Container("c", "sleep", "1000"))
	before, shim := c.files(c.PID()), c.files(c.shimPID())
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() { c.exec(id, i) })
	}
	calls.Wait()
	if !c.eventually(func() bool { return c.files(c.PID()) <= before+2 && c.files(c.shimPID()) <= shim+2 }) {
		t.Errorf("descriptors: the daemon had %d and has %d, the shim %d and %d", before, c.files(c.PID()), shim, c.files(c.shimPID()))
	}
	if out, err := c.Exec(t.Context(), id, "sh", "-c", "ps | grep -c 'sleep 77[7]'; true"); err != nil || strings.TrimSpace(out) != "0" {
		t.Errorf("%s of the slow commands are left: %v", out, err)
	}
	if left, _ := filepath.Glob(lab.State + "/engine/x/*"); len(left) > 0 {
		t.Errorf("FIFOs are left: %q", left)
	}
}

// exec makes one call and checks its answer.
func (c *crib) exec(id string, i int) {
	req := &runtime.ExecSyncRequest{ContainerId: id, Timeout: 60, Cmd: []string{"sh", "-c", fmt.Sprint("echo ", i, "; exit 3")}}
	want := codes.OK
	switch i % 10 {
	case 0:
		req.Timeout, req.Cmd, want = 1, []string{"sh", "-c", "sleep 777 & sleep 777"}, codes.DeadlineExceeded
	case 1:
		req.Cmd = []string{"sh", "-c", fmt.Sprint("sleep 20 & echo ", i, "; exit 3")}
	}
	resp, err := c.ExecSync(c.t.Context(), req)
	if status.Code(err) != want {
		c.t.Errorf("exec %d: %v", i, err)
	} else if err == nil && (resp.ExitCode != 3 || string(resp.Stdout) != fmt.Sprintln(i)) {
		c.t.Errorf("exec %d: %v", i, resp)
	}
}

// files counts the open files of a process, but for the descriptors of processes:
// Go closes those of children that somebody else has reaped, as the shim's reaper
// does, when it collects garbage.
func (c *crib) files(pid int) (n int) {
	c.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, entry := range entries {
		if target, _ := os.Readlink(filepath.Join(dir, entry.Name())); target != "anon_inode:[pidfd]" {
			n++
		}
	}
	return n
}

// shimPID finds the only shim.
func (c *crib) shimPID() int {
	c.t.Helper()
	own, _ := os.Readlink("/proc/self/ns/mnt")
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		b, _ := os.ReadFile(name)
		ns, _ := os.Readlink(filepath.Join(filepath.Dir(name), "ns/mnt"))
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d/comm", &pid); err == nil && strings.HasPrefix(string(b), "crib-shim") && ns == own {
			return pid
		}
	}
	c.t.Fatal("there is no shim")
	return 0
}

// TestResetEndsRunningContainers has one in a pod that shares its PID namespace and
// one in a pod that does not.
func TestResetEndsRunningContainers(t *testing.T) {
	c := startWithImage(t)
	for _, mode := range []runtime.NamespaceMode{runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER} {
		pod := c.Pod(strings.ToLower(mode.String()))
		pod.Linux.SecurityContext.NamespaceOptions.Pid = mode
		podID, _ := c.pod(pod)
		cfg := c.Container("c", "sleep", "1000")
		cfg.Linux.SecurityContext.NamespaceOptions.Pid = mode
		c.launch(podID, pod, cfg)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Command(t.Context(), "reset").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var left []string
	// The engine's content stays, and with it snapshots until the engine collects them.
	isSnapshot := func(path string) bool { return strings.Contains(path, "/snapshots/") }
	if !c.eventually(func() bool { left = slices.DeleteFunc(c.traces(), isSnapshot); return len(left) == 0 }) {
		t.Errorf("left: %q", left)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.oneLife() // has the engine collect
	if now := c.settled(1); len(now) != 1 {
		t.Errorf("after the next start: %q", now)
	}
}
