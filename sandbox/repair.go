package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network/ops"
)

// Repair attaches the networks of a Ready pod again, which makes what is missing or
// wrong in the kernel, and leaves alone what is right. Other pods than Ready ones
// are errdefs.ErrFailedPrecondition, unknown ids errdefs.ErrNotFound.
func (m *Manager) Repair(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "repair", id)
	defer func() { op.End(err) }()
	pod, unlock, err := m.claimReady(ctx, op, id)
	if err != nil {
		return err
	}
	defer unlock()
	return m.reattach(context.WithoutCancel(ctx), pod)
}

// claimReady is claim for work on a Ready pod: another is errdefs.ErrFailedPrecondition,
// an unknown one errdefs.ErrNotFound.
func (m *Manager) claimReady(ctx context.Context, op *ops.Op, id string) (*Pod, func(), error) {
	pod, unlock, err := m.claim(ctx, op, id)
	if err != nil {
		return nil, nil, err
	}
	if pod == nil {
		return nil, nil, fmt.Errorf("pod sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	if pod.State != Ready {
		unlock()
		return nil, nil, fmt.Errorf("pod sandbox %q is %s: %w", id, pod.State, errdefs.ErrFailedPrecondition)
	}
	return pod, unlock, nil
}

// reattach makes the kernel match the record of a Ready pod again. Its lock is held.
func (m *Manager) reattach(ctx context.Context, pod *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	d := &draft{m: m, record: *pod}
	defer m.stage(pod, "network")()
	if err := m.attach(ctx, d); err != nil {
		return err
	}
	return d.change(func(*Pod) {})
}
