package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network/netns"
)

// pinsAtOnce bounds the threads that make, and those that remove, namespaces. A
// kernel that hangs keeps each of them, whatever becomes of its caller.
const pinsAtOnce = 32

// unpinWait is how long a removal waits for its turn.
const unpinWait = 20 * time.Second

// pinner is network/netns as package sandbox wants it.
type pinner struct {
	dir              string
	making, unmaking chan struct{} // hold a token for each call that is in the kernel
	create           func(context.Context, netns.Spec) (netns.Pins, error)
	remove           func(netns.Pins) error
}

func newPinner(dir string) pinner {
	return pinner{dir, make(chan struct{}, pinsAtOnce), make(chan struct{}, pinsAtOnce), netns.Create, netns.Remove}
}

// Create implements sandbox.Pinner.
func (p pinner) Create(ctx context.Context, spec netns.Spec) (netns.Pins, error) {
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
		return p.create(ctx, spec)
	case <-ctx.Done():
		return netns.Pins{}, fmt.Errorf("waiting until one of %d calls that make namespaces comes back from the kernel: %w", pinsAtOnce, ctx.Err())
	}
}

// Remove implements sandbox.Pinner.
func (p pinner) Remove(pins netns.Pins) error {
	over := time.NewTimer(unpinWait)
	defer over.Stop()
	select {
	case p.unmaking <- struct{}{}:
		defer func() { <-p.unmaking }()
		return p.remove(pins)
	case <-over.C:
		return fmt.Errorf("waiting until one of %d calls that remove namespaces comes back from the kernel: %w", pinsAtOnce, errdefs.ErrUnavailable)
	}
}

// Alive implements sandbox.Pinner. It mends pins that somebody unmounted, as long as a
// process is in the namespace.
func (pinner) Alive(pins netns.Pins) bool { return netns.Alive(pins) || netns.Heal(pins) == nil }

// Sweep implements sandbox.Pinner.
func (p pinner) Sweep(keep func(name string) bool) error {
	names, err := netns.List(p.dir)
	errs := []error{err}
	for _, name := range names {
		if !keep(name) {
			errs = append(errs, netns.Remove(netns.Pins{Net: netns.Pin{Path: filepath.Join(p.dir, name)}}))
		}
	}
	return errors.Join(errs...)
}
