package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"

	"github.com/crib-runtime/crib/network/netns"
)

// stopTimeout bounds a cleanup, which does not depend on its caller's context.
const stopTimeout = 30 * time.Second

// Init is process 1 of a pod whose containers share a PID namespace.
type Init struct {
	PodID       string
	Netns       string // path of the pinned namespace; "" stands for the host's
	IPC         string // the same
	UTS         string // the same
	User        string // the same; Users are its
	Users       netns.Users
	Hostname    string // set in UTS; ignored in the host's
	CgroupsPath string // in the form that the cgroup driver wants
	OOMScoreAdj int    // not below ours where that is not allowed
	Labels      map[string]string
	Annotations map[string]string
}

// StartInit makes the init of a pod run and returns its pid in our PID
// namespace, which is a moment before the process executes crib-init: its
// namespaces are final, its name is not. One that runs already is left as it is; what is left of one that
// does not is removed first. On an error nothing is left, unless that could not
// be removed either, which the error then says too; it has class
// errdefs.ErrFailedPrecondition without Config.Init.
func (e *Engine) StartInit(ctx context.Context, in Init) (pid uint32, err error) {
	if e.root == "" {
		return 0, fmt.Errorf("starting the init of pod %s: engine.init is not set: %w", in.PodID, errdefs.ErrFailedPrecondition)
	}
	unlock, err := e.pods.Lock(ctx, in.PodID)
	if err != nil {
		return 0, fmt.Errorf("waiting for pod %s: %w", in.PodID, err)
	}
	defer unlock()
	if pid, err = e.runningPid(ctx, in.PodID); err != nil || pid != 0 {
		return pid, err
	}
	if err := e.remove(ctx, in.PodID); err != nil {
		return 0, err
	}
	if pid, err = e.startInit(ctx, in); err != nil {
		err = fmt.Errorf("starting the init of pod %s: %w", in.PodID, err)
		return 0, errors.Join(err, e.remove(ctx, in.PodID))
	}
	return pid, nil
}

// startInit records the container and starts its task.
func (e *Engine) startInit(ctx context.Context, in Init) (uint32, error) {
	var err error
	if in.OOMScoreAdj, err = e.grantedOOMScore(in.OOMScoreAdj); err != nil {
		return 0, err
	}
	c := containers.Container{ID: in.PodID, SandboxID: e.sandboxID(in.PodID), Labels: initLabels(in)}
	if c.Spec, err = typeurl.MarshalAny(initSpec(in, e.info.OCIVersion)); err != nil {
		return 0, fmt.Errorf("encoding the spec: %w", err)
	}
	if c.Runtime, err = e.runtime(); err != nil {
		return 0, err
	}
	if _, err = e.client.ContainerService().Create(ctx, c); err != nil {
		return 0, fmt.Errorf("recording container %s: %w", c.ID, err)
	}
	return e.runTask(ctx, c.ID, &tasks.CreateTaskRequest{
		ContainerID: c.ID,
		Rootfs:      []*types.Mount{{Type: "bind", Source: e.root, Options: []string{"rbind", "ro"}}},
	})
}

// StopInit kills the init of a pod, and by that everything in its PID
// namespace, and leaves nothing of it: no process, shim, mount, cgroup or
// record. It is idempotent, a pod without init is fine, and it goes on when
// ctx ends.
func (e *Engine) StopInit(ctx context.Context, podID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	unlock, err := e.pods.Lock(ctx, podID)
	if err != nil {
		return fmt.Errorf("waiting for pod %s: %w", podID, err)
	}
	defer unlock()
	return e.remove(ctx, podID)
}

// remove deletes the task and the container of id; the pod's lock is held.
func (e *Engine) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	c, err := e.client.ContainerService().Get(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("looking for container %s: %w", id, err)
	}
	// The task first: containerd deletes none whose container has no record.
	if err := errors.Join(e.deleteTask(ctx, id), e.freeCgroup(ctx, id, c.Spec)); err != nil {
		return err
	}
	if err := e.client.ContainerService().Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting container %s: %w", id, err)
	}
	if e.server == nil {
		return nil
	}
	return e.server.endShim(ctx, id)
}

// InitRunning says whether the init of a pod runs.
func (e *Engine) InitRunning(ctx context.Context, podID string) (bool, error) {
	pid, err := e.runningPid(ctx, podID)
	return pid != 0, err
}

// Inits returns the ids of the pods that have something in the engine, running
// or not, sorted. What others keep in the same namespace is not among them.
func (e *Engine) Inits(ctx context.Context) ([]string, error) {
	all, err := e.client.ContainerService().List(ctx, fmt.Sprintf("labels.%q", labelPod))
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	ids := make([]string, 0, len(all))
	for _, c := range all {
		ids = append(ids, c.Labels[labelPod])
	}
	shims, err := os.ReadDir(filepath.Join(e.cfg.State, shimsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing shims: %w", err)
	}
	for _, d := range shims {
		ids = append(ids, d.Name())
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
