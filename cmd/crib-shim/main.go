package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"golang.org/x/sys/unix"
)

// runtimeName is what clients find in a container's record. cAdvisor and
// nerdctl know this one, so ours is not another.
const runtimeName = "io.containerd.runc.v2"

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newService,
	})
	shim.RunShim(context.Background(), cleaner{manager.NewShimManager(runtimeName)})
}

// deletedFile is left in the bundle of a container that was deleted in good order.
const deletedFile = "crib-deleted"

// cleaner is containerd's manager, which is asked to clean up after each container,
// also after one that has nothing left: that is two programs for nothing.
type cleaner struct{ shim.Shim }

// Stop cleans up after a dead shim. The bundle is the working directory.
func (c cleaner) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	if _, err := os.Stat(deletedFile); err == nil {
		return shim.StopStatus{ExitedAt: time.Now()}, nil
	}
	return c.Shim.Stop(ctx, id)
}

// listener is the descriptor at which a shim finds its listening socket when it starts.
const listener = 3

// socketRemoval removes the socket of a shim that containerd has started. containerd's
// own way needs the bundle, which the engine deletes at the same time.
func socketRemoval() (func(context.Context) error, error) {
	address, err := unix.Getsockname(listener)
	if err != nil {
		return nil, fmt.Errorf("asking for the name of our socket: %w", err)
	}
	named, ok := address.(*unix.SockaddrUnix)
	if !ok {
		return nil, fmt.Errorf("asking for the name of our socket: it is %T: %w", address, errdefs.ErrInvalidArgument)
	}
	return func(context.Context) error {
		if err := os.Remove(named.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}

// newService makes the task service of this process.
func newService(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	down, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	tasks, err := task.NewTaskService(ic.Context, publisher.(shim.Publisher), down.(shutdown.Service))
	if err != nil {
		return nil, err
	}
	if os.Getenv(envPath) == "" {
		remove, err := socketRemoval()
		if err != nil {
			return nil, err
		}
		down.(shutdown.Service).RegisterCallback(remove)
	}
	return &service{
		TTRPCTaskService: tasks, path: os.Getenv(envPath),
		held: map[string]bool{}, attended: map[string]*attended{},
	}, nil
}
