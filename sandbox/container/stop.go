package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

const (
	killTime   = 20 * time.Second // how long a process may take to die of SIGKILL
	clearTime  = 5 * time.Second  // how long a stop waits for the task of what has ended to go
	signalTime = 5 * time.Second  // how long the engine may take to send a signal

	firstPause = 100 * time.Millisecond // between two signals, then twice as much
)

// Stop ends the process of a container: its stop signal once, and SIGKILL to all
// of the container when the grace is over, or at once without one. It returns when
// the end is recorded and, unless that hangs, shim and cgroup are free. Several calls may wait at once, the shortest grace counts.
// An unknown id is fine, and so is a container that does not run. It is
// errdefs.ErrUnavailable if the process does not die; the text says where it hangs.
// If ctx ends within the grace the process has only been asked to end.
func (m *Manager) Stop(ctx context.Context, id string, grace time.Duration) (err error) {
	op := m.beginKnown(ctx, "StopContainer", id)
	defer func() { op.End(err) }()
	c, unlock, err := m.claim(ctx, op, id)
	if err != nil || c == nil {
		return err
	}
	r := m.runOf(id)
	unlock() // so that a call with a shorter grace gets through
	if r == nil {
		return nil
	}
	gone := false
	if grace > 0 {
		done := op.Stage("grace")
		gone, err = m.ask(ctx, c, r, grace)
		done()
		if err != nil {
			return err
		}
	}
	if !gone {
		done := op.Stage("kill")
		err = m.kill(c, r)
		done()
		if err != nil {
			return err
		}
	}
	defer op.Stage("clear")()
	select {
	case <-r.done:
	case <-time.After(clearTime): // it goes on, and is owed if it fails
	}
	return nil
}

// StopAll kills all containers of a pod side by side and returns when they are
// gone, those that were being made or started included, and what served them too.
func (m *Manager) StopAll(ctx context.Context, podID string) error {
	var stops []func() error
	for _, c := range m.ofPod(podID) {
		stops = append(stops, func() error { return m.stopNow(ctx, c.ID) })
	}
	if err := parallel(stops...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	if err := m.cfg.Release(ctx, podID); err != nil {
		return fmt.Errorf("release what served the containers of pod %.12s: %w", podID, err)
	}
	return nil
}

// stopNow is Stop without grace that also waits until the task is removed.
func (m *Manager) stopNow(ctx context.Context, id string) (err error) {
	op := m.beginKnown(ctx, "kill", id)
	defer func() { op.End(err) }()
	c, unlock, err := m.claim(ctx, op, id)
	if err != nil || c == nil {
		return err
	}
	r := m.runOf(id)
	unlock()
	return m.killFully(c, r)
}

// killFully is kill that also waits until the task is removed, or that is owed.
func (m *Manager) killFully(c *Container, r *run) error {
	if r == nil {
		return nil
	}
	if err := m.kill(c, r); err != nil {
		return err
	}
	<-r.done // its last step is bounded
	return nil
}

// ask sends the stop signal, unless that was done, and waits for the grace.
func (m *Manager) ask(ctx context.Context, c *Container, r *run, grace time.Duration) (gone bool, err error) {
	over := time.NewTimer(grace)
	defer over.Stop()
	for pause := firstPause; ; pause *= 2 {
		var again <-chan time.Time
		if !m.tell(c, r) {
			again = time.After(pause)
		}
		select {
		case <-r.ended:
			return true, nil
		case <-again:
		case <-over.C:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("container %s has not ended after %s, though it was asked to: %w", label(c), c.StopSignal, ctx.Err())
		case <-m.watch.life.Done():
			return false, errEnding(c)
		}
	}
}

// tell sends the stop signal if no call has. It is false if the engine refused.
func (m *Manager) tell(c *Container, r *run) bool {
	if r.told.Swap(true) {
		return true
	}
	err := m.signal(c, signalOf(c.StopSignal), false)
	if err != nil {
		r.told.Store(false)
		m.cfg.Log.Warn("a container could not be asked to end; it is tried again within its grace", "container", label(c), "error", err)
	}
	return err == nil
}

// kill kills until the process is gone. It is done more than once: a process can
// have been made between the list of processes and the last signal.
func (m *Manager) kill(c *Container, r *run) error {
	over := time.NewTimer(killTime)
	defer over.Stop()
	for pause := firstPause; ; pause *= 2 {
		err := m.signal(c, syscall.SIGKILL, true)
		select {
		case <-r.ended:
			return nil
		case <-time.After(pause):
		case <-over.C:
			return errors.Join(m.errAlive(c), err)
		case <-m.watch.life.Done():
			return errEnding(c)
		}
	}
}

// signal sends a signal; that the container has ended is no error.
func (m *Manager) signal(c *Container, signal syscall.Signal, all bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), signalTime)
	defer cancel()
	err := m.cfg.Tasks.Kill(ctx, c.ID, signal, all)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return wrap("signal the processes", c, err)
}

func (m *Manager) errAlive(c *Container) error {
	if now := m.get(c.ID); now != nil {
		c = now
	}
	return fmt.Errorf("container %s still runs %s after SIGKILL: process %d %s: %w",
		label(c), killTime, c.PID, processState("/proc", c.PID), errdefs.ErrUnavailable)
}

func errEnding(c *Container) error {
	return fmt.Errorf("crib ends before container %s does, call again: %w", label(c), errdefs.ErrUnavailable)
}

// processState tells in which state of the kernel a process is, and what it
// waits for.
func processState(proc string, pid uint32) string {
	dir := filepath.Join(proc, strconv.FormatUint(uint64(pid), 10))
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "cannot be looked at (" + err.Error() + ")"
	}
	// The name in parentheses may hold anything, also parentheses.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) == 0 {
		return "cannot be looked at (its stat is empty)"
	}
	state := stateName(fields[0])
	if wchan, err := os.ReadFile(filepath.Join(dir, "wchan")); err == nil && len(wchan) > 0 && string(wchan) != "0" {
		state += " in " + string(wchan)
	}
	return state
}

// stateName spells those states of proc(5) out in which SIGKILL does not help.
func stateName(letter string) string {
	switch letter {
	case "D":
		return "is in uninterruptible sleep (D)"
	case "Z":
		return "is a zombie (Z) that its parent does not reap"
	case "t":
		return "is stopped by a debugger (t)"
	}
	return "is in state " + letter
}
