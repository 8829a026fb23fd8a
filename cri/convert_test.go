package cri

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/sandbox"
)

func request(change func(*runtime.PodSandboxConfig)) *runtime.RunPodSandboxRequest {
	cfg := &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: "web", Uid: "u", Namespace: "default", Attempt: 2},
		Linux: &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
		}},
	}
	change(cfg)
	return &runtime.RunPodSandboxRequest{Config: cfg}
}

func options(c *runtime.PodSandboxConfig) *runtime.NamespaceOption {
	return c.Linux.SecurityContext.NamespaceOptions
}

func TestBadRequestsAreRefusedWithTheFieldsName(t *testing.T) {
	port := func(p *runtime.PortMapping) func(*runtime.PodSandboxConfig) {
		return func(c *runtime.PodSandboxConfig) { c.PortMappings = []*runtime.PortMapping{p} }
	}
	for field, change := range map[string]func(*runtime.PodSandboxConfig){
		"metadata":       func(c *runtime.PodSandboxConfig) { c.Metadata = nil },
		"protocol":       port(&runtime.PortMapping{Protocol: 9, HostPort: 80, ContainerPort: 80}),
		"host_port":      port(&runtime.PortMapping{HostPort: 70000, ContainerPort: 80}),
		"container_port": port(&runtime.PortMapping{HostPort: 80}),
		"host_ip":        port(&runtime.PortMapping{HostPort: 80, ContainerPort: 80, HostIp: "1.2.3"}),
		"pid":            func(c *runtime.PodSandboxConfig) { options(c).Pid = runtime.NamespaceMode_TARGET },
		"network":        func(c *runtime.PodSandboxConfig) { options(c).Network = 7 },
		"ipc":            func(c *runtime.PodSandboxConfig) { options(c).Ipc = runtime.NamespaceMode_CONTAINER },
		"userns_options": func(c *runtime.PodSandboxConfig) { options(c).UsernsOptions = &runtime.UserNamespace{} },
	} {
		_, err := specFrom(request(change))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestNilEverywhereIsNoPanic(t *testing.T) {
	for _, req := range []*runtime.RunPodSandboxRequest{
		{}, {Config: &runtime.PodSandboxConfig{}},
		{Config: &runtime.PodSandboxConfig{Metadata: &runtime.PodSandboxMetadata{}, PortMappings: []*runtime.PortMapping{nil}}},
	} {
		if _, err := specFrom(req); err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", req, err)
		}
	}
}

func TestPortsWithoutAHostPortMapNothing(t *testing.T) {
	got, err := portsFrom([]*runtime.PortMapping{
		{ContainerPort: 80},
		{Protocol: runtime.Protocol_UDP, ContainerPort: 53, HostPort: 5353, HostIp: "::ffff:10.0.0.1"},
	})
	want := []network.PortMapping{{
		Protocol: network.UDP, HostIP: netip.MustParseAddr("10.0.0.1"), HostPort: 5353, ContainerPort: 53,
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNamespaceOptionsAreEchoed(t *testing.T) {
	const pod, container, node = runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER, runtime.NamespaceMode_NODE
	for _, want := range []*runtime.NamespaceOption{
		{Network: pod, Pid: container, Ipc: pod},
		{Network: pod, Pid: pod, Ipc: pod},
		{Network: node, Pid: container, Ipc: pod},
		{Network: node, Pid: node, Ipc: node},
	} {
		ns, err := namespacesFrom(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := optionsOf(ns); got.Network != want.Network || got.Pid != want.Pid || got.Ipc != want.Ipc {
			t.Errorf("%v is echoed as %v", want, got)
		}
	}
	if ns, err := namespacesFrom(nil); err != nil || ns.SharedPID {
		t.Errorf("no options at all ask for %+v, %v", ns, err)
	}
}

func TestStatusHasTheAddressesOfTheFirstLinkInOrder(t *testing.T) {
	prefixes := func(texts ...string) (ps []netip.Prefix) {
		for _, text := range texts {
			ps = append(ps, netip.MustParsePrefix(text))
		}
		return ps
	}
	pod := &sandbox.Pod{State: sandbox.Ready, Attachments: []network.Attachment{
		{Interface: "eth0", Addresses: prefixes("10.0.0.2/24", "fd00::2/64")},
		{Interface: "eth1", Addresses: prefixes("10.1.0.2/24")},
	}}
	got := statusOf(pod).Network
	if got.Ip != "10.0.0.2" || len(got.AdditionalIps) != 1 || got.AdditionalIps[0].Ip != "fd00::2" {
		t.Errorf("got %v", got)
	}
	pod.Released = true
	if got := statusOf(pod).Network; got.Ip != "" {
		t.Errorf("a released pod has %v", got)
	}
}

func TestParseCIDRsTakesWhatKubeletsSend(t *testing.T) {
	for text, want := range map[string]string{
		"10.244.1.0/24":                       "[10.244.1.0/24]",
		"10.244.1.0/24,fd00:10:244:1::/64":    "[10.244.1.0/24 fd00:10:244:1::/64]",
		" fd00:10:244:1::/64 , 10.244.1.0/24": "[fd00:10:244:1::/64 10.244.1.0/24]",
		"10.244.1.7/24":                       "[10.244.1.0/24]",
	} {
		if got, err := parseCIDRs(text); err != nil || strings.Join(strings.Fields(sprint(got)), " ") != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"garbage", "10.0.0.0/8,10.1.0.0/16", "10.0.0.0/8,,", "10.0.0.0"} {
		if got, err := parseCIDRs(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func sprint(ps []netip.Prefix) string {
	var texts []string
	for _, p := range ps {
		texts = append(texts, p.String())
	}
	return "[" + strings.Join(texts, " ") + "]"
}
