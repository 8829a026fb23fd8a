package container_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// start returns a recovered manager in a world, which ends with the test.
func start(t *testing.T, w *world) *container.Manager {
	t.Helper()
	m := w.start()
	t.Cleanup(m.Close)
	if err := m.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func mustCreate(t *testing.T, m *container.Manager, s container.Spec) string {
	t.Helper()
	id, err := m.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustStart(t *testing.T, m *container.Manager, s container.Spec) string {
	t.Helper()
	id := mustCreate(t, m, s)
	if err := m.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// is checks the state that is shown, and returns the record.
func is(t *testing.T, m *container.Manager, id string, want container.State) *container.Container {
	t.Helper()
	c, err := m.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	if c.State != want {
		t.Fatalf("it is %s, want %s: %+v", c.State, want, c)
	}
	return c
}

// bubble runs a test with a clock of its own, in which goroutines must end.
func bubble(t *testing.T, test func(t *testing.T, w *world, m *container.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		test(t, w, start(t, w))
	})
}

func attempt(n uint32) container.Spec {
	s := spec
	s.Attempt = n
	return s
}

func TestCreateEchoesWhatItWasGivenAndWhatItFound(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	s := spec
	s.Labels, s.Annotations, s.LogPath = map[string]string{"a": "b"}, map[string]string{"c": "d"}, "/log/0.log"
	c := is(t, m, mustCreate(t, m, s), container.Created)
	if c.Spec.Labels["a"] != "b" || c.Spec.Annotations["c"] != "d" || c.Spec.LogPath != s.LogPath {
		t.Errorf("echoed: %+v", c.Spec)
	}
	if c.ImageID != "sha256:1" || c.ImageRef != "docker.io/library/busybox@sha256:2" || c.User.UID != 1000 || c.StopSignal != "SIGINT" {
		t.Errorf("found: %+v", c)
	}
}

func TestCreateRefusesBadInputAndChangesNothing(t *testing.T) {
	w := newWorld()
	w.pods["stopped"] = sandbox.NotReady
	m := start(t, w)
	for text, change := range map[string]func(*container.Spec){
		"pod_sandbox_id":   func(s *container.Spec) { s.PodID = "" },
		"metadata.name":    func(s *container.Spec) { s.Name = "" },
		"image.image":      func(s *container.Spec) { s.Image.Image = "" },
		"log_path":         func(s *container.Spec) { s.LogPath = "0.log" },
		"stop_signal":      func(s *container.Spec) { s.StopSignal = "SIGNONE" },
		"pod other":        func(s *container.Spec) { s.PodID = "other" },
		"is NotReady":      func(s *container.Spec) { s.PodID = "stopped" },
		"has to be pulled": func(s *container.Spec) { s.Image.Image = "missing" },
	} {
		bad := spec
		change(&bad)
		_, err := m.Create(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if left := w.remains(); len(left) > 0 || len(w.calls) > 0 {
		t.Errorf("left: %q, calls: %v", left, w.calls)
	}
}

func TestCreateOfAContainerThatEndedMakesAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		old := mustStart(t, m, spec)
		if again := mustCreate(t, m, spec); again != old {
			t.Errorf("the key of a running container got %s, not %s", again, old)
		}
		w.end(old, 0, false)
		synctest.Wait()
		if c := is(t, m, old, container.Exited); c.Exit.Reason != container.ReasonCompleted || c.Exit.Code != 0 {
			t.Errorf("its end: %+v", c.Exit)
		}
		if next := mustCreate(t, m, spec); next == old {
			t.Error("the key of one that ended got its id")
		}
	})
}

// TestCreateAndAStopOfThePodExcludeEachOther: a Create that began before the pod
// was stopped either makes no container, or one that the stop finds.
func TestCreateAndAStopOfThePodExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(fault{op: "image", n: 1, mode: block}, fault{op: "create", n: 1, mode: block})
		m := start(t, w)
		done := make(chan error)
		go func() { _, err := m.Create(t.Context(), spec); done <- err }()
		synctest.Wait() // it has seen a Ready pod
		w.mu.Lock()
		w.pods["pod"] = sandbox.NotReady
		w.mu.Unlock()
		if err := m.StopAll(t.Context(), "pod"); err != nil {
			t.Error(err)
		}
		if err := <-done; err == nil {
			t.Error("a container was made in a stopped pod")
		}
		w.pods["pod"] = sandbox.Ready
		go func() { _, err := m.Create(t.Context(), spec); done <- err }()
		synctest.Wait() // its record exists
		w.mu.Lock()
		w.pods["pod"] = sandbox.NotReady
		w.mu.Unlock()
		removed := make(chan error)
		go func() { removed <- m.RemoveAll(t.Context(), "pod") }()
		<-done
		if err := <-removed; err != nil || len(w.remains()) > 0 {
			t.Errorf("after the pod's removal: %q, %v", w.remains(), err)
		}
	})
}

func TestStartRefusesWhatIsNotCreated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		if err := m.Start(t.Context(), id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a running one: %v", err)
		}
		w.end(id, 1, false)
		synctest.Wait()
		if err := m.Start(t.Context(), id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("one that ended: %v", err)
		}
		if err := m.Start(t.Context(), "unknown"); !errdefs.IsNotFound(err) {
			t.Errorf("an unknown one: %v", err)
		}
		created := mustCreate(t, m, attempt(1))
		w.pods["pod"] = sandbox.NotReady
		if err := m.Start(t.Context(), created); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("one of a stopped pod: %v", err)
		}
		is(t, m, created, container.Created)
	})
}

func TestAStartThatFailsLeavesTheErrorToRead(t *testing.T) {
	w := newWorld(fault{op: "start", n: 1, mode: half})
	m := start(t, w)
	id := mustCreate(t, m, spec)
	if err := m.Start(t.Context(), id); !errors.Is(err, errFault) {
		t.Errorf("Start says %v", err)
	}
	c := is(t, m, id, container.Exited)
	if c.Exit.Code != 128 || c.Exit.Reason != container.ReasonStartError || !strings.Contains(c.Exit.Message, "injected fault") || !c.Exit.At.After(c.StartedAt) {
		t.Errorf("its end: %+v, started at %v", c.Exit, c.StartedAt)
	}
	if w.has("task", id) || w.has("container", id) {
		t.Error("the engine still has it")
	}
}

func TestEndsAreShownAsTheyWere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		for i, test := range []struct {
			code   uint32
			oom    bool
			reason string
		}{{0, false, "Completed"}, {0, true, "Completed"}, {7, false, "Error"}, {137, true, "OOMKilled"}, {137, false, "Error"}} {
			id := mustStart(t, m, attempt(uint32(i)))
			w.end(id, test.code, test.oom)
			synctest.Wait()
			c := is(t, m, id, container.Exited)
			if c.Exit.Code != int32(test.code) || c.Exit.Reason != test.reason || c.PID != 0 || !c.Exit.At.After(c.StartedAt) {
				t.Errorf("%+v is shown as %+v", test, c)
			}
		}
	})
}

func TestStopAsksAndThenKills(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.deaf = true
		id := mustStart(t, m, spec)
		begin := time.Now()
		if err := m.Stop(t.Context(), id, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		is(t, m, id, container.Exited)
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
		if want := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}; !slices.Equal(w.signals, want) {
			t.Errorf("signals: %v, want %v", w.signals, want)
		}
		if err := errors.Join(m.Stop(t.Context(), id, time.Second), m.Stop(t.Context(), "unknown", 0)); err != nil {
			t.Errorf("one that ended and an unknown one: %v", err)
		}
	})
}

func TestStopWithoutGraceKillsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		if err := m.Stop(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		if c := is(t, m, id, container.Exited); c.Exit.Code != 137 || !slices.Equal(w.signals, []syscall.Signal{syscall.SIGKILL}) {
			t.Errorf("it ended with %+v after %v", c.Exit, w.signals)
		}
	})
}

func TestAShorterSecondStopShortensTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.deaf = true
		id := mustStart(t, m, spec)
		first := make(chan error)
		go func() { first <- m.Stop(t.Context(), id, time.Hour) }()
		synctest.Wait()
		begin := time.Now()
		if err := m.Stop(t.Context(), id, 5*time.Second); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil || time.Since(begin) != 5*time.Second {
			t.Errorf("the first returned after %s, %v", time.Since(begin), err)
		}
		if want := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}; !slices.Equal(w.signals, want) {
			t.Errorf("signals: %v, want the stop signal once", w.signals)
		}
	})
}

func TestStopWhoseCallerIsGoneDoesNotKill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.deaf = true
		id := mustStart(t, m, spec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Stop(ctx, id, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		is(t, m, id, container.Running)
	})
}

func TestAProcessThatDoesNotDieIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.immortal = true
		id := mustStart(t, m, spec)
		err := m.Stop(t.Context(), id, time.Second)
		if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "process 42") {
			t.Errorf("Stop says %v", err)
		}
		if err := m.Remove(t.Context(), id); err == nil || !w.has("root", id) || len(m.Debts()) != 1 {
			t.Errorf("Remove says %v, left: %q, owed: %v", err, w.remains(), m.Debts())
		}
		w.mu.Lock()
		w.immortal = false
		w.mu.Unlock()
		serve(t, m, time.Minute)
		if left := w.remains(); len(left) > 0 || len(m.Debts()) > 0 {
			t.Errorf("left: %q, owed: %v", left, m.Debts())
		}
	})
}

func TestRemoveWorksOnAFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		w.mu.Lock()
		w.faults = []fault{{op: "put", n: 1, mode: before, always: true}}
		w.mu.Unlock()
		if err := errors.Join(m.Stop(t.Context(), id, time.Second), m.Remove(t.Context(), id), m.Remove(t.Context(), id)); err != nil {
			t.Error(err)
		}
		if left := w.remains(); len(left) > 0 || len(m.Debts()) > 0 {
			t.Errorf("left: %q, owed: %v", left, m.Debts())
		}
	})
}

func TestStopAllKillsSideBySideAndOnlyThePods(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.pods["other"] = sandbox.Ready
		other := spec
		other.PodID = "other"
		a, b, c := mustStart(t, m, attempt(0)), mustStart(t, m, attempt(1)), mustStart(t, m, other)
		if err := m.StopAll(t.Context(), "pod"); err != nil {
			t.Fatal(err)
		}
		is(t, m, a, container.Exited)
		is(t, m, b, container.Exited)
		is(t, m, c, container.Running)
		if w.has("task", a) || w.has("task", b) {
			t.Error("a task is left, and with it a holder of the pod's namespaces")
		}
	})
}

func TestCreatedAtNeverGoesBackInAPod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		w.pods["pod 2"] = sandbox.Ready
		var last time.Time
		for i := range uint32(6) { // at one instant of the bubble's clock
			s := attempt(i)
			if i > 3 {
				s.PodID = "pod 2" // another sandbox of the same pod
			}
			c := is(t, m, mustCreate(t, m, s), container.Created)
			if !c.CreatedAt.After(last) {
				t.Errorf("attempt %d at %v, the one before at %v", i, c.CreatedAt, last)
			}
			last = c.CreatedAt
		}
	})
}

func TestExecSyncReturnsOutputAndCode(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		stdout, stderr, code, err := m.ExecSync(t.Context(), id, []string{"flood"}, 0)
		if err != nil || code != 3 || len(stdout) != 16<<20 || !bytes.Equal(stderr, []byte("to stderr")) {
			t.Errorf("%d bytes, %q, %d, %v", len(stdout), stderr, code, err)
		}
	})
}

func TestExecSyncEndsWithItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		begin := time.Now()
		_, _, _, err := m.ExecSync(t.Context(), id, []string{"sleep"}, 2*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsDeadlineExceeded(err) || time.Since(begin) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, _, err := m.ExecSync(ctx, id, []string{"sleep"}, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("whose caller is gone: %v", err)
		}
	})
}

func TestWhatReachesInsideNeedsARunningContainer(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	id := mustCreate(t, m, spec)
	calls := map[string]func(id string) error{
		"exec":   func(id string) error { _, _, _, err := m.ExecSync(t.Context(), id, []string{"true"}, 0); return err },
		"attach": func(id string) error { return m.Attach(t.Context(), id, container.Streams{}) },
		"reopen": func(id string) error { return m.ReopenLog(t.Context(), id) },
		"usage":  func(id string) error { _, err := m.Usage(t.Context(), id); return err },
	}
	for name, call := range calls {
		if err := call("unknown"); !errdefs.IsNotFound(err) {
			t.Errorf("%s of an unknown one: %v", name, err)
		}
		if err := call(id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s of a created one: %v", name, err)
		}
	}
	if err := m.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUpdateKeepsWhatItDoesNotName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		s := spec
		s.Resources = container.Resources{CPUShares: 10, MemoryLimit: 1 << 20, Unified: map[string]string{"a": "1"}}
		id := mustCreate(t, m, s)
		if err := m.Update(t.Context(), id, container.Resources{CPUSetCPUs: "0"}); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := m.Update(t.Context(), id, container.Resources{MemoryLimit: 2 << 20, Unified: map[string]string{"b": "2"}}); err != nil {
			t.Fatal(err)
		}
		r := is(t, m, id, container.Running).Spec.Resources
		if r.CPUShares != 10 || r.MemoryLimit != 2<<20 || r.CPUSetCPUs != "0" || len(r.Unified) != 2 {
			t.Errorf("echoed: %+v", r)
		}
		w.mu.Lock()
		w.faults = []fault{{op: "update", n: 1, mode: before, always: true}}
		w.mu.Unlock()
		if err := m.Update(t.Context(), id, container.Resources{MemoryLimit: 1}); err == nil || is(t, m, id, container.Running).Spec.Resources.MemoryLimit != 2<<20 {
			t.Errorf("what was refused is echoed, %v", err)
		}
		w.end(id, 0, false)
		synctest.Wait()
		if err := m.Update(t.Context(), id, container.Resources{MemoryLimit: 1}); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("one that ended: %v", err)
		}
	})
}

// serve lets a manager work for a time of the bubble's clock.
func serve(t *testing.T, m *container.Manager, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := m.Serve(ctx); err != nil {
		t.Error(err)
	}
}
