package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

// patience is how long a test waits for what must happen before it fails.
const patience = 20 * time.Second

// lab is one engine's place in the test's namespaces.
type lab struct {
	testing.TB
	cfg Config
	log *logBuffer
	pod string // id of the test's pod
	cg  string // its cgroup, as in a spec

	inits []int // pids that were started

	theirs     []string // directories of an external containerd
	daemon     []string // its command line
	stopDaemon func()   // kills it
}

// newLab makes directories of a test's own and checks at its end that nothing
// was left in them, in the mount table, the cgroups and the process table.
func newLab(t testing.TB) *lab {
	t.Helper()
	if os.Getenv(binEnv) != "" {
		mountCgroups(t)
	}
	nstest.Lab(t)
	return makeLab(t)
}

// newUnifiedLab is newLab on a machine that has cgroup v2 alone.
func newUnifiedLab(t testing.TB) *lab {
	t.Helper()
	if os.Getenv(binEnv) != "" {
		mountCgroups(t)
		mount(t, "cgroup2", "/sys/fs/cgroup", "")
		t.Cleanup(func() {
			if err := unix.Unmount("/sys/fs/cgroup", 0); err != nil {
				t.Error(err)
			}
		})
	}
	nstest.Lab(t)
	return makeLab(t)
}

func makeLab(t testing.TB) *lab {
	t.Helper()
	state, err := os.MkdirTemp("/run", "e")
	if err != nil {
		t.Fatal(err)
	}
	bin, log := os.Getenv(binEnv), &logBuffer{}
	var id [32]byte
	_, _ = rand.Read(id[:])
	l := &lab{TB: t, log: log, pod: hex.EncodeToString(id[:])}
	l.cg = fmt.Sprintf("/crib-test-%d/%s", os.Getpid(), l.pod)
	l.cfg = Config{
		Root: t.TempDir(), State: state,
		Shim: filepath.Join(bin, "crib-shim"), Init: filepath.Join(bin, "crib-init"),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
		l.noTraces(state)
		for _, pid := range append(l.inits, processes(t, state)...) {
			_ = unix.Kill(pid, unix.SIGKILL) // one failed test is enough
		}
		removeCgroups(t)
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	return l
}

// onEachEngine runs a test on the embedded engine and on a real containerd.
func onEachEngine(t *testing.T, test func(*lab)) {
	t.Run("embedded", func(t *testing.T) { test(newLab(t)) })
	t.Run("external", func(t *testing.T) {
		l := newLab(t)
		l.withContainerd(criPluginURI)
		test(l)
	})
}

// open opens an engine that the test's end closes.
func (l *lab) open() *Engine {
	l.Helper()
	e, err := Open(l.Context(), l.cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { l.must(e.Close()) })
	return e
}

// start starts the init of the lab's pod, in the machine's namespaces unless in says else.
func (l *lab) start(e *Engine, in Init) int {
	l.Helper()
	in.PodID, in.CgroupsPath = l.pod, l.cg
	pid, err := e.StartInit(l.Context(), in)
	if err != nil {
		l.Fatal(err)
	}
	l.inits = append(l.inits, int(pid))
	return int(pid)
}

// stop stops it and checks that nothing is left.
func (l *lab) stop(e *Engine) {
	l.Helper()
	shims := l.shims()
	l.must(e.StopInit(l.Context(), l.pod))
	for _, pid := range l.inits {
		if !ended(pid) {
			l.Errorf("init %d is still there", pid)
		}
	}
	// A shim ends on its own after it has said that it will.
	for _, pid := range shims {
		l.awaitEnd(pid)
	}
	l.noTraces(l.pod)
	ids, err := e.Inits(l.Context())
	l.must(err)
	if len(ids) != 0 {
		l.Errorf("Inits() = %v after stop", ids)
	}
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Error(err)
	}
}

// shims are the pids of the shims of the lab's pod.
func (l *lab) shims() []int { return processes(l, "crib-shim", "-id\x00"+l.pod) }

// awaitProgram waits until an init is itself: the OCI runtime says that it has
// started it a moment before it executes the program.
func (l *lab) awaitProgram(pid int) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for name := ""; name != initName; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || ctx.Err() != nil {
			l.Errorf("process %d is %q: %v", pid, name, err)
			return
		}
		name = strings.TrimSpace(string(b))
	}
}

// awaitEnd waits until a process that is not our child has ended.
func (l *lab) awaitEnd(pid int) {
	l.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	l.must(err)
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	if err != nil || n != 1 {
		l.Errorf("process %d did not end: %v", pid, err)
	}
}

// noTraces checks that nothing of the machine bears the mark: no process, mount,
// cgroup, or file below the state directory.
func (l *lab) noTraces(mark string) {
	l.Helper()
	if p := processes(l, mark); len(p) != 0 {
		l.Errorf("processes left: %v", p)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	l.must(err)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, mark) {
			l.Errorf("mount left: %s", line)
		}
	}
	for _, dir := range append([]string{l.cfg.State, l.cfg.Root, "/sys/fs/cgroup"}, l.theirs...) {
		l.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return err
			case mark != l.cfg.State && strings.Contains(path, mark):
				l.Errorf("left: %s", path)
			case filepath.Dir(path) == filepath.Join(l.cfg.State, "s"):
				l.Errorf("socket left: %s", path)
			}
			return nil
		}))
	}
}

// processes returns the pids of the living whose command line contains all words.
func processes(t testing.TB, words ...string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline")) // empty for a zombie
		if err != nil || slices.ContainsFunc(words, func(w string) bool { return !bytes.Contains(line, []byte(w)) }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// mountCgroups mounts what the machine has, which the private /sys hides.
func mountCgroups(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/.mounted"); err == nil {
		return
	}
	lines, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasPrefix(lines, []byte("0::")) {
		mount(t, "cgroup2", "/sys/fs/cgroup", "")
		return
	}
	mount(t, "tmpfs", "/sys/fs/cgroup", "mode=755")
	for line := range strings.Lines(string(lines)) {
		name := strings.Split(line, ":")[1]
		dir := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(name, "name="))
		if name == "" {
			mount(t, "cgroup2", "/sys/fs/cgroup/unified", "")
			continue
		}
		mount(t, "cgroup", dir, name)
	}
	if err := os.WriteFile("/sys/fs/cgroup/.mounted", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mount(t testing.TB, kind, target, data string) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(kind, target, kind, 0, data); err != nil {
		t.Fatalf("mount %s: %v", target, err)
	}
}

// removeCgroups removes the parent that the OCI runtime has made for the tests.
func removeCgroups(t testing.TB) {
	t.Helper()
	name := fmt.Sprintf("crib-test-%d", os.Getpid())
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Error(err)
		}
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	}
}

// pins makes new namespaces and returns the paths that keep them.
func pins(t testing.TB) (netns, ipc, uts string) {
	t.Helper()
	dir := t.TempDir()
	args := make([]string, 0, 4)
	for _, kind := range []string{"net", "ipc", "uts"} {
		path := filepath.Join(dir, kind)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
		args = append(args, "--"+kind+"="+path)
	}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Fatalf("unshare: %v\n%s", err, out)
	}
	return filepath.Join(dir, "net"), filepath.Join(dir, "ipc"), filepath.Join(dir, "uts")
}

// inode is what identifies the namespace behind a path.
func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st.Ino
}

// logBuffer collects log lines from any goroutine.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// record makes the record of the lab's init, as far as StartInit got before a crash.
func (l *lab) record(e *Engine) error {
	in := Init{PodID: l.pod, CgroupsPath: l.cg}
	spec, err := typeurl.MarshalAny(initSpec(in, e.info.OCIVersion))
	if err != nil {
		return err
	}
	rt, err := e.runtime()
	if err != nil {
		return err
	}
	_, err = e.client.ContainerService().Create(l.Context(),
		containers.Container{ID: l.pod, Labels: initLabels(in), Spec: spec, Runtime: rt})
	return err
}

// create creates its task and does not start it.
func (l *lab) create(e *Engine) error {
	_, err := e.client.TaskService().Create(l.Context(), &tasks.CreateTaskRequest{
		ContainerID: l.pod, RuntimePath: e.shimPath(),
		Rootfs: []*types.Mount{{Type: "bind", Source: e.root, Options: []string{"rbind", "ro"}}},
	})
	return err
}
