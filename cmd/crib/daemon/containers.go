package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/cri/stream"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/container/oci"
	"github.com/crib-runtime/crib/sandbox/engine"
	"github.com/crib-runtime/crib/sandbox/image"
)

// volumesDir is where containers have the volumes that their images declare.
const volumesDir = "volumes"

// openContainers makes the life of containers, which needs that of pods.
func (d *Daemon) openContainers(bootID string) {
	features := oci.HostFeatures()
	features.OCIVersion = d.engine.Info().OCIVersion
	features.RecursiveReadOnly, features.IDMap = d.MountFeatures()
	profile := &oci.AppArmor{}
	d.containers = container.New(container.Config{
		Images: d.engine,
		Roots:  d.engine,
		Tasks:  d.engine,
		Inside: d.engine,
		Store:  d.feed.Containers(d.store),
		Pods:   d.pods,
		Spec: func(_ context.Context, c *container.Container, pod *sandbox.Pod, img image.Image, root string) (*specs.Spec, container.EffectiveUser, error) {
			return d.spec(c, pod, oci.Input{Image: img.Config, Root: root, Features: features, AppArmor: profile})
		},
		Process: func(ctx context.Context, id string, cmd []string, tty bool) (*specs.Process, error) {
			spec, err := d.engine.Spec(ctx, id)
			if err != nil {
				return nil, err
			}
			return oci.ExecProcess(spec, cmd, tty), nil
		},
		Limits:        func(r container.Resources) *specs.LinuxResources { return oci.Resources(r, features) },
		RemoveVolumes: func(_ context.Context, id string) error { return os.RemoveAll(d.volumes(id)) },
		Release:       d.engine.Release,
		Strays:        d.strays,
		BootID:        bootID,
		Log:           d.log,
	})
}

func (d *Daemon) volumes(id string) string { return filepath.Join(d.cfg.Root, volumesDir, id) }

// lives is the life of containers as CRI wants it: a container that is to live in
// its pod's PID namespace finds one there.
type lives struct {
	*container.Manager
	pods   *sandbox.Manager
	engine *engine.Engine
}

// RuntimeSpec implements cri.Containers.
func (l lives) RuntimeSpec(ctx context.Context, id string) (*specs.Spec, error) {
	return l.engine.Spec(ctx, id)
}

// Create implements cri.Containers. The pod's init comes before the container's
// lock is taken: a pod that is being stopped takes the locks the other way round.
func (l lives) Create(ctx context.Context, spec container.Spec) (string, error) {
	if spec.Security.Namespaces.PID == "pod" {
		if err := l.pods.EnsureInit(ctx, spec.PodID); err != nil {
			return "", err
		}
	}
	return l.Manager.Create(ctx, spec)
}

// spec fills in what the daemon knows of a container's surroundings.
func (d *Daemon) spec(c *container.Container, pod *sandbox.Pod, in oci.Input) (*specs.Spec, container.EffectiveUser, error) {
	in.Container, in.Pod = c, pod
	in.PodDir = d.podFiles().Dir(pod.ID)
	in.Volumes = d.volumes(c.ID)
	if c.Spec.LogPath != "" {
		// The kubelet has made it; people with crictl expect that somebody does.
		if err := os.MkdirAll(filepath.Dir(c.Spec.LogPath), 0o755); err != nil {
			return nil, container.EffectiveUser{}, fmt.Errorf("make the log's directory: %w", err)
		}
	}
	in.CgroupsPath = cgroupsPath(d.SystemdCgroup(), pod.Spec.CgroupParent, c.ID)
	if c.Spec.Security.Namespaces.PID == "target" {
		var err error
		if in.PIDNamespace, err = d.pidNamespace(c.Spec.PodID, c.Spec.Security.Namespaces.Target); err != nil {
			return nil, container.EffectiveUser{}, err
		}
	}
	return oci.Build(in)
}

// pidNamespace returns the path of the PID namespace of another container of the
// same pod. A container of another pod is none of its business.
func (d *Daemon) pidNamespace(podID, id string) (string, error) {
	target, err := d.containers.Get(id)
	if err != nil {
		return "", fmt.Errorf("find the target of the PID namespace: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if target.Spec.PodID != podID || target.State != container.Running {
		return "", fmt.Errorf("the target of the PID namespace, container %s, does not run in this pod: %w", id, errdefs.ErrInvalidArgument)
	}
	return "/proc/" + strconv.Itoa(int(target.PID)) + "/ns/pid", nil
}

// strays returns the ids of all containers and roots that the engine has.
func (d *Daemon) strays(ctx context.Context) ([]string, error) {
	containers, err := d.engine.Containers(ctx)
	roots, rootsErr := d.engine.Roots(ctx)
	return append(containers, roots...), errors.Join(err, rootsErr)
}

// newStreams listens for the clients of exec, attach and port-forward.
func (d *Daemon) newStreams() (*stream.Server, error) {
	stream.AdoptLog(d.log.With("part", "streams"))
	return stream.New(stream.Config{
		Containers: d.containers,
		Dial:       d.dial,
		Log:        d.log.With("part", "streams"),
	})
}

// dial connects to a port on the loopback of a pod, in either family.
func (d *Daemon) dial(ctx context.Context, podID string, port int32) (conn net.Conn, err error) {
	pod, err := d.pods.Get(podID)
	if err != nil {
		return nil, err
	}
	if pod.State != sandbox.Ready {
		return nil, fmt.Errorf("pod sandbox %q is not ready: %w", podID, errdefs.ErrUnavailable)
	}
	connect := func() error {
		var errs []error
		for _, host := range []string{"127.0.0.1", "::1"} {
			// A literal address is dialled on this thread: the socket is the pod's.
			var err error
			if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if pod.Spec.Namespaces.HostNetwork {
		err = connect()
	} else {
		err = netns.Do(pod.Pins.Net.Path, connect)
	}
	return conn, err
}
