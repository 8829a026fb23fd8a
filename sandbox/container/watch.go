package container

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
)

// unknownCode is the exit code of a container of which nobody knows how it ended.
const unknownCode = 255

// watch owns the goroutines that wait for the ends of containers.
type watch struct {
	life  context.Context // of the goroutines
	end   context.CancelFunc
	group sync.WaitGroup
}

// run is a container while it runs.
type run struct {
	told  atomic.Bool   // the stop signal was sent
	ended chan struct{} // closed when the end is recorded
	done  chan struct{} // closed when the goroutine is gone: also the task is, or that is owed
}

// runOf returns the run of a container, nil if it does not run.
func (m *Manager) runOf(id string) *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id]
}

// follow starts the goroutine that waits for the end of a running container,
// records it and removes the task, which frees its shim, cgroup and mounts.
func (m *Manager) follow(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watch.life.Err() != nil {
		return // the next start of the daemon follows it
	}
	r := &run{ended: make(chan struct{}), done: make(chan struct{})}
	m.runs[id] = r
	m.watch.group.Go(func() {
		defer close(r.done)
		if exit, ok := m.await(id); ok {
			m.finish(id, r, exit)
		}
	})
}

// await returns how a container ended, or false if the manager is closed before.
func (m *Manager) await(id string) (Exit, bool) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		ended, err := m.cfg.Tasks.Wait(m.watch.life, id)
		switch {
		case err == nil:
			return exitOf(ended), true
		case m.watch.life.Err() != nil:
			return Exit{}, false
		case errdefs.IsNotFound(err):
			return unknownExit("the engine has no task of it any more"), true
		}
		m.cfg.Log.Warn("the end of a container cannot be waited for; it is tried again", "id", id, "error", err)
		select {
		case <-m.watch.life.Done():
			return Exit{}, false
		case <-time.After(pause):
		}
	}
}

// finish records the end of a run and removes its task.
func (m *Manager) finish(id string, r *run, exit Exit) {
	c, err := m.exited(id, exit)
	close(r.ended)
	m.clear(c, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, id)
}

// bury records the end of a container that nobody follows, and removes what the
// engine has of it.
func (m *Manager) bury(id string, exit Exit) {
	if c, err := m.exited(id, exit); c != nil {
		m.clear(c, err)
	}
}

// clear removes the task of a container that ended, if its end is recorded: until
// then the engine, or the harvest, is who still knows the exit code after a crash.
func (m *Manager) clear(c *Container, unrecorded error) {
	if unrecorded != nil {
		m.owe(c, unrecorded)
		return
	}
	m.owe(c, m.step("delete the task", c, m.cfg.Tasks.Delete))
}

// exited changes the record to Exited.
func (m *Manager) exited(id string, exit Exit) (*Container, error) {
	c, err := m.change(id, func(c *Container) { c.end(exit) })
	if c != nil {
		m.cfg.Log.Info("a container ended", "event", "ContainerExited", "container", label(c), "code", exit.Code, "reason", exit.Reason)
	}
	return c, err
}

// tried tells whether a process of the container may have been started that has
// no recorded end.
func (c *Container) tried() bool {
	return c.State == Running || c.State == Created && !c.StartedAt.IsZero()
}

// end makes a new record that of an ended container. The clock may have been set
// back: no container ends before it started.
func (c *Container) end(exit Exit) {
	exit.At = later(later(exit.At, c.CreatedAt), c.StartedAt)
	c.State, c.PID, c.Exit = Exited, 0, exit
}

// exitOf returns the end of a task as the record has it.
func exitOf(ended Ended) Exit {
	exit := Exit{At: ended.At.UTC().Round(0), Code: int32(ended.Code)}
	if ended.At.IsZero() {
		exit.At = time.Now().UTC().Round(0)
	}
	switch {
	case ended.Code == 0:
		exit.Reason = ReasonCompleted
	case ended.OOMKilled:
		exit.Reason = ReasonOOMKilled
	default:
		exit.Reason = ReasonError
	}
	return exit
}

func unknownExit(message string) Exit {
	return Exit{At: time.Now().UTC().Round(0), Code: unknownCode, Reason: string(Unknown), Message: message}
}
