package oci

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// setNamespaces joins the pod's namespaces. What the pod has not pinned is the
// host's, and is not named: the OCI runtime then leaves it as it is.
func setNamespaces(in Input, s *specs.Spec) error {
	asked, pins := in.Container.Spec.Security.Namespaces, in.Pod.Pins
	switch {
	case asked.HostNetwork && pins.Net.Path != "":
		return invalid("namespace_options.network is NODE, and pod %s has a network of its own", in.Pod.Spec.Key)
	case asked.HostIPC && pins.IPC.Path != "":
		return invalid("namespace_options.ipc is NODE, and pod %s has an IPC namespace of its own", in.Pod.Spec.Key)
	}
	ns := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	for _, n := range []specs.LinuxNamespace{
		{Type: specs.NetworkNamespace, Path: pins.Net.Path},
		{Type: specs.IPCNamespace, Path: pins.IPC.Path},
		{Type: specs.UTSNamespace, Path: pins.UTS.Path},
		{Type: specs.UserNamespace, Path: pins.User.Path},
	} {
		if n.Path != "" {
			ns = append(ns, n)
		}
	}
	pid, err := pidNamespace(in)
	if err != nil {
		return err
	}
	ns = append(ns, pid...)
	if ownCgroups(in) {
		ns = append(ns, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	s.Linux.Namespaces = ns
	if pins.User.Path != "" {
		// The path is what is joined; the maps are for what the OCI runtime prepares.
		s.Linux.UIDMappings, s.Linux.GIDMappings = in.Pod.Spec.Namespaces.Users.OCI()
		s.Process.Rlimits = nil // nobody in there may raise one
	}
	return nil
}

// ownCgroups says whether the container sees its cgroup as the root of all. On
// cgroup v1 people are used to see the whole tree.
func ownCgroups(in Input) bool {
	return in.Features.Unified && !in.Container.Spec.Security.Privileged
}

// pidNamespace is none for the host's.
func pidNamespace(in Input) ([]specs.LinuxNamespace, error) {
	own := []specs.LinuxNamespace{{Type: specs.PIDNamespace}}
	pod, path := in.Pod.Spec.Namespaces, in.PIDNamespace
	switch mode := in.Container.Spec.Security.Namespaces.PID; mode {
	case "container", "":
		return own, nil
	case "node":
		if !pod.HostPID {
			return nil, invalid("namespace_options.pid is NODE, and pod %s does not use the host's", in.Pod.Spec.Key)
		}
		return nil, nil
	case "target":
		if path == "" {
			return nil, invalid("namespace_options.pid is TARGET, and container %q has no process to join",
				in.Container.Spec.Security.Namespaces.Target)
		}
	case "pod":
		// POD is also what a request without options means. Without a namespace of
		// the pod, what is left for it is what every pod gives.
		switch {
		case pod.HostPID:
			return nil, nil
		case path == "" && in.Pod.InitPID == 0 && !pod.SharedPID:
			return own, nil
		case path == "" && in.Pod.InitPID == 0:
			return nil, unavailable("pod %s shares a PID namespace, and its init has ended; run the pod anew", in.Pod.Spec.Key)
		case path == "":
			path = fmt.Sprintf("/proc/%d/ns/pid", in.Pod.InitPID)
		}
	default:
		return nil, invalid("namespace_options.pid: %q is not a mode", mode)
	}
	return []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: path}}, nil
}
