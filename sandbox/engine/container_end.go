package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/logpump"
)

// Wait returns when the task of a container has ended and its output is in the
// log, also if it ended before the call or while the engine was closed.
// errdefs.ErrNotFound if there was none, or nobody is left who knows how it ended.
func (e *Engine) Wait(ctx context.Context, id string) (container.Ended, error) {
	_, err := e.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	if err != nil && ctx.Err() != nil {
		return container.Ended{}, fmt.Errorf("waiting for container %s: %w", id, ctx.Err())
	}
	// The shim has written the end before it answers. After an error, as when the
	// shim is dead or the task was deleted while nobody was there, it may have too.
	ended, fileErr := readEnded(e.containerDir(id))
	if fileErr == nil {
		return ended, nil
	}
	err = errgrpc.ToNative(err)
	if err == nil {
		err = fileErr
	}
	if !errdefs.IsNotFound(err) {
		err = errors.Join(err, e.gone(ctx, id))
	}
	return container.Ended{}, fmt.Errorf("waiting for container %s: %w", id, err)
}

// gone returns errdefs.ErrNotFound if no task of the container is left.
func (e *Engine) gone(ctx context.Context, id string) error {
	if pid, err := e.runningPid(ctx, id); err != nil || pid != 0 {
		return err
	}
	return fmt.Errorf("its shim has ended: %w", errdefs.ErrNotFound)
}

// readEnded reads how a container ended from what the shim, or in it containerd's
// task service, has left.
func readEnded(dir string) (container.Ended, error) {
	ended, err := logpump.ReadEnded(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return container.Ended(ended), err
	}
	b, readErr := os.ReadFile(filepath.Join(dir, bundleLink, "exit.json"))
	if readErr != nil {
		return container.Ended{}, err
	}
	var exit struct {
		Timestamp time.Time
		Status    int
	}
	if err := json.Unmarshal(b, &exit); err != nil {
		return container.Ended{}, fmt.Errorf("reading the end in the bundle: %w", err)
	}
	// Better than nothing: the shim died between the two files.
	oom, err := logpump.OOMKilled(dir)
	return container.Ended{At: exit.Timestamp, Code: uint32(exit.Status), OOMKilled: oom}, err
}

// bundleLink is the shim's link in a container's directory to the bundle.
const bundleLink = "bundle"

// Harvest returns how containers ended, by their ids, as far as it is known: also
// while no engine was open. It is called before Open, since that deletes the tasks
// of those that ended meanwhile; those that run are not in the answer. One that
// neither runs after Open nor is in it was killed together with its shim.
func Harvest(ctx context.Context, cfg Config) (map[string]container.Ended, error) {
	dirs, err := os.ReadDir(filepath.Join(cfg.State, containersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("harvesting the ends of containers: %w", err)
	}
	found := make(map[string]container.Ended)
	var errs []error
	for _, d := range dirs {
		if ctx.Err() != nil {
			return found, fmt.Errorf("harvesting the ends of containers: %w", ctx.Err())
		}
		ended, err := readEnded(containerDir(cfg.State, d.Name()))
		switch {
		case err == nil:
			found[d.Name()] = ended
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}
