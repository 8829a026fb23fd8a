package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestInitIsProcessOneInItsPodsNamespaces(t *testing.T) {
	l := newLab(t)
	e := l.open()
	netns, ipc, uts := pins(t)
	pid := l.start(e, Init{Netns: netns, IPC: ipc, UTS: uts, Hostname: "a-pod"})
	for kind, pin := range map[string]string{"net": netns, "ipc": ipc, "uts": uts} {
		if got := inode(t, fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); got != inode(t, pin) {
			t.Errorf("init is not in the pinned %s namespace", kind)
		}
	}
	for _, kind := range []string{"pid", "mnt"} {
		if inode(t, fmt.Sprintf("/proc/%d/ns/%s", pid, kind)) == inode(t, "/proc/self/ns/"+kind) {
			t.Errorf("init shares our %s namespace", kind)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Name:\tcrib-init\n", fmt.Sprintf("NSpid:\t%d\t1\n", pid),
		"CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status has no %q:\n%s", want, status)
		}
	}
	running, err := e.InitRunning(t.Context(), l.pod)
	if err != nil || !running {
		t.Errorf("InitRunning() = %v, %v", running, err)
	}
	l.stop(e)
}

func TestStartInitTwiceGivesTheSameProcess(t *testing.T) {
	l := newLab(t)
	e := l.open()
	first := l.start(e, Init{})
	if second := l.start(e, Init{}); second != first {
		t.Errorf("pids %d and %d", first, second)
	}
	ids, err := e.Inits(t.Context())
	if err != nil || !slices.Equal(ids, []string{l.pod}) {
		t.Errorf("Inits() = %v, %v", ids, err)
	}
	l.stop(e)
	l.must(e.StopInit(t.Context(), l.pod))
}

func TestConcurrentStartsOfOnePodGiveOneProcess(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pids := make(chan int, 4)
	for range cap(pids) {
		go func() {
			pid, err := e.StartInit(t.Context(), Init{PodID: l.pod, CgroupsPath: l.cg})
			l.must(err)
			pids <- int(pid)
		}()
	}
	first := <-pids
	for range cap(pids) - 1 {
		if pid := <-pids; pid != first {
			t.Errorf("pids %d and %d", first, pid)
		}
	}
	l.stop(e)
}

func TestStopInitOfUnknownPodIsFine(t *testing.T) {
	l := newLab(t)
	e := l.open()
	l.must(e.StopInit(t.Context(), l.pod))
	if running, err := e.InitRunning(t.Context(), l.pod); err != nil || running {
		t.Errorf("InitRunning() = %v, %v", running, err)
	}
}

func TestStopInitGoesOnWhenItsCallerIsGone(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.must(e.StopInit(ctx, l.pod))
	l.awaitEnd(pid)
	l.stop(e)
}

func TestInitOutlivesTheEngine(t *testing.T) {
	l := newLab(t)
	e, err := Open(t.Context(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	pid := l.start(e, Init{})
	l.must(e.Close())
	if err := unix.Kill(pid, 0); err != nil {
		t.Fatalf("init after Close: %v", err)
	}
	e = l.open()
	if again := l.start(e, Init{}); again != pid {
		t.Errorf("pid %d before, %d after", pid, again)
	}
	l.stop(e)
}

func TestKilledShimIsCleanedUp(t *testing.T) {
	for _, when := range []string{"open", "closed"} {
		t.Run("while "+when, func(t *testing.T) {
			l := newLab(t)
			e, err := Open(t.Context(), l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { l.must(e.Close()) }()
			pid := l.start(e, Init{})
			if when == "closed" {
				l.must(e.Close())
			}
			for _, shim := range l.shims() {
				l.must(unix.Kill(shim, unix.SIGKILL))
				l.awaitEnd(shim)
			}
			if when == "closed" {
				if e, err = Open(t.Context(), l.cfg); err != nil {
					t.Fatal(err)
				}
			}
			l.stop(e)
			l.awaitEnd(pid)
		})
	}
}

func TestKilledInitIsReplaced(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	l.must(unix.Kill(pid, unix.SIGKILL))
	l.awaitEnd(pid)
	if again := l.start(e, Init{}); again == pid {
		t.Errorf("still pid %d", pid)
	}
	l.stop(e)
}

func TestHalfMadeInitIsReplacedOrRemoved(t *testing.T) {
	make := map[string]func(*lab, *Engine) error{
		"only recorded": func(l *lab, e *Engine) error {
			return l.record(e)
		},
		"created, not started": func(l *lab, e *Engine) error {
			return errors.Join(l.record(e), l.create(e))
		},
	}
	for name, half := range make {
		t.Run(name+", then started", func(t *testing.T) {
			l := newLab(t)
			e := l.open()
			l.must(half(l, e))
			l.start(e, Init{})
			l.stop(e)
		})
		t.Run(name+", then stopped", func(t *testing.T) {
			l := newLab(t)
			e := l.open()
			l.must(half(l, e))
			l.stop(e)
		})
		t.Run(name+", crashed, then stopped", func(t *testing.T) {
			l := newLab(t)
			e, err := Open(t.Context(), l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			l.must(half(l, e))
			l.must(e.Close())
			e = l.open()
			if ids, err := e.Inits(t.Context()); err != nil || !slices.Equal(ids, []string{l.pod}) {
				t.Errorf("Inits() = %v, %v", ids, err)
			}
			l.stop(e)
		})
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	l := newLab(t)
	e := l.open()
	_, err := e.StartInit(t.Context(), Init{PodID: l.pod, CgroupsPath: l.cg, Netns: "/nonexistent/netns"})
	if err == nil {
		t.Fatal("an init was started in a namespace that is not there")
	}
	l.stop(e)
}

func TestInitReapsOrphans(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	// Each command leaves a child behind that ends after its parent.
	out, err := exec.Command("nsenter", "--pid", "--target", fmt.Sprint(pid), "sh", "-c",
		"for i in 1 2 3 4 5; do (cat /dev/null &) ; done").CombinedOutput()
	if err != nil {
		t.Fatalf("nsenter: %v\n%s", err, out)
	}
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for children := "?"; children != ""; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil || deadline.Err() != nil {
			t.Fatalf("children %q were not reaped: %v", children, err)
		}
		children = string(b)
	}
	l.stop(e)
}
