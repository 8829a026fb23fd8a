package sandbox

import (
	"context"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
)

// Network is a driver of networks; package network tells what its verbs mean.
type Network interface {
	Plan(pod network.Pod, first int) ([]network.Attachment, error)
	Attach(ctx context.Context, pod network.Pod, as []network.Attachment, save network.Save) ([]network.Attachment, error)
	Detach(ctx context.Context, pod network.Pod, as []network.Attachment) error
	Restore(ctx context.Context, held []network.Held) error
	Status() network.Status
}

// Pinner makes and unmakes the namespaces of pods; network/netns does it.
type Pinner interface {
	// Create makes and pins what spec names; on an error nothing stays.
	Create(ctx context.Context, spec netns.Spec) (netns.Pins, error)
	// Remove is idempotent.
	Remove(pins netns.Pins) error
	// Alive tells whether each pin still is the namespace that was recorded.
	Alive(pins netns.Pins) bool
	// Sweep removes the pins of ours for which keep, given the pin's name, is false.
	Sweep(keep func(name string) bool) error
}

// Files makes and unmakes a pod's files: hostname, hosts, resolv.conf, shm, and
// the directory that holds the pins.
type Files interface {
	// Dir returns the pod's directory; nothing need be there.
	Dir(id string) string
	Make(ctx context.Context, pod *Pod) error
	// Remove is idempotent and removes the whole directory, mounts first.
	Remove(ctx context.Context, id string) error
	// List returns the ids that have a directory.
	List() ([]string, error)
}

// Engine runs the processes of pods that need one.
type Engine interface {
	// StartInit is idempotent and returns the process's id on the host.
	StartInit(ctx context.Context, pod *Pod) (uint32, error)
	// StopInit is idempotent; an unknown id is fine.
	StopInit(ctx context.Context, id string) error
	InitRunning(ctx context.Context, id string) (bool, error)
	// Inits returns the ids of the pods of which something is in the engine.
	Inits(ctx context.Context) ([]string, error)
}

// Store keeps the records.
type Store interface {
	// Put replaces the record atomically.
	Put(pod *Pod) error
	// Delete is idempotent.
	Delete(id string) error
	// Load returns all records, and the ids of those that cannot be read.
	Load() (pods []*Pod, broken []string, err error)
}
