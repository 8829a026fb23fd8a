package lab

import (
	"context"
	"fmt"
	"path/filepath"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container returns the configuration of a container of [Image] as a kubelet sends
// it, with a log in the pod's log directory.
func (c *Crib) Container(name string, command ...string) *runtime.ContainerConfig {
	return &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: name},
		Image:    &runtime.ImageSpec{Image: Image},
		Command:  command,
		LogPath:  name + ".log",
		Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
			NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
		}},
	}
}

// LogDir is the log directory of a pod; the lab's directory takes it along.
func (c *Crib) LogDir(pod *runtime.PodSandboxConfig) string {
	return filepath.Join(c.Dir, "logs", pod.Metadata.Name)
}

// Launch makes and starts a container and returns its id.
func (c *Crib) Launch(ctx context.Context, podID string, pod *runtime.PodSandboxConfig, cfg *runtime.ContainerConfig) (string, error) {
	created, err := c.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: pod})
	if err != nil {
		return "", err
	}
	_, err = c.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: created.ContainerId})
	return created.ContainerId, err
}

// Exec runs a command in a container and returns what it wrote to standard output.
// An exit code other than 0 is an error.
func (c *Crib) Exec(ctx context.Context, id string, cmd ...string) (string, error) {
	resp, err := c.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 30})
	if err != nil {
		return "", err
	}
	if resp.ExitCode != 0 {
		return "", fmt.Errorf("%q ended with %d: %s%s", cmd, resp.ExitCode, resp.Stdout, resp.Stderr)
	}
	return string(resp.Stdout), nil
}

// Images returns the image service of the daemon.
func (c *Crib) Images() runtime.ImageServiceClient {
	return runtime.NewImageServiceClient(c.conn)
}
