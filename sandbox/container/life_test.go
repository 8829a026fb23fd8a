package container_test

import (
	"context"
	"errors"
	"strings"
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

// Kubelets know RROUnsupported and ImageVolumeMountFailed by the beginning of the text.
func TestTheErrorOfASpecIsPassedOnAsItIs(t *testing.T) {
	m := start(t, newWorld(fault{op: "spec", n: 1, mode: before}))
	if _, err := m.Create(t.Context(), spec); err == nil || err.Error() != "spec: "+errFault.Error() {
		t.Errorf("got %q", err)
	}
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

// serve lets a manager work for a time of the bubble's clock.
func serve(t *testing.T, m *container.Manager, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := m.Serve(ctx); err != nil {
		t.Error(err)
	}
}
