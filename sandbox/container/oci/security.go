package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// The kinds of profiles; "" is none.
const (
	profileDefault    = "default"
	profileUnconfined = "unconfined"
	profileLocalhost  = "localhost"
)

// localhostPrefix is how profiles of the node were written in annotations.
const localhostPrefix = "localhost/"

const (
	// appArmorProfile is the name of our profile in the kernel.
	appArmorProfile = "crib-default"
	appArmorLoaded  = "/sys/kernel/security/apparmor/profiles"
)

// maxProfile is the largest seccomp profile that is read, in bytes.
const maxProfile = 4 << 20

// setSeccomp sets the filter of system calls.
func setSeccomp(in Input, s *specs.Spec) error {
	security := in.Container.Spec.Security
	asked := security.Seccomp
	if err := checkProfile("security_context.seccomp", asked); err != nil {
		return err
	}
	switch {
	case security.Privileged || asked.Kind == "" || asked.Kind == profileUnconfined:
		return nil
	case !in.Features.Seccomp:
		return unavailable("security_context.seccomp asks for a profile, and the kernel has no seccomp filters")
	case asked.Kind == profileDefault:
		s.Linux.Seccomp = seccomp.DefaultProfile(s)
		return nil
	}
	profile, err := readSeccomp(strings.TrimPrefix(asked.Localhost, localhostPrefix))
	s.Linux.Seccomp = profile
	return err
}

// readSeccomp reads a profile of the node.
func readSeccomp(path string) (*specs.LinuxSeccomp, error) {
	if !filepath.IsAbs(path) {
		return nil, invalid("security_context.seccomp.localhost_ref %q is not an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unavailable("reading seccomp profile: %v; put it there, or name another", err)
	case !info.Mode().IsRegular() || info.Size() > maxProfile:
		return nil, invalid("seccomp profile %q is not a file of at most %d bytes", path, maxProfile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading seccomp profile: %w", err)
	}
	profile := new(specs.LinuxSeccomp)
	if err := json.Unmarshal(b, profile); err != nil {
		return nil, invalid("parsing seccomp profile %q: %v", path, err)
	}
	return profile, nil
}

// setLabels sets the labels of SELinux.
func setLabels(in Input, s *specs.Spec) error {
	label := in.Container.Spec.Security.SELinux
	if label == "" || !in.Features.SELinux {
		return nil
	}
	parts := strings.SplitN(label, ":", 4) // a level has colons of its own
	if len(parts) < 4 {
		return invalid("security_context.selinux_options %q is not user:role:type:level", label)
	}
	if err := checkText("security_context.selinux_options", label); err != nil {
		return err
	}
	for i, usual := range []string{"system_u", "system_r", "container_t", "s0"} {
		if parts[i] == "" {
			parts[i] = usual
		}
	}
	s.Process.SelinuxLabel = strings.Join(parts, ":")
	// Files that the runtime makes are the container's, at the process's level.
	s.Linux.MountLabel = "system_u:object_r:container_file_t:" + parts[3]
	return nil
}

// AppArmor loads our profile into the kernel, which has none after a boot. The zero
// value and nil are ready; one for all containers keeps those that start together
// after a boot from running a parser each.
type AppArmor struct {
	mu sync.Mutex // held while the profile is looked for and loaded
}

func (a *AppArmor) load() error {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
	}
	return apparmor.LoadDefaultProfile(appArmorProfile)
}

// setAppArmor sets the profile of AppArmor, by default ours where the host has it.
func setAppArmor(in Input, s *specs.Spec) error {
	security := in.Container.Spec.Security
	asked := security.AppArmor
	if err := checkProfile("security_context.apparmor", asked); err != nil {
		return err
	}
	explicit := asked.Kind == profileDefault || asked.Kind == profileLocalhost
	switch {
	case !in.Features.AppArmor && explicit:
		return unavailable("security_context.apparmor asks for a profile, and AppArmor is not enabled on this host")
	case !in.Features.AppArmor || asked.Kind == profileUnconfined:
		return nil
	case asked.Kind == profileLocalhost:
		name := strings.TrimPrefix(asked.Localhost, localhostPrefix)
		s.Process.ApparmorProfile = name
		return checkLoaded(name)
	case security.Privileged:
		return nil
	}
	if err := in.AppArmor.load(); err != nil {
		return fmt.Errorf("loading AppArmor profile %s (apparmor_parser is needed): %w", appArmorProfile, err)
	}
	s.Process.ApparmorProfile = appArmorProfile
	return nil
}

// checkLoaded refuses a profile that is not in the kernel.
func checkLoaded(name string) error {
	b, err := os.ReadFile(appArmorLoaded)
	if err != nil {
		return fmt.Errorf("listing AppArmor profiles: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, name+" (") {
			return nil
		}
	}
	return unavailable("AppArmor profile %q is not loaded on this host; load it with apparmor_parser", name)
}

// checkProfile refuses what is not a profile.
func checkProfile(field string, p container.Profile) error {
	switch p.Kind {
	case "", profileDefault, profileUnconfined:
		if p.Localhost != "" {
			return invalid("%s: localhost_ref %q is only for profile_type Localhost", field, p.Localhost)
		}
		return nil
	case profileLocalhost:
		if strings.TrimPrefix(p.Localhost, localhostPrefix) == "" {
			return invalid("%s: profile_type is Localhost, and localhost_ref is empty", field)
		}
		return checkText(field+".localhost_ref", p.Localhost)
	}
	return invalid("%s: %q is not a kind of profile", field, p.Kind)
}
