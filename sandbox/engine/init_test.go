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
	onEachEngine(t, testInitIsProcessOneInItsPodsNamespaces)
}

func testInitIsProcessOneInItsPodsNamespaces(l *lab) {
	e := l.open()
	netns, ipc, uts := pins(l)
	pid := l.start(e, Init{Netns: netns, IPC: ipc, UTS: uts, Hostname: "a-pod"})
	for kind, pin := range map[string]string{"net": netns, "ipc": ipc, "uts": uts} {
		if got := inode(l, fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); got != inode(l, pin) {
			l.Errorf("init is not in the pinned %s namespace", kind)
		}
	}
	for _, kind := range []string{"pid", "mnt"} {
		if inode(l, fmt.Sprintf("/proc/%d/ns/%s", pid, kind)) == inode(l, "/proc/self/ns/"+kind) {
			l.Errorf("init shares our %s namespace", kind)
		}
	}
	l.awaitProgram(pid)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		l.Error(err)
	}
	for _, want := range []string{"Name:\tcrib-init\n", fmt.Sprintf("NSpid:\t%d\t1\n", pid),
		"CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			l.Errorf("status has no %q:\n%s", want, status)
		}
	}
	running, err := e.InitRunning(l.Context(), l.pod)
	if err != nil || !running {
		l.Errorf("InitRunning() = %v, %v", running, err)
	}
	l.stop(e)
}

func TestStartInitTwiceGivesTheSameProcess(t *testing.T) {
	onEachEngine(t, testStartInitTwiceGivesTheSameProcess)
}

func testStartInitTwiceGivesTheSameProcess(l *lab) {
	e := l.open()
	first := l.start(e, Init{})
	if second := l.start(e, Init{}); second != first {
		l.Errorf("pids %d and %d", first, second)
	}
	ids, err := e.Inits(l.Context())
	if err != nil || !slices.Equal(ids, []string{l.pod}) {
		l.Errorf("Inits() = %v, %v", ids, err)
	}
	l.stop(e)
	l.must(e.StopInit(l.Context(), l.pod))
}

func TestConcurrentStartsOfOnePodGiveOneProcess(t *testing.T) {
	onEachEngine(t, testConcurrentStartsOfOnePodGiveOneProcess)
}

func testConcurrentStartsOfOnePodGiveOneProcess(l *lab) {
	e := l.open()
	pids := make(chan int, 4)
	for range cap(pids) {
		go func() {
			pid, err := e.StartInit(l.Context(), Init{PodID: l.pod, CgroupsPath: l.cg})
			l.must(err)
			pids <- int(pid)
		}()
	}
	first := <-pids
	for range cap(pids) - 1 {
		if pid := <-pids; pid != first {
			l.Errorf("pids %d and %d", first, pid)
		}
	}
	l.stop(e)
}

func TestStopInitOfUnknownPodIsFine(t *testing.T) { onEachEngine(t, testStopInitOfUnknownPodIsFine) }

func testStopInitOfUnknownPodIsFine(l *lab) {
	e := l.open()
	l.must(e.StopInit(l.Context(), l.pod))
	if running, err := e.InitRunning(l.Context(), l.pod); err != nil || running {
		l.Errorf("InitRunning() = %v, %v", running, err)
	}
}

func TestStopInitGoesOnWhenItsCallerIsGone(t *testing.T) {
	onEachEngine(t, testStopInitGoesOnWhenItsCallerIsGone)
}

func testStopInitGoesOnWhenItsCallerIsGone(l *lab) {
	e := l.open()
	pid := l.start(e, Init{})
	ctx, cancel := context.WithCancel(l.Context())
	cancel()
	l.must(e.StopInit(ctx, l.pod))
	l.awaitEnd(pid)
	l.stop(e)
}

func TestInitOutlivesTheEngine(t *testing.T) { onEachEngine(t, testInitOutlivesTheEngine) }

func testInitOutlivesTheEngine(l *lab) {
	e, err := Open(l.Context(), l.cfg)
	if err != nil {
		l.Fatal(err)
	}
	pid := l.start(e, Init{})
	l.must(e.Close())
	if err := unix.Kill(pid, 0); err != nil {
		l.Fatalf("init after Close: %v", err)
	}
	e = l.open()
	if again := l.start(e, Init{}); again != pid {
		l.Errorf("pid %d before, %d after", pid, again)
	}
	l.stop(e)
}

func TestKilledShimIsCleanedUp(t *testing.T) {
	for _, when := range []string{"open", "closed"} {
		t.Run("while "+when, func(t *testing.T) {
			onEachEngine(t, func(l *lab) {
				e, err := Open(l.Context(), l.cfg)
				if err != nil {
					l.Fatal(err)
				}
				defer func() { l.must(e.Close()) }()
				pid := l.start(e, Init{})
				if when == "closed" {
					l.must(e.Close())
				}
				shims := l.shims()
				if len(shims) != 1 {
					l.Fatalf("shims %v", shims)
				}
				for _, shim := range shims {
					l.must(unix.Kill(shim, unix.SIGKILL))
					l.awaitEnd(shim)
				}
				if when == "closed" {
					if e, err = Open(l.Context(), l.cfg); err != nil {
						l.Fatal(err)
					}
				}
				l.stop(e)
				l.awaitEnd(pid)
			})
		})
	}
}

func TestKilledInitIsReplaced(t *testing.T) { onEachEngine(t, testKilledInitIsReplaced) }

func testKilledInitIsReplaced(l *lab) {
	e := l.open()
	pid := l.start(e, Init{})
	l.must(unix.Kill(pid, unix.SIGKILL))
	l.awaitEnd(pid)
	if again := l.start(e, Init{}); again == pid {
		l.Errorf("still pid %d", pid)
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
			onEachEngine(t, func(l *lab) {
				e := l.open()
				l.must(half(l, e))
				l.start(e, Init{})
				l.stop(e)
			})
		})
		t.Run(name+", then stopped", func(t *testing.T) {
			onEachEngine(t, func(l *lab) {
				e := l.open()
				l.must(half(l, e))
				l.stop(e)
			})
		})
		t.Run(name+", crashed, then stopped", func(t *testing.T) {
			onEachEngine(t, func(l *lab) {
				e, err := Open(l.Context(), l.cfg)
				if err != nil {
					l.Fatal(err)
				}
				l.must(half(l, e))
				l.must(e.Close())
				e = l.open()
				if ids, err := e.Inits(l.Context()); err != nil || !slices.Equal(ids, []string{l.pod}) {
					l.Errorf("Inits() = %v, %v", ids, err)
				}
				l.stop(e)
			})
		})
	}
}

func TestFailedStartLeavesNothing(t *testing.T) { onEachEngine(t, testFailedStartLeavesNothing) }

func testFailedStartLeavesNothing(l *lab) {
	e := l.open()
	_, err := e.StartInit(l.Context(), Init{PodID: l.pod, CgroupsPath: l.cg, Netns: "/nonexistent/netns"})
	if err == nil {
		l.Fatal("an init was started in a namespace that is not there")
	}
	l.stop(e)
}

func TestInitReapsOrphans(t *testing.T) { onEachEngine(t, testInitReapsOrphans) }

func testInitReapsOrphans(l *lab) {
	e := l.open()
	pid := l.start(e, Init{})
	// Each command leaves a child behind that ends after its parent.
	out, err := exec.Command("nsenter", "--pid", "--target", fmt.Sprint(pid), "sh", "-c",
		"for i in 1 2 3 4 5; do (cat /dev/null &) ; done").CombinedOutput()
	if err != nil {
		l.Fatalf("nsenter: %v\n%s", err, out)
	}
	deadline, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for children := "?"; children != ""; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil || deadline.Err() != nil {
			l.Errorf("children %q were not reaped: %v", children, err)
			break
		}
		children = string(b)
	}
	l.stop(e)
}

func TestInitEndsOnSIGTERM(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// Process 1 gets only signals that it has a handler for, which it sets up first thing.
	for !ended(pid) {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) || ctx.Err() != nil {
			t.Fatalf("init %d did not end: %v", pid, err)
		}
	}
	l.stop(e)
}
