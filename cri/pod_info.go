package cri

import (
	"encoding/json"
	"net/netip"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/sandbox"
)

// infoOf is what `crictl inspectp` shows beside the status. The key names are
// those of containerd where the meaning is the same: scripts read them.
func infoOf(pod *sandbox.Pod) (map[string]string, error) {
	info := map[string]any{
		"pid":                pod.InitPID,
		"netNamespaceClosed": pod.State != sandbox.Ready,
		"runtimeHandler":     pod.Spec.Handler,
		"runtimeType":        runtimeType,
		"runtimeSpec":        podSpecOf(pod),
		"cniResult":          resultOf(pod),
		"config":             podConfigOf(pod),
		"netns":              pod.Pins.Net.Path,
		"networks":           pod.Attachments,
		"timeline":           timelineOf(pod),
	}
	if pod.InitPID != 0 {
		info["processStatus"] = "running"
	}
	b, err := json.Marshal(info)
	return map[string]string{"info": string(b)}, err
}

// timelineOf returns the milliseconds of each stage.
func timelineOf(pod *sandbox.Pod) map[string]float64 {
	stages := map[string]float64{}
	for _, stage := range pod.Timeline {
		stages[stage.Name] = float64(stage.Took.Microseconds()) / 1000
	}
	return stages
}

// podSpecOf is what scripts look for in the spec of a sandbox's process, which most
// of our pods have not: where the namespaces are that its containers share.
func podSpecOf(pod *sandbox.Pod) *specs.Spec {
	spec := &specs.Spec{Version: specs.Version, Annotations: pod.Spec.Annotations, Linux: &specs.Linux{Sysctl: pod.Spec.Sysctls}}
	if pod.Pins.UTS.Path != "" {
		spec.Hostname = pod.Spec.Hostname
	}
	for _, ns := range []specs.LinuxNamespace{
		{Type: specs.NetworkNamespace, Path: pod.Pins.Net.Path},
		{Type: specs.IPCNamespace, Path: pod.Pins.IPC.Path},
		{Type: specs.UTSNamespace, Path: pod.Pins.UTS.Path},
	} {
		if ns.Path != "" {
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, ns)
		}
	}
	return spec
}

// cniResult has the form of go-cni's Result, for networks of ours as well.
type cniResult struct {
	Interfaces map[string]cniInterface
	DNS        []network.DNS
	Routes     []cniRoute
}

type cniInterface struct {
	IPConfigs []cniAddress
	Mac       string
	Sandbox   string
}

// cniAddress has texts: "" stands for a gateway that there is not.
type cniAddress struct{ IP, Gateway string }

type cniRoute struct {
	Dst string `json:"dst"`
	GW  string `json:"gw,omitempty"`
}

// resultOf says how the pod is connected, as containerd tells it; nil for a pod in
// the host's network, and for one that has given its addresses back.
func resultOf(pod *sandbox.Pod) *cniResult {
	if len(pod.Attachments) == 0 || pod.Released {
		return nil
	}
	result := &cniResult{Interfaces: map[string]cniInterface{"lo": {
		IPConfigs: []cniAddress{{IP: "127.0.0.1"}, {IP: "::1"}}, Mac: "00:00:00:00:00:00", Sandbox: pod.Pins.Net.Path,
	}}}
	for _, a := range pod.Attachments {
		link := cniInterface{Mac: a.MAC, Sandbox: pod.Pins.Net.Path}
		for _, address := range a.Addresses {
			link.IPConfigs = append(link.IPConfigs, cniAddressOf(address.Addr(), a.Gateways))
		}
		result.Interfaces[a.Interface] = link
	}
	for _, gw := range pod.Attachments[0].Gateways { // the first link has the default routes
		all := map[bool]string{true: "0.0.0.0/0", false: "::/0"}[gw.Is4()]
		result.Routes = append(result.Routes, cniRoute{Dst: all, GW: gw.String()})
	}
	return result
}

// cniAddressOf pairs an address with the gateway of its family.
func cniAddressOf(address netip.Addr, gateways []netip.Addr) cniAddress {
	config := cniAddress{IP: address.String()}
	for _, gw := range gateways {
		if gw.Is4() == address.Is4() {
			config.Gateway = gw.String()
		}
	}
	return config
}

// podConfigOf is what was asked, as far as people look for it.
func podConfigOf(pod *sandbox.Pod) *runtime.PodSandboxConfig {
	config := &runtime.PodSandboxConfig{
		Metadata:     metadataOf(pod),
		Hostname:     pod.Spec.Hostname,
		LogDirectory: pod.Spec.LogDirectory,
		DnsConfig:    &runtime.DNSConfig{Servers: pod.Spec.DNS.Servers, Searches: pod.Spec.DNS.Searches, Options: pod.Spec.DNS.Options},
		Labels:       pod.Spec.Labels,
		Annotations:  pod.Spec.Annotations,
		Linux: &runtime.LinuxPodSandboxConfig{
			CgroupParent: pod.Spec.CgroupParent,
			Sysctls:      pod.Spec.Sysctls,
			SecurityContext: &runtime.LinuxSandboxSecurityContext{
				NamespaceOptions: optionsOf(pod.Spec.Namespaces), Privileged: pod.Spec.Privileged,
			},
		},
	}
	protocols := map[network.Protocol]runtime.Protocol{
		network.TCP: runtime.Protocol_TCP, network.UDP: runtime.Protocol_UDP, network.SCTP: runtime.Protocol_SCTP,
	}
	for _, port := range pod.Spec.Ports {
		mapping := &runtime.PortMapping{
			Protocol: protocols[port.Protocol], HostPort: int32(port.HostPort), ContainerPort: int32(port.ContainerPort),
		}
		if port.HostIP.IsValid() {
			mapping.HostIp = port.HostIP.String()
		}
		config.PortMappings = append(config.PortMappings, mapping)
	}
	return config
}
