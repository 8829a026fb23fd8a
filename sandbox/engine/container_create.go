package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
	"github.com/crib-runtime/crib/sandbox/logpump"
)

// What a container's spec says to crib-shim; cmd/crib-shim has the same names.
const (
	annotationDir   = "io.crib.dir"
	annotationLog   = "io.crib.log-path"
	annotationStdin = "io.crib.stdin"
	stdinOpen       = "open" // values of annotationStdin
	stdinOnce       = "once"
)

const (
	kindContainer = "container"
	typeContainer = "container"
)

// Create records a container with the engine: nothing runs yet. It is idempotent;
// on an error nothing is left.
func (e *Engine) Create(ctx context.Context, l container.Launch) error {
	if err := e.create(ctx, l); err != nil {
		return fmt.Errorf("creating container %s: %w", l.ID, err)
	}
	return nil
}

func (e *Engine) create(ctx context.Context, l container.Launch) (err error) {
	c := containers.Container{
		ID: l.ID, SandboxID: e.sandboxID(l.PodID), Image: imageName(l), Labels: containerLabels(l),
		Snapshotter: e.images.snap.name, SnapshotKey: l.ID,
	}
	dir := e.containerDir(l.ID)
	spec := containerSpec(l, dir)
	if err := e.clampOOMScore(spec); err != nil {
		return err
	}
	if c.Spec, err = typeurl.MarshalAny(spec); err != nil {
		return fmt.Errorf("encoding the spec: %w", err)
	}
	if c.Runtime, err = e.runtime(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_, err = e.client.ContainerService().Create(ctx, c)
	if err == nil || errdefs.IsAlreadyExists(err) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// imageName is what other clients find as the image of a container: the name of an
// entry in the image store, where it was asked for by one.
func imageName(l container.Launch) string {
	if _, isID := image.ParseID(l.ImageName); isID || l.ImageName == "" {
		return l.ImageID
	}
	name, err := image.Normalize(l.ImageName)
	if err != nil {
		return l.ImageID
	}
	return name
}

// containerDir is what belongs to a container beside its bundle: see sandbox/logpump.
func (e *Engine) containerDir(id string) string { return containerDir(e.cfg.State, id) }

func containerDir(state, id string) string { return filepath.Join(state, containersDir, id) }

// containersDir has the directories of all containers.
const containersDir = "c"

// containerLabels are the labels of a container's record.
func containerLabels(l container.Launch) map[string]string {
	labels := maps.Clone(l.Labels)
	if labels == nil {
		labels = make(map[string]string, 2)
	}
	labels[labelKind] = kindContainer
	labels[labelPod] = l.PodID
	return labels
}

// containerSpec is the spec with what the shim has to know. The caller's is not changed.
func containerSpec(l container.Launch, dir string) *specs.Spec {
	s := *l.Spec
	s.Annotations = maps.Clone(s.Annotations)
	if s.Annotations == nil {
		s.Annotations = make(map[string]string, 5)
	}
	s.Annotations[annotationPod] = l.PodID
	s.Annotations[annotationType] = typeContainer
	s.Annotations[annotationDir] = dir
	s.Annotations[annotationLog] = l.LogPath
	if l.Stdin {
		s.Annotations[annotationStdin] = stdinOpen
	}
	if l.Stdin && l.StdinOnce {
		s.Annotations[annotationStdin] = stdinOnce
	}
	if s.Process != nil {
		p := *s.Process
		p.Terminal = l.TTY
		s.Process = &p
	}
	return &s
}

// Start makes the task of a container and starts its process. On an error no task
// is left, unless that could not be removed either, which the error then says too.
func (e *Engine) Start(ctx context.Context, id string) (pid uint32, err error) {
	c, err := e.client.ContainerService().Get(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("looking for container %s: %w", id, err)
	}
	unlock, err := e.pods.Lock(ctx, c.Labels[labelPod])
	if err != nil {
		return 0, fmt.Errorf("waiting for pod %s: %w", c.Labels[labelPod], err)
	}
	defer unlock()
	defer e.pods.grace.begin()()
	pid, err = e.startContainer(ctx, c)
	if err == nil {
		return pid, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return 0, errors.Join(err, e.deleteTask(ctx, id))
}

func (e *Engine) startContainer(ctx context.Context, c containers.Container) (uint32, error) {
	var spec specs.Spec
	if err := typeurl.UnmarshalTo(c.Spec, &spec); err != nil {
		return 0, fmt.Errorf("reading the spec of container %s: %w", c.ID, err)
	}
	if err := logpump.RemoveEnded(e.containerDir(c.ID)); err != nil {
		return 0, err
	}
	rootfs, err := e.images.rootMounts(ctx, c.ID)
	if err != nil {
		return 0, err
	}
	return e.runTask(ctx, c.Labels[labelPod], &tasks.CreateTaskRequest{
		ContainerID: c.ID, Rootfs: rootfs,
		Terminal: spec.Process != nil && spec.Process.Terminal,
	})
}

// Delete kills what still runs of a container and removes its task, its record
// and what the shim left, not its root. It is idempotent, and goes on when ctx ends.
func (e *Engine) Delete(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	c, err := e.client.ContainerService().Get(ctx, id)
	if errdefs.IsNotFound(err) {
		return e.removeDir(id)
	}
	if err != nil {
		return fmt.Errorf("looking for container %s: %w", id, err)
	}
	// Others of the pod need not wait for this one's end.
	e.killTask(ctx, id)
	pod := c.Labels[labelPod]
	unlock, err := e.pods.Lock(ctx, pod)
	if err != nil {
		return fmt.Errorf("waiting for pod %s: %w", pod, err)
	}
	defer unlock()
	if err := e.deleteTask(ctx, id); err != nil {
		return err
	}
	if err := e.freeCgroup(ctx, id, c.Spec); err != nil {
		return err
	}
	// The record last: with it, a second call knows the pod.
	if err := e.removeDir(id); err != nil {
		return err
	}
	if err := e.client.ContainerService().Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting container %s: %w", id, err)
	}
	return nil
}

func (e *Engine) removeDir(id string) error {
	if err := os.RemoveAll(e.containerDir(id)); err != nil {
		return fmt.Errorf("deleting container %s: %w", id, err)
	}
	return nil
}

// Kill signals the first process of a container, or with all set every one.
// errdefs.ErrNotFound when it has ended.
func (e *Engine) Kill(ctx context.Context, id string, signal syscall.Signal, all bool) error {
	// Asked to kill what has ended, the shim says that it did.
	_, err := readEnded(e.containerDir(id))
	if err == nil {
		return fmt.Errorf("sending %v to container %s: it has ended: %w", signal, id, errdefs.ErrNotFound)
	}
	_, err = e.client.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(signal), All: all})
	if err != nil {
		return fmt.Errorf("sending %v to container %s: %w", signal, id, errgrpc.ToNative(err))
	}
	return nil
}

// Containers returns the ids of all containers that the engine has something of,
// running or not, sorted. What others keep in the namespace, and the inits of
// pods, are not among them.
func (e *Engine) Containers(ctx context.Context) ([]string, error) {
	all, err := e.client.ContainerService().List(ctx, fmt.Sprintf("labels.%q,labels.%q==%s", labelPod, labelKind, kindContainer))
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	// A crash may have left a directory without a record.
	dirs, err := os.ReadDir(filepath.Join(e.cfg.State, containersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	ids := make([]string, 0, len(all))
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	for _, d := range dirs {
		ids = append(ids, d.Name())
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
