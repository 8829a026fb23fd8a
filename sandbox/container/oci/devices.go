package oci

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	containerdoci "github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// anyAccess to a device: read, write, and make its node.
const anyAccess = "rwm"

// setDevices gives the container what it asks for and denies the rest; the OCI
// runtime adds the harmless ones (/dev/null and its like). A privileged container
// gets all.
func setDevices(in Input, s *specs.Spec) error {
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: anyAccess}}
	var nodes []specs.LinuxDevice
	for i, d := range in.Container.Spec.Devices {
		found, allowed, err := hostDevice(d)
		if err != nil {
			return fmt.Errorf("config.devices[%d] (%s): %w", i, d.HostPath, err)
		}
		nodes, rules = append(nodes, found...), append(rules, allowed...)
	}
	if in.Container.Spec.Security.Privileged {
		host, err := containerdoci.HostDevices()
		if err != nil {
			return fmt.Errorf("listing the host's devices: %w", err)
		}
		nodes = append(nodes, host...)
		rules = []specs.LinuxDeviceCgroup{{Allow: true, Access: anyAccess}}
	}
	s.Linux.Devices = firstOfEachPath(nodes)
	s.Linux.Resources.Devices = rules
	return nil
}

// hostDevice returns the nodes of a device, or of all below a directory, and the
// rules that allow them.
func hostDevice(d container.Device) ([]specs.LinuxDevice, []specs.LinuxDeviceCgroup, error) {
	access, err := deviceAccess(d.Permissions)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(checkText("host_path", d.HostPath), checkText("container_path", d.ContainerPath)); err != nil {
		return nil, nil, err
	}
	if !filepath.IsAbs(d.HostPath) {
		return nil, nil, invalid("host_path is not absolute")
	}
	inside := d.ContainerPath
	if inside == "" {
		inside = d.HostPath
	}
	if inside = cleanInside(inside); inside == "/" {
		return nil, nil, invalid("container_path is the root")
	}
	source, err := filepath.EvalSymlinks(d.HostPath)
	if err != nil {
		return nil, nil, unavailable("looking for the host's device: %v", err)
	}
	found := specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
	err = containerdoci.WithDevices(source, inside, access)(context.Background(), nil, nil, &found)
	if errors.Is(err, containerdoci.ErrNotADevice) {
		return nil, nil, invalid("it is neither a device nor a directory of them")
	}
	return found.Linux.Devices, found.Linux.Resources.Devices, err
}

// deviceAccess checks permissions; none at all are all of them.
func deviceAccess(asked string) (string, error) {
	if asked == "" {
		return anyAccess, nil
	}
	if strings.Trim(asked, anyAccess) != "" || len(asked) > len(anyAccess) {
		return "", invalid("permissions %q are not letters of %q", asked, anyAccess)
	}
	return asked, nil
}

// firstOfEachPath leaves out the later of two nodes at one path, so that what was
// asked for wins over what comes with being privileged.
func firstOfEachPath(nodes []specs.LinuxDevice) []specs.LinuxDevice {
	var kept []specs.LinuxDevice
	seen := map[string]bool{}
	for _, n := range nodes {
		if !seen[n.Path] {
			seen[n.Path] = true
			kept = append(kept, n)
		}
	}
	return kept
}

// cleanInside makes a path of the container absolute, without ".." .
func cleanInside(path string) string { return filepath.Clean("/" + path) }
