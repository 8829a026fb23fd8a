package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crib-runtime/crib/network/ops"
)

// stepTime bounds each step of a teardown, so that one which hangs does not use
// up the time of the others.
const stepTime = 30 * time.Second

// Stop ends the pod's processes and releases all that it has; the record stays,
// NotReady. An unknown id is fine, and so is a second call. What cannot be
// released now is owed and no error; processes that do not die are one.
func (m *Manager) Stop(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "StopPodSandbox", id)
	defer func() { op.End(err) }()
	pod, unlock, err := m.claim(ctx, op, id)
	if err != nil || pod == nil {
		return err
	}
	defer unlock()
	return m.stop(pod)
}

// Remove is Stop, and then deletes the record. It is an error while anything is
// still owed: the record is what remembers the debt.
func (m *Manager) Remove(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "RemovePodSandbox", id)
	defer func() { op.End(err) }()
	pod, unlock, err := m.claim(ctx, op, id)
	if err != nil || pod == nil {
		return err
	}
	defer unlock()
	if err := m.stop(pod); err != nil {
		return err
	}
	if debt := m.debt(id); debt != nil && !m.get(id).Released {
		return fmt.Errorf("remove pod %s: its teardown is not finished, it is tried again by itself: %w", pod.Spec.Key, debt.Err)
	}
	// What is owed now, if anything, is only to write the record. On a full disk
	// that cannot be done until records are deleted.
	if err := m.erase(pod); err != nil {
		return err
	}
	m.cfg.Log.Info("a pod is removed", "event", "PodRemoved", "pod", pod.Spec.Key, "id", id)
	return nil
}

// beginKnown notes an operation on a pod that has a record, nil for one without.
func (m *Manager) beginKnown(ctx context.Context, verb, id string) *ops.Op {
	pod := m.get(id)
	if pod == nil {
		return nil
	}
	return m.begin(ctx, verb, pod.Spec.Key, id)
}

// claim takes the lock of a pod for an operation and returns its record of that
// moment, nil for a pod that does not exist (any more).
func (m *Manager) claim(ctx context.Context, op *ops.Op, id string) (*Pod, func(), error) {
	pod := m.get(id)
	if pod == nil {
		return nil, nil, nil
	}
	unlock, err := m.lock(ctx, op, pod.Spec.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the call that works on pod %s: %w", pod.Spec.Key, err)
	}
	if pod = m.get(id); pod == nil {
		unlock()
		return nil, nil, nil
	}
	return pod, unlock, nil
}

// stop tears a pod down, with the intent on record first: after a crash the
// teardown is resumed.
func (m *Manager) stop(pod *Pod) error {
	if pod.Released {
		m.recordReleased(pod)
		return nil
	}
	stopping := *pod
	stopping.State, stopping.Stopping = NotReady, true
	if err := m.put(&stopping); err != nil {
		m.cfg.Log.Warn("the teardown of a pod goes on without a record of it", "pod", pod.Spec.Key, "id", pod.ID, "error", err)
	}
	stuck, owed := m.teardown(&stopping)
	if err := m.settle(&stopping, errors.Join(stuck, owed)); err != nil {
		m.cfg.Log.Warn("the teardown of a pod is owed", "event", "PodOwed", "pod", pod.Spec.Key, "id", pod.ID, "error", err)
	} else {
		m.cfg.Log.Info("a pod is stopped", "event", "PodStopped", "pod", pod.Spec.Key, "id", pod.ID)
	}
	return stuck
}

// recordReleased writes the record of a pod that is torn down, if that is owed.
func (m *Manager) recordReleased(pod *Pod) {
	if m.debt(pod.ID) != nil {
		_ = m.settle(pod, nil) // it stays owed, and visible in Debts
	}
}

// undo tears down a pod whose making failed with cause and returns the error to
// tell. If nothing is left of the pod, nothing is remembered of it.
func (m *Manager) undo(pod *Pod, cause error) error {
	failed := *pod
	failed.State, failed.Stopping = NotReady, true
	m.mu.Lock()
	m.pods[pod.ID] = &failed
	m.mu.Unlock()
	stuck, owed := m.teardown(&failed)
	left := errors.Join(stuck, owed)
	if left == nil {
		left = m.erase(&failed)
	}
	if left == nil {
		return cause
	}
	return errors.Join(cause, m.settle(&failed, left))
}

// erase removes what the pod's containers leave and then the pod's record: it is
// how they are found.
func (m *Manager) erase(pod *Pod) error {
	if err := m.ofContainers("remove containers", pod, m.cfg.RemoveContainers); err != nil {
		return err
	}
	return m.forget(pod)
}

// settle records how a teardown ended, and what it owes if it failed.
func (m *Manager) settle(pod *Pod, left error) error {
	settled := *pod
	if left == nil {
		settled.Released, settled.InitPID = true, 0
	}
	left = errors.Join(left, m.put(&settled))
	m.owe(&settled, left)
	return left
}

// teardown undoes all that a record names, in the order in which one thing can
// hold another: processes, networks, namespaces, files. It tries every step under
// a context of its own. The first error is of processes that live on.
func (m *Manager) teardown(pod *Pod) (stuck, owed error) {
	stuck = m.ofContainers("stop containers", pod, m.cfg.StopContainers)
	if pod.Init {
		stuck = errors.Join(stuck, m.step("stop init", pod, m.cfg.Engine.StopInit))
	}
	network := m.step("detach network", pod, func(ctx context.Context, _ string) error { return m.detach(ctx, pod) })
	pins := m.step("unpin namespaces", pod, func(context.Context, string) error { return m.cfg.Pinner.Remove(pod.Pins) })
	files := m.step("remove files", pod, m.cfg.Files.Remove)
	return stuck, errors.Join(network, pins, files)
}

// step is a stage of a teardown, under a context of its own.
func (m *Manager) step(doing string, pod *Pod, do func(context.Context, string) error) error {
	defer m.stage(pod, doing)()
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	return wrap(doing, pod, do(ctx, pod.ID))
}

// ofContainers is step for what the life of containers does, if there is one.
func (m *Manager) ofContainers(doing string, pod *Pod, do func(context.Context, string) error) error {
	if do == nil {
		return nil
	}
	return m.step(doing, pod, do)
}

// detach runs every driver of the record side by side.
func (m *Manager) detach(ctx context.Context, pod *Pod) error {
	var drivers []func() error
	for driver, as := range byDriver(pod.Attachments) {
		network := m.cfg.Networks[driver]
		if network == nil {
			drivers = append(drivers, func() error { return fmt.Errorf("there is no network driver %q", driver) })
			continue
		}
		drivers = append(drivers, func() error { return network.Detach(ctx, pod.network(), as) })
	}
	return parallel(drivers...)
}
