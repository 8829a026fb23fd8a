package cni

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"

	"github.com/crib-runtime/crib/network"
)

const (
	// settle is how long a change of the directory is left to become complete.
	settle = 200 * time.Millisecond
	// again is between looks at the directory that no event asked for, and
	// between STATUS calls.
	again = 10 * time.Second
)

// Serve follows the directory of conflists and asks the plugins for their STATUS
// until ctx ends. It returns nil when its goroutines have ended.
func (n *Networks) Serve(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { n.follow(ctx) })
	running.Go(func() { n.poll(ctx) })
	running.Wait()
	return nil
}

// Status returns the verdict that Serve last came to, without any waiting.
func (n *Networks) Status() network.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	const reason = "NetworkPluginNotReady"
	switch {
	case len(n.lists) == 0:
		return network.Status{Reason: reason, Message: n.none(n.loadErr)}
	case n.pollErr != nil:
		return network.Status{Reason: reason, Message: n.pollErr.Error()}
	case n.loadErr != nil:
		return network.Status{Ready: true, Message: fmt.Sprintf("CNI networks as last loaded are in use: %v", n.loadErr)}
	}
	return network.Status{Ready: true}
}

// follow loads the directory after each change and every so often without one.
func (n *Networks) follow(ctx context.Context) {
	w := newWatch(n.cfg.ConfDir, n.cfg.Log)
	defer w.close()
	regular := time.NewTicker(again)
	defer regular.Stop()
	pending := time.NewTimer(0) // what changed before the watch was there
	defer pending.Stop()
	waiting := true
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events():
			// Not restarted by further events, else a busy directory would never be read.
			if w.concerns(e) && !waiting {
				pending.Reset(settle)
				waiting = true
			}
			continue
		case <-w.missed():
		case <-regular.C:
		case <-pending.C:
			waiting = false
		}
		// Armed first, so that nothing changes unseen between the two.
		w.arm()
		n.scan()
	}
}

// poll asks for the state of the networks when they change and every so often.
func (n *Networks) poll(ctx context.Context) {
	regular := time.NewTicker(again)
	defer regular.Stop()
	for {
		swapped := n.pollOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-regular.C:
		case <-swapped:
		}
	}
}

// pollOnce polls the networks in use, and returns what is closed when those change.
func (n *Networks) pollOnce(ctx context.Context) <-chan struct{} {
	n.mu.Lock()
	lists, swapped := n.lists, n.swapped
	n.mu.Unlock()
	if err := n.ask(ctx, lists); ctx.Err() == nil {
		n.judge(swapped, err)
	}
	return swapped
}

// judge keeps the outcome of a poll, unless the networks have been swapped since.
// A change of verdict is logged.
func (n *Networks) judge(swapped chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.swapped != swapped {
		return
	}
	switch {
	case err != nil && (n.pollErr == nil || n.pollErr.Error() != err.Error()):
		n.cfg.Log.Warn("CNI networks not ready", "error", err)
	case err == nil && n.pollErr != nil:
		n.cfg.Log.Info("CNI networks ready again")
	}
	n.pollErr = err
}

// ask looks for the plugins' binaries, and runs STATUS where a network's version
// has it (libcni leaves it out before 1.1.0).
func (n *Networks) ask(ctx context.Context, lists []conflist) error {
	errs := make([]error, len(lists))
	var running sync.WaitGroup
	for i, l := range lists {
		running.Go(func() { errs[i] = n.askOne(ctx, l) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (n *Networks) askOne(ctx context.Context, l conflist) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	finder := runner{log: n.cfg.Log}
	for _, plugin := range l.plugins {
		if _, err := finder.FindInPath(plugin, n.cfg.BinDirs); err != nil {
			return fmt.Errorf("network %s: %w", l.name, err)
		}
	}
	list, err := libcni.NetworkConfFromBytes(l.raw)
	if err != nil {
		return fmt.Errorf("network %s: %w: %w", l.name, err, errdefs.ErrInvalidArgument)
	}
	if err := n.cni.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("network %s: plugin reports that it is not ready: %w", l.name, err)
	}
	return nil
}
