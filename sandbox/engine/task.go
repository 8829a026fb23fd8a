package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
)

// deleteAttempts is how often a task is deleted whose shim does not answer: the
// first attempt makes containerd notice and clean up, the second finds nothing.
const deleteAttempts = 3

// shimPath is how the engine is told where the shim is. An external containerd
// remembers it for times when we are not there, so it gets the lasting one.
func (e *Engine) shimPath() string {
	if e.server != nil {
		return e.server.link()
	}
	return e.cfg.Shim
}

// runtime is what a container's record says about its runtime.
func (e *Engine) runtime() (containers.RuntimeInfo, error) {
	opts, err := typeurl.MarshalAny(&options.Options{
		BinaryName:    e.info.OCIRuntime,
		Root:          filepath.Join(e.cfg.State, "oci"), // not the one that every engine of the machine shares
		SystemdCgroup: e.cfg.SystemdCgroup,
	})
	if err != nil {
		return containers.RuntimeInfo{}, fmt.Errorf("encoding options of the runtime: %w", err)
	}
	return containers.RuntimeInfo{Name: runtimeName, Options: opts}, nil
}

// runTask creates and starts the task of a pod's container and returns its pid. On
// an error the caller deletes the task: it may exist. The pod's lock is held.
func (e *Engine) runTask(ctx context.Context, podID string, r *tasks.CreateTaskRequest) (uint32, error) {
	svc, id := e.client.TaskService(), r.ContainerID
	r.RuntimePath = e.shimPath()
	if err := e.joinShim(ctx, podID, r); err != nil {
		return 0, err
	}
	if _, err := svc.Create(ctx, r); err != nil {
		return 0, fmt.Errorf("creating task %s: %w", id, errgrpc.ToNative(err))
	}
	res, err := svc.Start(ctx, &tasks.StartRequest{ContainerID: id})
	if err != nil {
		return 0, fmt.Errorf("starting task %s: %w", id, errgrpc.ToNative(err))
	}
	return res.Pid, nil
}

// runningPid returns the pid of the task of container id, 0 if it does not run.
func (e *Engine) runningPid(ctx context.Context, id string) (uint32, error) {
	res, err := e.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err != nil {
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("asking for the state of task %s: %w", id, err)
	}
	if res.Process.Status != task.Status_RUNNING || ended(int(res.Process.Pid)) {
		return 0, nil
	}
	return res.Process.Pid, nil
}

// ended says whether a process has, which its shim learns a little later. It
// says no where the kernel does not tell.
func ended(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// deleteTask kills the task of container id, waits for its end and deletes it
// with all that the shim and the OCI runtime have of it. It is idempotent.
func (e *Engine) deleteTask(ctx context.Context, id string) error {
	svc := e.client.TaskService()
	e.killTask(ctx, id)
	var errs []error
	for range deleteAttempts {
		_, err := svc.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
		if err = errgrpc.ToNative(err); err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("deleting task %s: %w", id, errors.Join(errs...))
}

// Release ends the shim of a pod, unless it has a container still. It is idempotent.
// The shims of an external containerd end with their last container.
func (e *Engine) Release(ctx context.Context, podID string) error {
	if e.server == nil {
		return nil
	}
	if _, err := os.Stat(shimDir(e.cfg.State, podID)); errors.Is(err, fs.ErrNotExist) {
		return nil // so that pods without containers need not wait
	}
	unlock, err := e.pods.Lock(ctx, podID)
	if err != nil {
		return fmt.Errorf("waiting for pod %s: %w", podID, err)
	}
	defer unlock()
	return e.server.endShim(ctx, podID)
}

// joinShim makes the task of a pod's container one of the pod's shim. An external
// containerd finds the shim by the spec's annotation.
func (e *Engine) joinShim(ctx context.Context, podID string, r *tasks.CreateTaskRequest) error {
	if e.server == nil {
		return nil
	}
	address, err := e.server.shimOf(ctx, podID)
	if err != nil {
		return err
	}
	r.TaskApiAddress, r.TaskApiVersion = "ttrpc+"+address, shimVersion
	return nil
}

// killTask kills the first process of a task and waits for its end. Whether that
// worked shows when the task is deleted. Of a task that has ended no more is asked
// than its state: for a signal the shim would run the OCI runtime all the same.
func (e *Engine) killTask(ctx context.Context, id string) {
	svc := e.client.TaskService()
	res, err := svc.Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err == nil && res.Process.Status == task.Status_STOPPED {
		return
	}
	_, err = svc.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL)})
	if err == nil || errdefs.IsNotFound(errgrpc.ToNative(err)) {
		// Deleting is refused before the end has been noticed, even if there is no
		// process left to kill. What Wait answers does not matter: without a task
		// it returns at once, and a shim that dies here is Delete's business.
		_, _ = svc.Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	}
}
