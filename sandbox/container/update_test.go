package container_test

import (
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/container"
)

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

func TestARefusedUpdateLeavesACreatedContainerStartable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustCreate(t, m, spec)
		w.mu.Lock()
		w.faults = []fault{{op: "create", n: w.calls["create"] + 1, mode: before}}
		w.mu.Unlock()
		if err := m.Update(t.Context(), id, container.Resources{MemoryLimit: 1 << 20}); err == nil {
			t.Error("what was refused is no error")
		}
		if got := is(t, m, id, container.Created).Spec.Resources.MemoryLimit; got != 0 {
			t.Errorf("what was refused is echoed: %d", got)
		}
		if err := m.Start(t.Context(), id); err != nil {
			t.Errorf("it cannot be started any more: %v", err)
		}
	})
}

func TestAnUpdateSendsWhatItIsAbout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		s := spec
		s.Resources = container.Resources{CPUPeriod: 100000, CPUQuota: 50000, MemoryLimit: 10, MemorySwap: 15}
		id := mustCreate(t, m, s)
		if err := m.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			claim        string
			change, sent container.Resources
		}{
			{"cpuset alone", container.Resources{CPUSetCPUs: "1"}, container.Resources{CPUSetCPUs: "1"}},
			{"a quota with its period", container.Resources{CPUQuota: 20000}, container.Resources{CPUPeriod: 100000, CPUQuota: 20000}},
			{"memory with as much swap as before", container.Resources{MemoryLimit: 20}, container.Resources{MemoryLimit: 20, MemorySwap: 25}},
			{"less memory, as much swap", container.Resources{MemoryLimit: 5}, container.Resources{MemoryLimit: 5, MemorySwap: 10}},
			{"swap with its memory", container.Resources{MemorySwap: 5}, container.Resources{MemoryLimit: 5, MemorySwap: 5}},
			{"no limit is none for both", container.Resources{MemoryLimit: -1}, container.Resources{MemoryLimit: -1, MemorySwap: -1}},
			{"a score alone", container.Resources{OOMScoreAdj: 5}, container.Resources{OOMScoreAdj: 5}},
		} {
			if err := m.Update(t.Context(), id, test.change); err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			sent := w.limits
			w.mu.Unlock()
			if !reflect.DeepEqual(sent, test.sent) {
				t.Errorf("%s: sent %+v, want %+v", test.claim, sent, test.sent)
			}
		}
	})
}
