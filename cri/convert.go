package cri

import (
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/sandbox"
)

// specFrom translates a request. It refuses what has no meaning, naming the field.
func specFrom(req *runtime.RunPodSandboxRequest) (sandbox.Spec, error) {
	cfg := req.GetConfig()
	if cfg.GetMetadata() == nil {
		return sandbox.Spec{}, invalid("config.metadata is missing")
	}
	ports, err := portsFrom(cfg.GetPortMappings())
	if err != nil {
		return sandbox.Spec{}, err
	}
	namespaces, err := namespacesFrom(cfg.GetLinux().GetSecurityContext().GetNamespaceOptions())
	if err != nil {
		return sandbox.Spec{}, err
	}
	return sandbox.Spec{
		Key: sandbox.Key{
			Namespace: cfg.Metadata.Namespace,
			Name:      cfg.Metadata.Name,
			UID:       cfg.Metadata.Uid,
			Attempt:   cfg.Metadata.Attempt,
		},
		Hostname:     cfg.Hostname,
		LogDirectory: cfg.LogDirectory,
		DNS: sandbox.DNS{
			Servers:  cfg.GetDnsConfig().GetServers(),
			Searches: cfg.GetDnsConfig().GetSearches(),
			Options:  cfg.GetDnsConfig().GetOptions(),
		},
		Ports:        ports,
		Labels:       cfg.Labels,
		Annotations:  cfg.Annotations,
		Handler:      req.RuntimeHandler,
		CgroupParent: cfg.GetLinux().GetCgroupParent(),
		Sysctls:      cfg.GetLinux().GetSysctls(),
		Namespaces:   namespaces,
		Privileged:   cfg.GetLinux().GetSecurityContext().GetPrivileged(),
	}, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// namespacesFrom translates the namespace options; see Decisions for none at all.
func namespacesFrom(o *runtime.NamespaceOption) (sandbox.Namespaces, error) {
	const field = "config.linux.security_context.namespace_options"
	for name, mode := range map[string]runtime.NamespaceMode{"network": o.GetNetwork(), "ipc": o.GetIpc()} {
		if mode != runtime.NamespaceMode_POD && mode != runtime.NamespaceMode_NODE {
			return sandbox.Namespaces{}, invalid("%s.%s: %s is not a mode of a pod", field, name, mode)
		}
	}
	if o.GetPid() == runtime.NamespaceMode_TARGET {
		return sandbox.Namespaces{}, invalid("%s.pid: TARGET is a mode of containers", field)
	}
	users, err := usersFrom(field+".userns_options", o.GetUsernsOptions())
	if err != nil {
		return sandbox.Namespaces{}, err
	}
	host := o.GetNetwork() == runtime.NamespaceMode_NODE || o.GetIpc() == runtime.NamespaceMode_NODE || o.GetPid() == runtime.NamespaceMode_NODE
	if !users.IsZero() && host {
		return sandbox.Namespaces{}, invalid("%s.userns_options: a pod with users of its own has no network, ipc or pid of the host", field)
	}
	return sandbox.Namespaces{
		Users:       users,
		HostNetwork: o.GetNetwork() == runtime.NamespaceMode_NODE,
		HostIPC:     o.GetIpc() == runtime.NamespaceMode_NODE,
		HostPID:     o.GetPid() == runtime.NamespaceMode_NODE,
		SharedPID:   o != nil && o.Pid == runtime.NamespaceMode_POD,
	}, nil
}

// portsFrom translates port mappings; those without a host port map nothing.
func portsFrom(mappings []*runtime.PortMapping) ([]network.PortMapping, error) {
	protocols := map[runtime.Protocol]network.Protocol{
		runtime.Protocol_TCP: network.TCP, runtime.Protocol_UDP: network.UDP, runtime.Protocol_SCTP: network.SCTP,
	}
	var ports []network.PortMapping
	for i, m := range mappings {
		if m.GetHostPort() <= 0 {
			continue
		}
		field := fmt.Sprintf("config.port_mappings[%d]", i)
		port := network.PortMapping{
			Protocol: protocols[m.Protocol], HostPort: uint16(m.HostPort), ContainerPort: uint16(m.ContainerPort),
		}
		switch {
		case port.Protocol == "":
			return nil, invalid("%s.protocol: %s is unknown", field, m.Protocol)
		case m.HostPort > 65535:
			return nil, invalid("%s.host_port: %d is not a port", field, m.HostPort)
		case m.ContainerPort <= 0 || m.ContainerPort > 65535:
			return nil, invalid("%s.container_port: %d is not a port", field, m.ContainerPort)
		}
		if m.HostIp != "" {
			addr, err := netip.ParseAddr(m.HostIp)
			if err != nil {
				return nil, invalid("%s.host_ip: %v", field, err)
			}
			port.HostIP = addr.Unmap()
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func metadataOf(pod *sandbox.Pod) *runtime.PodSandboxMetadata {
	return &runtime.PodSandboxMetadata{
		Name: pod.Spec.Name, Uid: pod.Spec.UID, Namespace: pod.Spec.Namespace, Attempt: pod.Spec.Attempt,
	}
}

func stateOf(pod *sandbox.Pod) runtime.PodSandboxState {
	if pod.State == sandbox.Ready {
		return runtime.PodSandboxState_SANDBOX_READY
	}
	return runtime.PodSandboxState_SANDBOX_NOTREADY
}

func itemOf(pod *sandbox.Pod) *runtime.PodSandbox {
	return &runtime.PodSandbox{
		Id:             pod.ID,
		Metadata:       metadataOf(pod),
		State:          stateOf(pod),
		CreatedAt:      pod.CreatedAt.UnixNano(),
		Labels:         pod.Spec.Labels,
		Annotations:    pod.Spec.Annotations,
		RuntimeHandler: pod.Spec.Handler,
	}
}

func statusOf(pod *sandbox.Pod) *runtime.PodSandboxStatus {
	return &runtime.PodSandboxStatus{
		Id:        pod.ID,
		Metadata:  metadataOf(pod),
		State:     stateOf(pod),
		CreatedAt: pod.CreatedAt.UnixNano(),
		Network:   networkOf(pod),
		Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{
			Options: optionsOf(pod.Spec.Namespaces),
		}},
		Labels:         pod.Spec.Labels,
		Annotations:    pod.Spec.Annotations,
		RuntimeHandler: pod.Spec.Handler,
	}
}

// networkOf tells the addresses while the pod has them.
func networkOf(pod *sandbox.Pod) *runtime.PodSandboxNetworkStatus {
	status := &runtime.PodSandboxNetworkStatus{}
	if pod.Released {
		return status
	}
	for i, ip := range pod.IPs() {
		if i == 0 {
			status.Ip = ip.String()
			continue
		}
		status.AdditionalIps = append(status.AdditionalIps, &runtime.PodIP{Ip: ip.String()})
	}
	return status
}

func optionsOf(ns sandbox.Namespaces) *runtime.NamespaceOption {
	mode := map[bool]runtime.NamespaceMode{false: runtime.NamespaceMode_POD, true: runtime.NamespaceMode_NODE}
	options := &runtime.NamespaceOption{
		Network: mode[ns.HostNetwork],
		Ipc:     mode[ns.HostIPC],
		Pid:     runtime.NamespaceMode_CONTAINER,

		UsernsOptions: userOptionsOf(ns.Users),
	}
	switch {
	case ns.HostPID:
		options.Pid = runtime.NamespaceMode_NODE
	case ns.SharedPID:
		options.Pid = runtime.NamespaceMode_POD
	}
	return options
}
