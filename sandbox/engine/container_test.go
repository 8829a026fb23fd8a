package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/container"
)

// The engine is what the container manager wants of it.
var (
	_ container.Tasks  = (*Engine)(nil)
	_ container.Inside = (*Engine)(nil)
)

func TestContainerEndsWithItsExitCode(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		for _, code := range []uint32{0, 7, 255} {
			ended, _ := l.runToEnd(e, l.launch(fmt.Sprint("c", code), "exit", fmt.Sprint(code)))
			if ended.Code != code || ended.OOMKilled {
				l.Errorf("ended %+v, want code %d", ended, code)
			}
		}
	})
}

func TestSignalsReachTheContainer(t *testing.T) {
	l := newLab(t)
	e := l.open()
	for name, test := range map[string]struct {
		args   []string
		signal syscall.Signal
		all    bool
		want   uint32
	}{
		"term": {[]string{"term", "5"}, syscall.SIGTERM, false, 5},
		"kill": {[]string{"wait"}, syscall.SIGKILL, false, 137},
		"all":  {[]string{"wait"}, syscall.SIGKILL, true, 137},
	} {
		c := l.launch(name, test.args...)
		l.runContainer(e, c)
		l.awaitLog(c.LogPath, "stdout F ready")
		l.must(e.Kill(t.Context(), c.ID, test.signal, test.all))
		if ended := l.endOf(e, c.ID); ended.Code != test.want {
			t.Errorf("%s: code %d, want %d", name, ended.Code, test.want)
		}
		if err := e.Kill(t.Context(), c.ID, test.signal, test.all); !errdefs.IsNotFound(err) {
			t.Errorf("Kill() of the dead = %v, want not found", err)
		}
		l.removeContainer(e, c.ID)
	}
}

func TestStartOfAProgramThatIsNotThereLeavesNoTask(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("missing")
	c.Spec.Process.Args = []string{"/no-such-program"}
	l.createContainer(e, c)
	_, err := e.Start(t.Context(), c.ID)
	if err == nil || !strings.Contains(err.Error(), "/no-such-program") {
		t.Errorf("Start() = %v, want one that names the program", err)
	}
	if _, err := e.Wait(t.Context(), c.ID); !errdefs.IsNotFound(err) {
		t.Errorf("Wait() = %v, want not found", err)
	}
	l.removeContainer(e, c.ID)
}

func TestCreateAndDeleteAreIdempotent(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("twice", "wait")
	l.createContainer(e, c)
	l.must(e.Create(t.Context(), c))
	if ids, err := e.Containers(t.Context()); err != nil || !slices.Equal(ids, []string{c.ID}) {
		t.Errorf("Containers() = %v, %v", ids, err)
	}
	l.removeContainer(e, c.ID)
	l.removeContainer(e, c.ID)
	if _, err := e.Start(t.Context(), c.ID); !errdefs.IsNotFound(err) {
		t.Errorf("Start() = %v, want not found", err)
	}
}

func TestDeleteOfARunningContainerLeavesNothing(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		c := l.launch("running", "wait")
		pid := l.runContainer(e, c)
		shims := l.podShims()
		l.removeContainer(e, c.ID)
		l.awaitEnd(pid)
		for _, shim := range shims {
			l.awaitEnd(shim)
		}
	})
}

func TestDeadShimIsNoObstacleToDelete(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		c := l.launch("orphan", "wait")
		pid := l.runContainer(e, c)
		for _, shim := range l.podShims() {
			l.must(unix.Kill(shim, unix.SIGKILL))
			l.awaitEnd(shim)
		}
		if _, err := e.Wait(l.Context(), c.ID); !errdefs.IsNotFound(err) {
			l.Errorf("Wait() = %v, want not found: nobody knows", err)
		}
		l.removeContainer(e, c.ID)
		l.awaitEnd(pid)
	})
}

func TestContainersOfAPodShareOneShimThroughManyRestarts(t *testing.T) {
	l := newLab(t)
	e := l.open()
	stays := l.launch("stays", "wait")
	pid := l.runContainer(e, stays)
	shims := l.podShims()
	for i := range 100 {
		c := l.launch("n"+strconv.Itoa(i), "exit", "1")
		l.runContainer(e, c)
		if ended := l.endOf(e, c.ID); ended.Code != 1 {
			t.Errorf("round %d: %+v", i, ended)
		}
		l.must(e.Delete(t.Context(), c.ID))
		l.must(e.RemoveRoot(t.Context(), c.ID))
		if now := l.podShims(); len(now) != 1 || !slices.Equal(now, shims) {
			t.Fatalf("shims %v, then %v", shims, now)
		}
	}
	if running, err := e.runningPid(t.Context(), stays.ID); err != nil || int(running) != pid {
		t.Errorf("the other one: pid %d, %v, want %d", running, err, pid)
	}
	l.removeContainer(e, stays.ID)
	for _, shim := range shims {
		l.awaitEnd(shim)
	}
}

func TestTheOnlyContainerOfAPodRestartsAgainAndAgain(t *testing.T) {
	l := newLab(t)
	e := l.open()
	for i := range 10 {
		c := l.launch("n"+strconv.Itoa(i), "exit", "1")
		l.runContainer(e, c)
		l.endOf(e, c.ID)
		l.removeContainer(e, c.ID)
	}
}

// eater is a container that is killed for want of memory.
func (l *lab) eater() container.Launch {
	limit := int64(16 << 20)
	c := l.launch("eater", "eat")
	c.Spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
	return c
}

func TestKilledForWantOfMemoryIsSaid(t *testing.T) {
	l := newLab(t)
	ended, _ := l.runToEnd(l.open(), l.eater())
	if ended.Code != 137 || !ended.OOMKilled {
		t.Errorf("ended %+v, want 137 for want of memory", ended)
	}
}

func TestEndsWhileTheEngineIsClosedAreHarvested(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e, err := Open(l.Context(), l.cfg)
		if err != nil {
			l.Fatal(err)
		}
		exits, eats, stays := l.launch("exits", "after", "7"), l.eater(), l.launch("stays", "wait")
		exits.Stdin = true
		eats.Spec.Process.Args = []string{"/payload", "chat", "300", "eat"}
		dir := e.containerDir(exits.ID)
		for _, c := range []container.Launch{exits, eats, stays} {
			l.runContainer(e, c)
		}
		l.must(e.Close())
		l.endInput(dir)
		l.awaitFile(containerDir(l.cfg.State, eats.ID) + "/exit.json")
		l.awaitFile(dir + "/exit.json")

		found, err := Harvest(l.Context(), l.cfg)
		l.must(err)
		if len(found) != 2 || found[exits.ID].Code != 7 || found[exits.ID].OOMKilled ||
			found[eats.ID].Code != 137 || !found[eats.ID].OOMKilled {
			l.Errorf("Harvest() = %+v", found)
		}
		e = l.open()
		for id, want := range found {
			if got := l.endOf(e, id); got != want {
				l.Errorf("Wait() = %+v, want %+v", got, want)
			}
			l.must(e.Delete(l.Context(), id))
			l.must(e.RemoveRoot(l.Context(), id))
		}
		if pid, err := e.runningPid(l.Context(), stays.ID); err != nil || pid == 0 {
			l.Errorf("the one that runs: %d, %v", pid, err)
		}
		shims := l.podShims()
		l.removeContainer(e, stays.ID)
		for _, shim := range shims {
			l.awaitEnd(shim)
		}
		l.noTraces(l.pod[:32])
	})
}

func TestContainerRunsOnCgroupV2(t *testing.T) {
	l := newUnifiedLab(t)
	e := l.open()
	c := l.launch("unified", "wait")
	l.runContainer(e, c)
	l.awaitLog(c.LogPath, "stdout F ready")
	if u, err := l.used(c); err != nil || u.CPU.Total.Value == 0 || u.Processes.Count.Value != 1 {
		t.Errorf("used: %+v, %v", u, err)
	}
	l.must(e.Kill(t.Context(), c.ID, syscall.SIGKILL, true))
	if ended := l.endOf(e, c.ID); ended.Code != 137 || ended.OOMKilled {
		t.Errorf("ended %+v", ended)
	}
	l.removeContainer(e, c.ID)
}
