package engine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	mnt "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// launch is a container of the lab's pod that runs the payload.
func (l *lab) launch(name string, args ...string) container.Launch {
	l.Helper()
	id := name + "-" + l.pod[:32]
	spec := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: payload(args...),
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: l.cg + "-" + name,
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}},
			Resources:   &specs.LinuxResources{},
		},
	}
	return container.Launch{ID: id, PodID: l.pod, Spec: spec, LogPath: filepath.Join(l.TempDir(), name+".log")}
}

// payload is a process of the test program.
func payload(args ...string) *specs.Process {
	return &specs.Process{Args: append([]string{"/payload"}, args...), Cwd: "/", Capabilities: &specs.LinuxCapabilities{}}
}

// createContainer makes a container's root and records it.
func (l *lab) createContainer(e *Engine, c container.Launch) {
	l.Helper()
	ctx := inNamespace(l.Context())
	mounts, err := e.client.SnapshotService(e.images.snap.name).Prepare(ctx, c.ID, "",
		snapshots.WithLabels(map[string]string{labelRoot: "now"}))
	if err != nil {
		l.Fatal(err)
	}
	dir := l.TempDir()
	l.must(mnt.All(mounts, dir))
	program, err := os.ReadFile(filepath.Join(os.Getenv(binEnv), "payload"))
	l.must(err)
	l.must(os.WriteFile(filepath.Join(dir, "payload"), program, 0o755))
	for _, d := range []string{"proc", "dev"} {
		l.must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	l.must(mnt.Unmount(dir, 0))
	if err := e.Create(ctx, c); err != nil {
		l.Fatal(err)
	}
}

// runContainer creates and starts a container and returns its pid.
func (l *lab) runContainer(e *Engine, c container.Launch) int {
	l.Helper()
	l.createContainer(e, c)
	pid, err := e.Start(l.Context(), c.ID)
	if err != nil {
		l.Fatal(err)
	}
	l.inits = append(l.inits, int(pid))
	return int(pid)
}

// endOf waits for the end of a container.
func (l *lab) endOf(e *Engine, id string) container.Ended {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	ended, err := e.Wait(ctx, id)
	if err != nil {
		l.Fatal(err)
	}
	if since := time.Since(ended.At); since < 0 || since > patience {
		l.Errorf("ended %v ago", since)
	}
	return ended
}

// removeContainer deletes a container and its root, and checks that nothing is left.
func (l *lab) removeContainer(e *Engine, id string) {
	l.Helper()
	l.must(e.Delete(l.Context(), id))
	l.must(e.RemoveRoot(l.Context(), id))
	l.must(e.Release(l.Context(), l.pod))
	if _, err := e.Wait(l.Context(), id); err == nil {
		l.Errorf("Wait() after Delete() gives no error")
	}
	if ids, err := e.Containers(l.Context()); err != nil || slices.Contains(ids, id) {
		l.Errorf("Containers() = %v, %v after Delete()", ids, err)
	}
	l.noTraces(id)
}

// podShims are the pids of the shims of the containers of the lab's pod. They have the
// id of the pod or, of an external engine, of the container that they were started for.
func (l *lab) podShims() []int { return processes(l, "crib-shim", "-id\x00", l.pod[:32]) }

// runToEnd runs a container to its end and returns that and the log's lines.
func (l *lab) runToEnd(e *Engine, c container.Launch) (container.Ended, []string) {
	l.Helper()
	l.runContainer(e, c)
	ended := l.endOf(e, c.ID)
	lines := l.logLines(c.LogPath)
	shims := l.podShims()
	l.removeContainer(e, c.ID)
	for _, pid := range shims {
		l.awaitEnd(pid)
	}
	return ended, lines
}

// logLines reads a log without its times, which have to be times.
func (l *lab) logLines(path string) (lines []string) {
	l.Helper()
	b, err := os.ReadFile(path)
	l.must(err)
	if len(b) > 0 && b[len(b)-1] != '\n' {
		l.Errorf("the log ends in the middle of a line")
	}
	for line := range strings.Lines(string(b)) {
		stamp, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
			l.Errorf("line %q: %v", line, err)
		}
		lines = append(lines, strings.TrimSuffix(rest, "\n"))
	}
	return lines
}

// awaitLog waits until a log has a line.
func (l *lab) awaitLog(path, line string) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for {
		if _, err := os.Stat(path); err == nil && slices.Contains(l.logLines(path), line) {
			return
		}
		if ctx.Err() != nil {
			l.Fatalf("no line %q in the log: %q", line, l.logLines(path))
		}
	}
}

// endInput ends the input of a container whose daemon is away, as a client would
// that was the last: the shim is asked in the daemon's stead.
func (l *lab) endInput(dir string) {
	l.Helper()
	address, err := shimAddress(dir)
	if err != nil {
		l.Fatal(err)
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		l.Fatal(err)
	}
	c := ttrpc.NewClient(conn)
	_, err = task.NewTTRPCTaskClient(c).CloseIO(inNamespace(l.Context()),
		&task.CloseIORequest{ID: filepath.Base(dir), Stdin: true})
	l.must(err)
	l.must(c.Close())
}

// awaitFile waits until there is a file.
func (l *lab) awaitFile(path string) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	l.Fatalf("%s did not appear", path)
}

// openFiles counts the descriptors of a process, but for those of processes: Go
// closes the ones of children that somebody else has reaped, as the shim's reaper
// does, when it collects garbage. The shim does that every 30 s.
func openFiles(l *lab, pid int) (n int) {
	l.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	l.must(err)
	for _, fd := range fds {
		if target, _ := os.Readlink(filepath.Join(dir, fd.Name())); target != "anon_inode:[pidfd]" {
			n++
		}
	}
	return n
}

// output collects what a stream brings and lets a test wait for it.
type output struct {
	mu   sync.Mutex // guards buf
	buf  bytes.Buffer
	more chan struct{} // has a place; filled when something came
}

func newOutput() *output { return &output{more: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await waits until text has come.
func (o *output) await(l *lab, text string) {
	l.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.more:
		case <-late.C:
			l.Fatalf("no %q in %q", text, o)
		}
	}
}
