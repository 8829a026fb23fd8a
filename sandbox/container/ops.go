package container

import (
	"context"

	"github.com/crib-runtime/crib/network/ops"
)

// begin notes an operation on a container, whose id may not be known yet.
func (m *Manager) begin(ctx context.Context, verb string, key Key, id string) *ops.Op {
	s := ops.Subject{Pod: key.PodID, Container: key.Name, ID: id}
	if pod, err := m.cfg.Pods.Get(key.PodID); err == nil {
		s.Pod = pod.Spec.Key.String()
	}
	return m.cfg.Pods.Ops().Begin(ctx, verb, s)
}

// beginKnown notes an operation on a container that has a record, nil for one without.
func (m *Manager) beginKnown(ctx context.Context, verb, id string) *ops.Op {
	c := m.get(id)
	if c == nil {
		return nil
	}
	return m.begin(ctx, verb, c.Spec.Key, id)
}

// lock takes the lock of a container for an operation.
func (m *Manager) lock(ctx context.Context, op *ops.Op, key Key) (unlock func(), err error) {
	return op.Lock(ctx, key, func(ctx context.Context) (func(), error) { return m.keys.Lock(ctx, key) })
}

// stage notes a stage of the operation that holds the lock of a container, if any does.
func (m *Manager) stage(c *Container, name string) (done func()) {
	return m.cfg.Pods.Ops().Holder(c.Spec.Key).Stage(name)
}
