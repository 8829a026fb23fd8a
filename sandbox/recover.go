package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/crib-runtime/crib/network"
)

// workers is how many pods are attached again, or torn down from the debts, at
// once. More only wait for the kernel's one lock of links.
const workers = 4

// errReboot is what the teardown of a pod of another boot is owed for.
var errReboot = errors.New("the node was restarted; what its engine and its networks keep on disk is still to be removed")

// Recover reads the records of an earlier process and makes the world match
// them: what was half made is unwound, the living pods are attached again (which
// repairs them), the dead are marked, and what bears our mark without a record
// is removed. It never fails for one object: what it cannot undo is owed. It
// must return before the first other call.
func (m *Manager) Recover(ctx context.Context) error {
	pods, broken, err := m.cfg.Store.Load()
	if err != nil {
		return fmt.Errorf("load the records of pods: %w", err)
	}
	m.mu.Lock()
	for _, pod := range pods {
		m.pods[pod.ID] = pod
	}
	m.mu.Unlock()
	for _, pod := range pods {
		if pod.BootID != m.cfg.BootID {
			m.afterReboot(pod)
		}
	}

	errs := []error{m.restoreNetworks(ctx)}
	for _, id := range broken {
		errs = append(errs, m.discard(id))
	}
	m.resume(ctx)
	errs = append(errs, m.sweep(ctx))
	if err := errors.Join(errs...); err != nil {
		m.cfg.Log.Warn("recovery left something behind", "error", err)
	}
	return nil
}

// afterReboot marks a pod of another boot. The kernel keeps nothing of it, so its
// addresses and ports are free at once; but engines and network plugins may keep
// on disk what they know of it, so the teardown still has to be done.
func (m *Manager) afterReboot(pod *Pod) {
	gone := *pod
	gone.InitPID = 0
	if gone.State != Creating {
		gone.State, gone.Stopping = NotReady, true
	}
	if err := m.put(&gone); err != nil {
		m.cfg.Log.Warn("a pod of an earlier boot stays recorded as it was", "pod", pod.Spec.Key, "id", pod.ID, "error", err)
	}
}

// holders returns the pods that hold addresses, the newest first. Two records can
// name one address, if the disk was full when the older pod gave it back: it
// belongs to the pod that got it later.
func (m *Manager) holders() []*Pod {
	pods := slices.DeleteFunc(m.snapshot(), func(p *Pod) bool { return p.Released || p.BootID != m.cfg.BootID })
	slices.SortFunc(pods, func(a, b *Pod) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return pods
}

// restoreNetworks tells every driver what the records of this boot hold.
func (m *Manager) restoreNetworks(ctx context.Context) error {
	held := map[string][]network.Held{}
	for _, pod := range m.holders() {
		for driver, as := range byDriver(pod.Attachments) {
			what := network.Held{Pod: pod.network(), Attachments: as}
			if pod.State != Ready {
				what.Pod.Ports = nil
			}
			held[driver] = append(held[driver], what)
		}
	}
	var errs []error
	for name, driver := range m.cfg.Networks {
		if err := driver.Restore(ctx, held[name]); err != nil {
			errs = append(errs, fmt.Errorf("restore network driver %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// resume brings each pod to where its record says it belongs.
func (m *Manager) resume(ctx context.Context) {
	each(m.snapshot(), func(pod *Pod) { m.resumePod(ctx, pod) })
}

// each runs f for every item, a few at once, and waits for all.
func each[T any](items []T, f func(T)) {
	limit := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for _, item := range items {
		limit <- struct{}{}
		wg.Go(func() {
			f(item)
			<-limit
		})
	}
	wg.Wait()
}

func (m *Manager) resumePod(ctx context.Context, pod *Pod) {
	log := m.cfg.Log.With("pod", pod.Spec.Key, "id", pod.ID)
	switch {
	case pod.State == Creating:
		log.Info("a pod that was being made is unwound")
		if err := m.undo(pod, nil); err != nil {
			log.Warn("the unwinding is owed", "error", err)
		}
	case pod.State == Ready && !m.alive(ctx, pod):
		m.bury(pod)
	case pod.State == Ready:
		d := &draft{m: m, record: *pod}
		if err := m.attach(ctx, d); err != nil {
			log.Warn("the network of a living pod could not be repaired", "error", err)
		}
		if err := d.change(func(*Pod) {}); err != nil {
			log.Warn("a living pod keeps its old record", "error", err)
		}
	case pod.Stopping && !pod.Released && pod.BootID != m.cfg.BootID:
		m.owe(pod, errReboot) // network plugins may hang until the node is up
	case pod.Stopping && !pod.Released:
		_ = m.stop(pod) // logged and owed there
	}
}

// discard tears down what can be found of a pod whose record cannot be read.
func (m *Manager) discard(id string) error {
	m.cfg.Log.Warn("the record of a pod cannot be read; the pod is removed", "id", id)
	key := Key{Name: "unreadable", Namespace: "crib", UID: id}
	pod := &Pod{ID: id, Spec: Spec{Key: key}, BootID: m.cfg.BootID, CreatedAt: m.createdAt(key), Init: true}
	pod.Pins = m.pins(id, Namespaces{})
	return m.undo(pod, nil)
}

// sweep removes what bears our mark and belongs to no record.
func (m *Manager) sweep(ctx context.Context) error {
	known, names := map[string]bool{}, map[string]bool{}
	for _, pod := range m.snapshot() {
		known[pod.ID], names[network.NetnsName(pod.ID)] = true, true
	}
	errs := []error{m.cfg.Pinner.Sweep(func(name string) bool { return names[name] })}

	ids, err := m.cfg.Engine.Inits(ctx)
	errs = append(errs, err)
	for _, id := range slices.DeleteFunc(ids, func(id string) bool { return known[id] }) {
		errs = append(errs, m.cfg.Engine.StopInit(ctx, id))
	}
	ids, err = m.cfg.Files.List()
	errs = append(errs, err)
	for _, id := range slices.DeleteFunc(ids, func(id string) bool { return known[id] }) {
		errs = append(errs, m.cfg.Pinner.Remove(m.pins(id, Namespaces{})), m.cfg.Files.Remove(ctx, id))
	}
	return errors.Join(errs...)
}
