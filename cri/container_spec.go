package cri

import (
	"fmt"
	"path/filepath"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// containerSpecFrom translates a request. It refuses what has no meaning, naming
// the field. Of the pod's configuration, which the kubelet makes anew for each
// call, only the directory of logs counts.
func containerSpecFrom(req *runtime.CreateContainerRequest, pod *sandbox.Pod) (container.Spec, error) {
	cfg := req.GetConfig()
	spec := container.Spec{
		Key:         container.Key{PodID: pod.ID, Name: cfg.GetMetadata().GetName(), Attempt: cfg.GetMetadata().GetAttempt()},
		Image:       container.ImageSpec{Image: cfg.GetImage().GetImage(), UserImage: cfg.GetImage().GetUserSpecifiedImage()},
		Labels:      cfg.GetLabels(),
		Annotations: cfg.GetAnnotations(),
	}
	switch {
	case cfg == nil:
		return spec, invalid("config is missing")
	case spec.Name == "":
		return spec, invalid("config.metadata.name is empty")
	case spec.Image.Image == "":
		return spec, invalid("config.image.image is empty")
	}
	for _, part := range []func(*container.Spec, *runtime.ContainerConfig) error{addProcess, addMounts, addDevices, addStopSignal} {
		if err := part(&spec, cfg); err != nil {
			return spec, err
		}
	}
	var err error
	if spec.LogPath, err = logPathFrom(req, pod); err != nil {
		return spec, err
	}
	if spec.Resources, err = resourcesFrom("config.linux.resources", cfg.GetLinux().GetResources()); err != nil {
		return spec, err
	}
	spec.Security, err = securityFrom(cfg.GetLinux().GetSecurityContext(), pod)
	return spec, err
}

// logPathFrom returns where the container's log is. Without a directory there is
// none, as for pods that people make for crictl.
func logPathFrom(req *runtime.CreateContainerRequest, pod *sandbox.Pod) (string, error) {
	name, dir := req.GetConfig().GetLogPath(), req.GetSandboxConfig().GetLogDirectory()
	if dir == "" {
		dir = pod.Spec.LogDirectory
	}
	if name == "" || dir == "" {
		return "", nil
	}
	if !filepath.IsAbs(dir) {
		return "", invalid("sandbox_config.log_directory: %q is not an absolute path", dir)
	}
	if !filepath.IsLocal(strings.TrimLeft(name, "/")) {
		return "", invalid("config.log_path: %q is not below the log directory", name)
	}
	return filepath.Join(dir, name), nil
}

func addProcess(spec *container.Spec, cfg *runtime.ContainerConfig) error {
	env, err := envFrom(cfg.GetEnvs())
	spec.Process = container.Process{
		Command:   cfg.GetCommand(),
		Args:      cfg.GetArgs(),
		WorkDir:   cfg.GetWorkingDir(),
		Env:       env,
		Stdin:     cfg.GetStdin(),
		StdinOnce: cfg.GetStdinOnce(),
		TTY:       cfg.GetTty(),
	}
	return err
}

func envFrom(pairs []*runtime.KeyValue) ([]string, error) {
	var env []string
	for i, pair := range pairs {
		if key := pair.GetKey(); key == "" || strings.ContainsAny(key, "=\x00") {
			return nil, invalid("config.envs[%d].key: %q is not the name of a variable", i, key)
		}
		value := string(pair.GetValue())
		if strings.ContainsRune(value, 0) {
			return nil, invalid("config.envs[%d].value: the value of %s has a zero byte", i, pair.GetKey())
		}
		env = append(env, pair.GetKey()+"="+value)
	}
	return env, nil
}

// propagations are the words that runtimes have for CRI's.
var propagations = map[runtime.MountPropagation]string{
	runtime.MountPropagation_PROPAGATION_PRIVATE:           "private",
	runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: "rslave",
	runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL:     "rshared",
}

func addMounts(spec *container.Spec, cfg *runtime.ContainerConfig) error {
	for i, m := range cfg.GetMounts() {
		field := fmt.Sprintf("config.mounts[%d]", i)
		if err := checkMount(field, m); err != nil {
			return err
		}
		users, err := mountUsersFrom(field, m)
		if err != nil {
			return err
		}
		spec.Mounts = append(spec.Mounts, container.Mount{
			HostPath:          m.GetHostPath(),
			ContainerPath:     m.GetContainerPath(),
			ReadOnly:          m.GetReadonly(),
			RecursiveReadOnly: m.GetRecursiveReadOnly(),
			SELinuxRelabel:    m.GetSelinuxRelabel(),
			Propagation:       propagations[m.GetPropagation()],
			Image:             m.GetImage().GetImage(),
			ImageSubPath:      m.GetImageSubPath(),
			Options:           m.GetMountOptions(),
			Users:             users,
		})
	}
	return nil
}

// checkMount refuses mounts that say nothing, or two things at once.
func checkMount(field string, m *runtime.Mount) error {
	private := m.GetPropagation() == runtime.MountPropagation_PROPAGATION_PRIVATE
	switch {
	case m.GetContainerPath() == "":
		return invalid("%s.container_path is empty", field)
	case m.GetImage() != nil && m.GetImage().GetImage() == "":
		return invalid("%s.image.image is empty", field)
	case m.GetImage() != nil && m.GetHostPath() != "":
		return invalid("%s.host_path: %q stands beside an image, there can be only one of them", field, m.GetHostPath())
	case m.GetImage() != nil && !m.GetReadonly():
		return invalid("%s.readonly is not set, and an image as a volume is read-only", field)
	case m.GetImage() == nil && m.GetHostPath() == "":
		return invalid("%s.host_path is empty", field)
	case m.GetImage() == nil && m.GetImageSubPath() != "":
		return invalid("%s.image_sub_path: %q has no image", field, m.GetImageSubPath())
	case propagations[m.GetPropagation()] == "":
		return invalid("%s.propagation: %s is unknown", field, m.GetPropagation())
	case m.GetRecursiveReadOnly() && !m.GetReadonly():
		return invalid("%s.recursive_read_only: the mount is not readonly", field)
	case m.GetRecursiveReadOnly() && !private:
		return invalid("%s.recursive_read_only: the propagation is %s, not private", field, m.GetPropagation())
	}
	return nil
}

func addDevices(spec *container.Spec, cfg *runtime.ContainerConfig) error {
	for i, d := range cfg.GetDevices() {
		field := fmt.Sprintf("config.devices[%d]", i)
		if d.GetHostPath() == "" {
			return invalid("%s.host_path is empty", field)
		}
		if strings.Trim(d.GetPermissions(), "rwm") != "" {
			return invalid("%s.permissions: %q has others than r, w and m", field, d.GetPermissions())
		}
		device := container.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: d.Permissions}
		if device.ContainerPath == "" {
			device.ContainerPath = device.HostPath
		}
		spec.Devices = append(spec.Devices, device)
	}
	for i, d := range cfg.GetCDIDevices() {
		if d.GetName() == "" {
			return invalid("config.CDI_devices[%d].name is empty", i)
		}
		spec.CDIDevices = append(spec.CDIDevices, d.Name)
	}
	return nil
}
