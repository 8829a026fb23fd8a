package engine

import (
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// What other tools look for. The shim groups a pod's containers by
// annotationPod; cAdvisor and nerdctl read the others.
const (
	labelKind       = "io.cri-containerd.kind"
	labelPod        = "io.crib.pod" // ours: says that the container is
	kindSandbox     = "sandbox"
	annotationPod   = "io.kubernetes.cri.sandbox-id"
	annotationType  = "io.kubernetes.cri.container-type"
	typeSandbox     = "sandbox"
	initUser        = 65535 // nobody's, as of other pods' process 1
	propagateNobody = "rprivate"
)

// initLabels are the labels of a pod's init.
func initLabels(in Init) map[string]string {
	l := maps.Clone(in.Labels)
	if l == nil {
		l = make(map[string]string, 2)
	}
	l[labelKind] = kindSandbox
	l[labelPod] = in.PodID
	return l
}

// initSpec is what the OCI runtime makes of the init: process 1 without any
// privilege in a PID namespace of its own, in the pod's other namespaces. It
// gets no CPU shares: it does nothing, and not every cgroup has that controller.
func initSpec(in Init, ociVersion string) *specs.Spec {
	annotations := maps.Clone(in.Annotations)
	if annotations == nil {
		annotations = make(map[string]string, 2)
	}
	annotations[annotationPod] = in.PodID
	annotations[annotationType] = typeSandbox
	s := &specs.Spec{
		Version:     ociVersion,
		Annotations: annotations,
		Root:        &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			Args:            []string{"/" + initName},
			Cwd:             "/",
			User:            specs.User{UID: initUser, GID: initUser},
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			OOMScoreAdj:     &in.OOMScoreAdj,
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{
			CgroupsPath:       in.CgroupsPath,
			Namespaces:        initNamespaces(in),
			RootfsPropagation: propagateNobody,
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
			},
		},
	}
	if in.UTS != "" {
		// In the host's namespace it would rename the host.
		s.Hostname = in.Hostname
	}
	if in.User != "" {
		s.Linux.UIDMappings, s.Linux.GIDMappings = in.Users.OCI()
	}
	return s
}

// initNamespaces are new ones for processes and mounts, and those of the pod that
// are not the host's.
func initNamespaces(in Init) []specs.LinuxNamespace {
	ns := []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}}
	for _, n := range []specs.LinuxNamespace{
		{Type: specs.NetworkNamespace, Path: in.Netns},
		{Type: specs.IPCNamespace, Path: in.IPC},
		{Type: specs.UTSNamespace, Path: in.UTS},
		{Type: specs.UserNamespace, Path: in.User},
	} {
		if n.Path != "" {
			ns = append(ns, n)
		}
	}
	return ns
}
