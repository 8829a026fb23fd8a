package container

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/image"
)

// Images finds the image of a container; sandbox/engine does it.
type Images interface {
	// Image returns an image by its id, a tag or a digest reference;
	// errdefs.ErrNotFound if the node does not have it.
	Image(ctx context.Context, ref string) (image.Image, error)
}

// Roots makes and removes the writable roots of containers; sandbox/engine does it.
type Roots interface {
	// PrepareRoot makes the root of a container from an image, unpacking the image
	// if need be, and calls use with the root mounted. Idempotent; on an error
	// nothing is left. The files belong to the users that a pod's user namespace has
	// for them.
	PrepareRoot(ctx context.Context, id, imageID string, users netns.Users, use func(root string) error) error
	// MountImage mounts the nth image that is a volume of a container, read-only, and
	// returns where. Idempotent.
	MountImage(ctx context.Context, id string, n int, imageID string, users netns.Users) (dir string, err error)
	// RemoveRoot removes the root and the images that are mounted. Idempotent.
	RemoveRoot(ctx context.Context, id string) error
}

// Tasks runs containers; sandbox/engine does it. Calls for containers of one pod
// exclude each other inside where the shim needs it.
type Tasks interface {
	// Create records a container with the engine. Idempotent.
	Create(ctx context.Context, c Launch) error
	// Start makes the container's task and starts its process; on an error no task
	// is left.
	Start(ctx context.Context, id string) (pid uint32, err error)
	// Kill signals the first process, or with all set every process of the
	// container. errdefs.ErrNotFound when it has ended.
	Kill(ctx context.Context, id string, signal syscall.Signal, all bool) error
	// Wait returns when the task has ended, also if that was before the call; the
	// task still exists then. errdefs.ErrNotFound if there is none.
	Wait(ctx context.Context, id string) (Ended, error)
	// Delete kills what still runs and removes task and record, not the root.
	// Idempotent.
	Delete(ctx context.Context, id string) error
}

// Inside reaches into running containers; sandbox/engine does it.
type Inside interface {
	// Exec runs a process and returns its exit code. The end of ctx kills all of
	// the process's tree and returns ctx's error.
	Exec(ctx context.Context, id string, process *specs.Process, streams Streams) (code int32, err error)
	// Attach connects streams to the container's first process until it ends, ctx
	// ends or the input ends.
	Attach(ctx context.Context, id string, streams Streams) error
	// ReopenLog makes the log's writer create the file anew; it exists on return.
	ReopenLog(ctx context.Context, id string) error
	// Update changes the limits of a running container.
	Update(ctx context.Context, id string, change Change) error
}

// Change is what of a running container's limits becomes different.
type Change struct {
	Limits      *specs.LinuxResources // unset fields stay as they are
	OOMScoreAdj int64                 // 0 leaves it
}

// Store keeps the records; sandbox/store does it.
type Store interface {
	PutContainer(c *Container) error
	// DeleteContainer is idempotent.
	DeleteContainer(podID, id string) error
	LoadContainers() (containers []*Container, broken []string, err error)
}

// Pods tells of the pods; sandbox.Manager does it.
type Pods interface {
	Get(id string) (*sandbox.Pod, error)
	// Ops returns the table in which the operations on containers are noted.
	Ops() *ops.Table
}

// Launch is what the engine needs to run a container.
type Launch struct {
	ID      string
	PodID   string
	ImageID string
	// ImageName is what the image was asked for by: other clients of the engine, and
	// the kubelet's metrics, show it instead of the id. It may be an id, or empty.
	ImageName string
	Labels    map[string]string
	Spec      *specs.Spec
	LogPath   string // "" writes no log
	Stdin     bool
	// StdinOnce closes the input when the first client's input has ended.
	StdinOnce bool
	TTY       bool
}

// Ended is how a task ended.
type Ended struct {
	At        time.Time
	Code      uint32 // 128 and the signal, if it was one
	OOMKilled bool   // something in the container was killed for want of memory
}

// Streams are the ends of a process's streams; nil is none.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	Resize         <-chan Size
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }
