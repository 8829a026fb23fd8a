package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network/netns"
)

// validate refuses what cannot be made, before anything is made.
func (m *Manager) validate(spec *Spec) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("pod %s: %s: %w", spec.Key, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	switch {
	case spec.Name == "":
		return invalid("config.metadata.name is empty")
	case spec.Namespace == "":
		return invalid("config.metadata.namespace is empty")
	case spec.UID == "":
		return invalid("config.metadata.uid is empty")
	case spec.Handler != "" && spec.Handler != "runc":
		return invalid("runtime_handler %q is not configured; there is \"runc\"", spec.Handler)
	case len(spec.Hostname) > 64:
		return invalid("config.hostname %q has %d characters, the kernel takes 64", spec.Hostname, len(spec.Hostname))
	case strings.ContainsFunc(spec.Hostname, unprintable):
		return invalid("config.hostname %q has characters that a name cannot have", spec.Hostname)
	case slices.ContainsFunc(slices.Concat(spec.DNS.Servers, spec.DNS.Searches, spec.DNS.Options), func(s string) bool {
		return strings.ContainsFunc(s, unprintable)
	}):
		return invalid("config.dns_config has an entry with a space or a line break: %q", spec.DNS)
	case spec.LogDirectory != "" && !filepath.IsAbs(spec.LogDirectory):
		return invalid("config.log_directory %q is not absolute", spec.LogDirectory)
	case !spec.Namespaces.Users.IsZero() && !m.cfg.UserNamespaces:
		return invalid("config.linux.security_context.namespace_options.userns_options: this node has no user namespaces for pods: they need runc 1.2 or crun 1.9, overlayfs, and a kernel from 5.19 on")
	case spec.Namespaces.SharedPID && m.cfg.Process == "never":
		return invalid("containers that share a PID namespace need an init, and sandbox.process is \"never\"")
	}
	if err := netns.ValidateSysctls(spec.Sysctls, spec.Namespaces.HostNetwork, spec.Namespaces.HostIPC); err != nil {
		return fmt.Errorf("pod %s: config.linux.sysctls: %w", spec.Key, err)
	}
	return nil
}

// unprintable finds what would break a line of hostname or resolv.conf.
func unprintable(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// sysctls returns those of the pod over the defaults of the field: a pod's
// processes may listen on low ports and ping without capabilities, since in a
// network of their own that harms nobody.
func sysctls(spec *Spec) map[string]string {
	if spec.Namespaces.HostNetwork {
		return spec.Sysctls
	}
	all := map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0",
		"net.ipv4.ping_group_range":           "0 2147483647",
	}
	maps.Copy(all, spec.Sysctls)
	return all
}
