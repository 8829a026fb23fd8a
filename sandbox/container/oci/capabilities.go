package oci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCapabilities are those of the field.
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
}

// setCapabilities sets what the process may do. "ALL" is what the daemon itself
// may: more it cannot give, and OCI runtimes refuse what the kernel does not know.
func setCapabilities(in Input, s *specs.Spec) error {
	security := in.Container.Spec.Security
	add, err := capabilityNames("add_capabilities", security.Capabilities.Add)
	if err != nil {
		return err
	}
	drop, err := capabilityNames("drop_capabilities", security.Capabilities.Drop)
	if err != nil {
		return err
	}
	ambient, err := capabilityNames("add_ambient_capabilities", security.Capabilities.Ambient)
	if err != nil {
		return err
	}
	if security.Privileged {
		add, drop = []string{all}, nil
	}
	if s.Process.Capabilities, err = capabilities(add, drop, ambient); err != nil {
		return fmt.Errorf("finding the daemon's capabilities: %w", err)
	}
	return nil
}

// all stands for all capabilities.
const all = "ALL"

// capabilities applies "ALL" first, so that {add ALL, drop X} is all but X, and
// {drop ALL, add X} is X alone.
func capabilities(add, drop, ambient []string) (*specs.LinuxCapabilities, error) {
	set := defaultCapabilities()
	if slices.Contains(add, all) || slices.Contains(ambient, all) {
		current, err := cap.Current()
		if err != nil {
			return nil, err
		}
		if slices.Contains(add, all) {
			set = current
		}
		if slices.Contains(ambient, all) {
			ambient = current
		}
	}
	if slices.Contains(drop, all) {
		set, ambient = nil, intersect(ambient, add)
	}
	for _, name := range slices.Concat(add, ambient) {
		if name != all && !slices.Contains(set, name) {
			set = append(set, name)
		}
	}
	set = slices.DeleteFunc(set, func(name string) bool { return slices.Contains(drop, name) })
	ambient = intersect(ambient, set)
	return &specs.LinuxCapabilities{
		Bounding: set, Effective: set, Permitted: set,
		// The kernel takes as ambient only what is inheritable too.
		Ambient: ambient, Inheritable: ambient,
	}, nil
}

// intersect returns those of a that are in b, once each.
func intersect(a, b []string) []string {
	var both []string
	for _, name := range a {
		if slices.Contains(b, name) && !slices.Contains(both, name) {
			both = append(both, name)
		}
	}
	return both
}

// capabilityNames spells names as OCI does; CRI has no prefix, some people write it.
func capabilityNames(field string, asked []string) ([]string, error) {
	var names []string
	for _, a := range asked {
		upper := strings.ToUpper(a)
		name := "CAP_" + strings.TrimPrefix(upper, "CAP_")
		switch {
		case upper == all:
			name = all
		case !slices.Contains(cap.Known(), name):
			return nil, invalid("security_context.capabilities.%s: %q is not a capability", field, a)
		}
		names = append(names, name)
	}
	return names, nil
}
