package container_test

import (
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
