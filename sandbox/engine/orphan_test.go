package engine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script makes a program of the lab.
func (l *lab) script(name, text string) string {
	l.Helper()
	path := filepath.Join(l.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		l.Fatal(err)
	}
	return path
}

// crash runs a daemon that starts the pod's init, which kills it on the way.
func (l *lab) crash() {
	l.Helper()
	err := l.crashCommand().Run()
	if err == nil || err.Error() != "signal: killed" {
		l.Fatalf("the daemon was not killed: %v", err)
	}
}

// TestAShimWhoseDaemonWasKilledWhileItStartedIsEnded kills the daemon when the shim
// runs and no bundle names it yet.
func TestAShimWhoseDaemonWasKilledWhileItStartedIsEnded(t *testing.T) {
	l := newLab(t)
	shim := l.cfg.Shim
	l.cfg.Shim = l.script("crib-shim", fmt.Sprintf("kill -9 $PPID; exec %s \"$@\"\n", shim))
	l.crash()
	l.cfg.Shim = shim
	orphans := l.shims()
	if len(orphans) != 1 {
		t.Fatalf("shims of the killed daemon: %v, want one", orphans)
	}
	e := l.open()
	// At once if no bundle names it, else with the pod.
	l.stop(e)
	l.awaitEnd(orphans[0])
}

// TestAShimThatNeverAnswersIsKilledByTheRemoval has a shim that is stopped before it
// serves; its socket takes connections all the same.
func TestAShimThatNeverAnswersIsKilledByTheRemoval(t *testing.T) {
	l := newLab(t)
	l.cfg.Shim = l.script("crib-shim", fmt.Sprintf("kill -STOP $$; exec %s \"$@\"\n", l.cfg.Shim))
	e := l.open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := e.StartInit(ctx, Init{PodID: l.pod, CgroupsPath: l.cg}); err == nil {
		t.Fatal("an init without a shim was started")
	}
	// containerd goes on with the start for a while, and until then it is refused.
	for range 10 {
		if err := e.StopInit(t.Context(), l.pod); err == nil {
			break
		}
	}
	l.stop(e)
}

// TestAShimThatEndsAtOnceIsAnErrorThatLeavesNothing has a program that is none.
func TestAShimThatEndsAtOnceIsAnErrorThatLeavesNothing(t *testing.T) {
	l := newLab(t)
	l.cfg.Shim = l.script("crib-shim", "exit 1\n")
	e := l.open()
	if _, err := e.StartInit(t.Context(), Init{PodID: l.pod, CgroupsPath: l.cg}); err == nil {
		t.Fatal("an init without a shim was started")
	}
	l.noTraces(l.pod)
	l.stop(e)
}

// TestTheCgroupOfAnInitWhoseRuntimeWasKilledIsRemoved kills the daemon when the OCI
// runtime has made the cgroup: with it ends the call, and so does the runtime.
func TestTheCgroupOfAnInitWhoseRuntimeWasKilledIsRemoved(t *testing.T) {
	l := newLab(t)
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip(err)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	l.cfg.OCIRuntime = l.script("runc", fmt.Sprintf(`case " $* " in *" create "*)
	read pid < %s
	(until [ -d /sys/fs/cgroup/memory%s ] || [ -d /sys/fs/cgroup%[2]s ]; do :; done; kill -9 $pid) &
esac
exec %[3]s "$@"
`, pidFile, l.cg, runc))
	cmd := l.crashCommand()
	// The script reads it long after.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.must(os.WriteFile(pidFile, fmt.Appendln(nil, cmd.Process.Pid), 0o600))
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the daemon was not killed: %v", err)
	}
	l.cfg.OCIRuntime = ""
	e := l.open()
	l.stop(e)
}

func TestWhatRunsInTheCgroupOfARemovedInitIsKilled(t *testing.T) {
	l := newLab(t)
	e := l.open()
	l.must(l.record(e))
	stray := exec.Command("sleep", "1000")
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stray.Wait() }()
	roots, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	l.must(err)
	for _, root := range append(roots, "/sys/fs/cgroup/cgroup.procs") {
		if strings.Contains(root, "cpuset") { // takes no process before it has CPUs
			continue
		}
		if _, err := os.Stat(root); err != nil {
			continue
		}
		dir := filepath.Join(filepath.Dir(root), l.cg, "child")
		l.must(os.MkdirAll(dir, 0o755))
		l.must(os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, stray.Process.Pid), 0))
	}
	l.stop(e)
	if err := stray.Wait(); err == nil || stray.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the stray ended with %v", err)
	}
}

// TestShimsOfAnEngineWithTheSameNamesElsewhereAreLeftAlone has a shim's process, whose
// bundle nobody knows, in a mount namespace with another directory at the same path.
func TestShimsOfAnEngineWithTheSameNamesElsewhereAreLeftAlone(t *testing.T) {
	l := newLab(t)
	address := filepath.Join(l.cfg.State, "containerd.sock")
	for name, c := range map[string]struct {
		first string
		want  int
	}{"here": {"", 1}, "elsewhere": {"mount -t tmpfs none " + l.cfg.State + "; ", 0}} {
		cmd := exec.Command("unshare", "-m", "sh", "-c", c.first+"echo; read end; exit 0",
			"crib-shim", "-namespace", namespace, "-id", name, "-address", address)
		in, err := cmd.StdinPipe()
		l.must(err)
		out, err := cmd.StdoutPipe()
		l.must(err)
		l.must(cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it is in its place
		l.must(err)
		if got := shimsOf(l.cfg.State, address); len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
		l.must(in.Close())
		l.must(cmd.Wait())
	}
}
