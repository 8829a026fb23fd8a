package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/sandbox"
)

// serve lets a manager work for a time of the bubble's clock.
func serve(t *testing.T, m *sandbox.Manager, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := m.Serve(ctx); err != nil {
		t.Error(err)
	}
}

func TestRemoveWorksOnAFullDisk(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	pod := mustRun(t, m, spec)
	w.faults = []fault{{op: "put", n: 1, mode: before, always: true}}
	if err := m.Stop(t.Context(), pod.ID); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := m.Remove(t.Context(), pod.ID); err != nil {
		t.Errorf("remove: %v", err)
	}
	if left := w.remains(); len(left) > 0 || len(m.Debts()) > 0 {
		t.Errorf("left: %q, owed: %v", left, m.Debts())
	}
}

func TestAHungTeardownDoesNotHideADeadPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := start(t, w)
		hung, other := mustRun(t, m, spec), spec
		other.UID = "u2"
		dead := mustRun(t, m, other)
		w.faults = []fault{{op: "detach", n: 1, mode: block, always: true}}
		if err := m.Stop(t.Context(), hung.ID); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		delete(w.have, "pin "+dead.Pins.Net.Path)
		w.mu.Unlock()
		serve(t, m, 10*time.Second)
		if pod, err := m.Get(dead.ID); err != nil || pod.State != sandbox.NotReady {
			t.Errorf("the dead pod is %+v, %v", pod, err)
		}
		if debts := m.Debts(); len(debts) != 1 || debts[0].Pod.ID != hung.ID {
			t.Errorf("owed: %v", debts)
		}
	})
}

func TestTheLoopsEndWithTheirContextWhateverIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := start(t, w)
		for i := range 4 {
			s := spec
			s.UID = string(rune('a' + i))
			mustRun(t, m, s)
		}
		w.faults = []fault{{op: "stop init", n: 1, mode: block, always: true}}
		for _, pod := range m.List() {
			if err := m.Stop(t.Context(), pod.ID); err == nil {
				t.Error("Stop says OK though the init lives")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		if err := m.Serve(ctx); err != nil || time.Since(begin) > time.Second {
			t.Errorf("Serve took %s after its context ended, %v", time.Since(begin), err)
		}
	})
}
