package cri

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
)

// runtimeType is the name under which people know what runs our containers.
const runtimeType = "io.containerd.runc.v2"

func containerStateOf(c *container.Container) runtime.ContainerState {
	switch c.State {
	case container.Created:
		return runtime.ContainerState_CONTAINER_CREATED
	case container.Running:
		return runtime.ContainerState_CONTAINER_RUNNING
	case container.Exited:
		return runtime.ContainerState_CONTAINER_EXITED
	}
	return runtime.ContainerState_CONTAINER_UNKNOWN
}

func containerMetadataOf(c *container.Container) *runtime.ContainerMetadata {
	return &runtime.ContainerMetadata{Name: c.Spec.Name, Attempt: c.Spec.Attempt}
}

// imageSpecOf shows the image by the name that the user wrote, where there is one.
func imageSpecOf(c *container.Container) *runtime.ImageSpec {
	return &runtime.ImageSpec{
		Image:              cmp.Or(c.Spec.Image.UserImage, c.Spec.Image.Image, c.ImageID),
		UserSpecifiedImage: c.Spec.Image.UserImage,
	}
}

func containerItemOf(c *container.Container) *runtime.Container {
	return &runtime.Container{
		Id:           c.ID,
		PodSandboxId: c.Spec.PodID,
		Metadata:     containerMetadataOf(c),
		Image:        imageSpecOf(c),
		ImageRef:     cmp.Or(c.ImageRef, c.ImageID, c.Spec.Image.Image),
		ImageId:      cmp.Or(c.ImageID, c.Spec.Image.Image),
		State:        containerStateOf(c),
		CreatedAt:    nanos(c.CreatedAt),
		Labels:       c.Spec.Labels,
		Annotations:  c.Spec.Annotations,
	}
}

// containerStatusOf fills every field that the kubelet looks at, whatever the
// record lacks: an empty one makes it drop the whole pod's status.
func containerStatusOf(c *container.Container) *runtime.ContainerStatus {
	status := &runtime.ContainerStatus{
		Id:          c.ID,
		Metadata:    containerMetadataOf(c),
		State:       containerStateOf(c),
		CreatedAt:   nanos(c.CreatedAt),
		Image:       imageSpecOf(c),
		ImageRef:    cmp.Or(c.ImageRef, c.ImageID, c.Spec.Image.Image),
		ImageId:     cmp.Or(c.ImageID, c.Spec.Image.Image),
		Labels:      c.Spec.Labels,
		Annotations: c.Spec.Annotations,
		Mounts:      mountsOf(c.Spec.Mounts),
		LogPath:     c.Spec.LogPath,
		Resources:   &runtime.ContainerResources{Linux: resourcesOf(c.Spec.Resources)},
		User: &runtime.ContainerUser{Linux: &runtime.LinuxContainerUser{
			Uid: c.User.UID, Gid: c.User.GID, SupplementalGroups: c.User.Groups,
		}},
		StopSignal: signalOf(cmp.Or(c.StopSignal, c.Spec.StopSignal)),
	}
	if c.State == container.Created {
		return status
	}
	status.StartedAt = nanos(c.StartedAt)
	if c.State != container.Running {
		status.FinishedAt = cmp.Or(nanos(c.Exit.At), status.StartedAt, status.CreatedAt)
		status.ExitCode = c.Exit.Code
		status.Reason, status.Message = c.Exit.Reason, c.Exit.Message
	}
	return status
}

// nanos is a time as CRI has it, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func mountsOf(mounts []container.Mount) []*runtime.Mount {
	var list []*runtime.Mount
	for _, m := range mounts {
		mount := &runtime.Mount{
			ContainerPath:     m.ContainerPath,
			HostPath:          m.HostPath,
			Readonly:          m.ReadOnly,
			SelinuxRelabel:    m.SELinuxRelabel,
			RecursiveReadOnly: m.RecursiveReadOnly,
			ImageSubPath:      m.ImageSubPath,
			MountOptions:      m.Options,
		}
		for propagation, word := range propagations {
			if word == m.Propagation {
				mount.Propagation = propagation
			}
		}
		if !m.Users.IsZero() {
			mount.UidMappings, mount.GidMappings = idMapsOf(m.Users.UIDs), idMapsOf(m.Users.GIDs)
		}
		if m.Image != "" {
			mount.Image = &runtime.ImageSpec{Image: m.Image, ImageRef: m.ImageID}
		}
		list = append(list, mount)
	}
	return list
}

// containerInfoOf is what `crictl inspect` shows beside the status. The key names
// are those of containerd where the meaning is the same: scripts read them.
func containerInfoOf(c *container.Container, spec *specs.Spec) (map[string]string, error) {
	b, err := json.Marshal(map[string]any{
		"pid":         c.PID,
		"sandboxID":   c.Spec.PodID,
		"snapshotKey": c.ID,
		"runtimeType": runtimeType,
		"runtimeSpec": spec,
		"removing":    c.Removing,
		"config":      configOf(c),
	})
	return map[string]string{"info": string(b)}, err
}

// configOf is what was asked, as far as people look for it.
func configOf(c *container.Container) *runtime.ContainerConfig {
	config := &runtime.ContainerConfig{
		Metadata:    containerMetadataOf(c),
		Image:       &runtime.ImageSpec{Image: c.Spec.Image.Image, UserSpecifiedImage: c.Spec.Image.UserImage},
		Command:     c.Spec.Process.Command,
		Args:        c.Spec.Process.Args,
		WorkingDir:  c.Spec.Process.WorkDir,
		Mounts:      mountsOf(c.Spec.Mounts),
		Labels:      c.Spec.Labels,
		Annotations: c.Spec.Annotations,
		LogPath:     c.Spec.LogPath,
		Stdin:       c.Spec.Process.Stdin,
		StdinOnce:   c.Spec.Process.StdinOnce,
		Tty:         c.Spec.Process.TTY,
		Linux:       &runtime.LinuxContainerConfig{Resources: resourcesOf(c.Spec.Resources)},
	}
	for _, pair := range c.Spec.Process.Env {
		key, value, _ := strings.Cut(pair, "=")
		config.Envs = append(config.Envs, &runtime.KeyValue{Key: key, Value: []byte(value)})
	}
	return config
}
