package cri

import (
	"math"
	"path/filepath"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

const securityField = "config.linux.security_context"

func securityFrom(sc *runtime.LinuxContainerSecurityContext, pod *sandbox.Pod) (container.Security, error) {
	security := container.Security{
		Privileged:      sc.GetPrivileged(),
		ReadOnlyRoot:    sc.GetReadonlyRootfs(),
		NoNewPrivileges: sc.GetNoNewPrivs(),
		Capabilities: container.Capabilities{
			Add:     capabilitiesFrom(sc.GetCapabilities().GetAddCapabilities()),
			Drop:    capabilitiesFrom(sc.GetCapabilities().GetDropCapabilities()),
			Ambient: capabilitiesFrom(sc.GetCapabilities().GetAddAmbientCapabilities()),
		},
		MaskedPaths:   sc.GetMaskedPaths(),
		ReadOnlyPaths: sc.GetReadonlyPaths(),
		SELinux:       selinuxFrom(sc.GetSelinuxOptions()),
	}
	if security.Privileged && !pod.Spec.Privileged {
		return security, invalid("%s.privileged: the pod is not privileged, and a container has no more rights than its pod", securityField)
	}
	var err error
	if security.User, err = userFrom(sc); err != nil {
		return security, err
	}
	if security.Namespaces, err = containerNamespacesFrom(sc.GetNamespaceOptions(), pod.Spec.Namespaces); err != nil {
		return security, err
	}
	security.Seccomp, err = profileFrom("seccomp", sc.GetSeccomp(), sc.GetSeccompProfilePath())
	if err != nil {
		return security, err
	}
	if path := security.Seccomp.Localhost; path != "" && !filepath.IsAbs(path) {
		return security, invalid("%s.seccomp.localhost_ref: %q is not an absolute path", securityField, path)
	}
	security.AppArmor, err = profileFrom("apparmor", sc.GetApparmor(), sc.GetApparmorProfile())
	return security, err
}

// userFrom takes the user by number or by name. A group alone is refused: it would
// be the group of whomever the image names.
func userFrom(sc *runtime.LinuxContainerSecurityContext) (container.User, error) {
	user := container.User{Name: sc.GetRunAsUsername(), SupplementalGroups: sc.GetSupplementalGroups()}
	switch sc.GetSupplementalGroupsPolicy() {
	case runtime.SupplementalGroupsPolicy_Merge:
	case runtime.SupplementalGroupsPolicy_Strict:
		user.StrictGroups = true
	default:
		return user, invalid("%s.supplemental_groups_policy: %s is unknown", securityField, sc.GetSupplementalGroupsPolicy())
	}
	for _, id := range user.SupplementalGroups {
		if !isID(id) {
			return user, invalid("%s.supplemental_groups: %d is not a group id", securityField, id)
		}
	}
	if u := sc.GetRunAsUser(); u != nil {
		user.UID = &u.Value
	}
	if g := sc.GetRunAsGroup(); g != nil {
		user.GID = &g.Value
	}
	switch {
	case user.UID != nil && !isID(*user.UID):
		return user, invalid("%s.run_as_user: %d is not a user id", securityField, *user.UID)
	case user.GID != nil && !isID(*user.GID):
		return user, invalid("%s.run_as_group: %d is not a group id", securityField, *user.GID)
	case user.UID != nil && user.Name != "":
		return user, invalid("%s.run_as_username: %q stands beside run_as_user, there can be only one of them", securityField, user.Name)
	case user.GID != nil && user.UID == nil && user.Name == "":
		return user, invalid("%s.run_as_group: a group needs a run_as_user or run_as_username", securityField)
	}
	return user, nil
}

// isID says whether the kernel has such a user or group; the last one stands for none.
func isID(id int64) bool { return id >= 0 && id < math.MaxUint32 }

// pidModes are the words of [container.Namespaces].
var pidModes = map[runtime.NamespaceMode]string{
	runtime.NamespaceMode_POD:       "pod",
	runtime.NamespaceMode_CONTAINER: "container",
	runtime.NamespaceMode_NODE:      "node",
	runtime.NamespaceMode_TARGET:    "target",
}

// containerNamespacesFrom translates the namespace options; see Decisions for none at all.
func containerNamespacesFrom(o *runtime.NamespaceOption, pod sandbox.Namespaces) (container.Namespaces, error) {
	const field = securityField + ".namespace_options"
	if o == nil {
		return container.Namespaces{PID: podsPID(pod)}, nil
	}
	ns := container.Namespaces{
		HostNetwork: o.Network == runtime.NamespaceMode_NODE,
		HostIPC:     o.Ipc == runtime.NamespaceMode_NODE,
		PID:         pidModes[o.Pid],
	}
	switch {
	case o.Network != runtime.NamespaceMode_POD && !ns.HostNetwork:
		return ns, invalid("%s.network: %s is not a mode of a container", field, o.Network)
	case o.Ipc != runtime.NamespaceMode_POD && !ns.HostIPC:
		return ns, invalid("%s.ipc: %s is not a mode of a container", field, o.Ipc)
	case ns.PID == "":
		return ns, invalid("%s.pid: %s is unknown", field, o.Pid)
	case ns.PID == "target" && o.TargetId == "":
		return ns, invalid("%s.target_id is empty, and pid is TARGET", field)
	}
	users, err := usersFrom(field+".userns_options", o.UsernsOptions)
	if err != nil {
		return ns, err
	}
	if users != pod.Users && !(users.IsZero() && o.UsernsOptions == nil) {
		return ns, invalid("%s.userns_options differ from those of the pod", field)
	}
	if ns.PID == "target" {
		ns.Target = o.TargetId
	}
	if ns.PID == "pod" && pod.HostPID {
		ns.PID = "node"
	}
	return ns, nil
}

// podsPID is the mode of a container that says nothing: the proto's default.
func podsPID(pod sandbox.Namespaces) string {
	if pod.HostPID {
		return "node"
	}
	return "pod"
}

// profileFrom translates a profile, or the text that older clients send instead.
func profileFrom(name string, p *runtime.SecurityProfile, text string) (container.Profile, error) {
	field := securityField + "." + name
	if p == nil {
		return profileFromText(field, text)
	}
	switch p.ProfileType {
	case runtime.SecurityProfile_RuntimeDefault:
		return container.Profile{Kind: "default"}, nil
	case runtime.SecurityProfile_Unconfined:
		return container.Profile{Kind: "unconfined"}, nil
	case runtime.SecurityProfile_Localhost:
		if p.LocalhostRef == "" {
			return container.Profile{}, invalid("%s.localhost_ref is empty, and profile_type is Localhost", field)
		}
		return container.Profile{Kind: "localhost", Localhost: p.LocalhostRef}, nil
	}
	return container.Profile{}, invalid("%s.profile_type: %s is unknown", field, p.ProfileType)
}

func profileFromText(field, text string) (container.Profile, error) {
	if name, ok := strings.CutPrefix(text, "localhost/"); ok && name != "" {
		return container.Profile{Kind: "localhost", Localhost: name}, nil
	}
	switch text {
	case "":
		return container.Profile{}, nil
	case "runtime/default", "docker/default":
		return container.Profile{Kind: "default"}, nil
	case "unconfined":
		return container.Profile{Kind: "unconfined"}, nil
	}
	return container.Profile{}, invalid("%s: profile %q is unknown", field, text)
}

// capabilitiesFrom spells the names as one: "sys_admin" and "CAP_SYS_ADMIN" are SYS_ADMIN.
func capabilitiesFrom(names []string) []string {
	var capabilities []string
	for _, name := range names {
		capabilities = append(capabilities, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
	}
	return capabilities
}

func selinuxFrom(o *runtime.SELinuxOption) string {
	label := strings.Join([]string{o.GetUser(), o.GetRole(), o.GetType(), o.GetLevel()}, ":")
	if label == ":::" {
		return ""
	}
	return label
}
