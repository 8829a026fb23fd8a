package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// EnsureInit gives a pod an init if it has none, for a container that is to live in
// the pod's PID namespace: most pods that could have one never ask. The record says
// so before the init starts, so the teardown of the pod knows of it. It must not be
// called under a container's lock, which a pod's Stop takes under the pod's.
func (m *Manager) EnsureInit(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "start of an init", id)
	defer func() { op.End(err) }()
	pod, unlock, err := m.claimReady(ctx, op, id)
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case pod.InitPID != 0 && m.alive(ctx, pod):
		return nil
	case pod.InitPID != 0:
		return fmt.Errorf("the init of pod sandbox %q has ended, run the pod anew: %w", id, errdefs.ErrFailedPrecondition)
	case m.cfg.Process == "never":
		return fmt.Errorf("containers of pod %s that share a PID namespace need an init, and sandbox.process is \"never\": %w",
			pod.Spec.Key, errdefs.ErrFailedPrecondition)
	}
	with := *pod
	with.Init = true
	if err := m.put(&with); err != nil {
		return errors.Join(err, m.put(pod))
	}
	defer op.Stage("init")()
	started := with
	if started.InitPID, err = m.cfg.Engine.StartInit(context.WithoutCancel(ctx), &with); err != nil {
		return wrap("start init", pod, errors.Join(err, m.withoutInit(pod)))
	}
	return m.put(&started)
}

// withoutInit puts a pod's record back after its init did not start. While
// something of the init may be left, the record goes on to name it.
func (m *Manager) withoutInit(pod *Pod) error {
	if err := m.step("stop init", pod, m.cfg.Engine.StopInit); err != nil {
		return err
	}
	return m.put(pod)
}
