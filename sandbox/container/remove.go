package container

import (
	"context"
	"errors"
)

// Remove kills the container if it runs, removes all that is of it, and then
// deletes its record. The log's file is the client's. An unknown id is fine. What
// cannot be removed now is an error, and owed: it is tried again by itself, and by
// the next call.
func (m *Manager) Remove(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "RemoveContainer", id)
	defer func() { op.End(err) }()
	c, unlock, err := m.claim(ctx, op, id)
	if err != nil || c == nil {
		return err
	}
	defer unlock()
	return m.remove(c)
}

// RemoveAll removes all containers of a pod side by side.
func (m *Manager) RemoveAll(ctx context.Context, podID string) error {
	var removals []func() error
	for _, c := range m.ofPod(podID) {
		removals = append(removals, func() error { return m.Remove(ctx, c.ID) })
	}
	return parallel(removals...)
}

// remove is the one undo: of a failed Create, for Remove, and in recovery. The
// intent is on record first: after a crash it is resumed. The key's lock is held.
func (m *Manager) remove(c *Container) error {
	if !c.Removing {
		if _, err := m.change(c.ID, func(c *Container) { c.Removing = true }); err != nil {
			m.cfg.Log.Warn("the removal of a container goes on without a record of it", "container", label(c), "error", err)
		}
	}
	done := m.stage(c, "kill")
	err := m.killFully(c, m.runOf(c.ID))
	done()
	if err == nil {
		err = m.teardown(c)
	}
	if err == nil {
		err = m.forget(c)
	}
	if err != nil {
		m.owe(c, err)
		return err
	}
	m.cfg.Log.Info("a container is removed", "event", "ContainerRemoved", "container", label(c))
	return nil
}

// teardown removes what a container has, in the order in which one thing can hold
// another. It tries every step.
func (m *Manager) teardown(c *Container) error {
	return errors.Join(
		m.step("delete the task", c, m.cfg.Tasks.Delete),
		m.step("remove the root", c, m.cfg.Roots.RemoveRoot),
		m.step("remove the volumes", c, m.cfg.RemoveVolumes),
	)
}
