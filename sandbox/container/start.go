package container

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// startTime bounds the start of a container, whatever became of the caller. It
// is less than the two minutes after which the kubelet gives StartContainer up.
const startTime = 110 * time.Second

// startFailed is the exit code of a container whose process never ran.
const startFailed = 128

// Start starts the process of a created container. If that fails the container
// is Exited with code 128, reason StartError and the error's text. Another state
// than Created is errdefs.ErrFailedPrecondition, and so is a pod that is not Ready.
func (m *Manager) Start(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "StartContainer", id)
	defer func() { op.End(err) }()
	c, unlock, err := m.claimKnown(ctx, op, id)
	if err != nil {
		return err
	}
	defer unlock()
	if c.State != Created || c.Removing {
		return fmt.Errorf("container %s is %s, only one that is Created can be started: %w", label(c), c.State, errdefs.ErrFailedPrecondition)
	}
	if _, err := m.readyPod(c.Spec.PodID); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
	defer cancel()
	began := later(time.Now().UTC().Round(0), c.CreatedAt)
	if c, err = m.change(id, func(c *Container) { c.StartedAt = began }); err != nil {
		return err // nothing was tried: it stays Created
	}
	done := op.Stage("task")
	pid, err := m.cfg.Tasks.Start(ctx, id)
	done()
	if err == nil {
		c, err = m.change(id, func(c *Container) { c.State, c.PID = Running, pid })
	}
	if err != nil {
		m.bury(id, startError(err.Error()))
		return wrap("start", c, err)
	}
	m.follow(id)
	m.cfg.Log.Info("a container runs", "event", "ContainerStarted", "container", label(c), "pid", pid, "took", time.Since(began))
	return nil
}

// startError is the end of a container that was never up.
func startError(message string) Exit {
	return Exit{At: time.Now().UTC().Round(0), Code: startFailed, Reason: ReasonStartError, Message: message}
}
