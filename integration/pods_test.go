package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network/netns"
)

func TestPodsReachEachOtherAndTheHostInBothFamilies(t *testing.T) {
	c := start(t, defaults)
	a, aIPs := c.pod(c.Pod("a"))
	b, bIPs := c.pod(c.Pod("b"))
	if len(aIPs) != 2 || !aIPs[0].Is4() || !aIPs[1].Is6() {
		t.Fatalf("pod a has %v", aIPs)
	}
	gateways := []netip.Addr{netip.MustParseAddr("10.85.0.1"), netip.MustParseAddr("fd85::1")}
	for i := range aIPs {
		for _, ping := range []struct {
			from string
			to   netip.Addr
		}{
			{lab.Netns(a), bIPs[i]}, {lab.Netns(b), aIPs[i]}, {lab.Host, aIPs[i]}, {lab.Netns(a), gateways[i]}, {lab.Netns(a), aIPs[i]},
		} {
			if _, err := lab.Ping(ping.from, ping.to); err != nil {
				t.Errorf("ping from %q to %s: %v", ping.from, ping.to, err)
			}
		}
	}
}

// TestHostPort has an outside host, to see what comes in by the uplink.
func TestHostPort(t *testing.T) {
	c := start(t, defaults)
	outside := outsideHost(t, c)
	web := c.Pod("web")
	web.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: 8080}}
	id, ips := c.pod(web)
	other, _ := c.pod(c.Pod("other"))
	c.listen(lab.Netns(id), 80, "web")

	t.Run("answers everywhere", func(t *testing.T) {
		for from, ns := range map[string]string{"host": lab.Host, "outside": outside, "another pod": lab.Netns(other), "the pod itself": lab.Netns(id)} {
			t.Log("from", from)
			c.answers(ns, "192.0.2.1:8080", "web")
		}
		c.answers(lab.Host, "127.0.0.1:8080", "web")
		c.answers(lab.Host, "[2001:db8::1]:8080", "web")
		c.answers(outside, "[2001:db8::1]:8080", "web")
		c.answers(lab.Netns(other), "[2001:db8::1]:8080", "web")
		c.answers(lab.Netns(id), "[2001:db8::1]:8080", "web")
		c.answers(lab.Host, ips[0].String()+":80", "web")
	})
	t.Run("the host's loopback is closed to others", func(t *testing.T) {
		c.listen(lab.Host, 9090, "host")
		c.answers(lab.Host, "127.0.0.1:9090", "host")
		// Who wants in routes the host's loopback addresses to it.
		for ns, via := range map[string]string{outside: "192.0.2.1", lab.Netns(other): "10.85.0.1"} {
			if err := netns.Do(ns, func() error {
				return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
			}); err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(ns)
			c.host("ip", "netns", "exec", name, "ip", "route", "del", "local", "127.0.0.0/8", "table", "local")
			c.host("ip", "netns", "exec", name, "ip", "route", "del", "local", "127.0.0.1", "table", "local")
			c.host("ip", "netns", "exec", name, "ip", "route", "add", "127.0.0.0/8", "via", via)
			c.refuses(ns, "127.0.0.1:9090")
			c.refuses(ns, "127.0.0.1:8080")
		}
	})
	t.Run("a second pod with the port is refused by name", func(t *testing.T) {
		thief := c.Pod("thief")
		thief.PortMappings = web.PortMappings
		_, err := c.Run(t.Context(), thief)
		if err == nil || !strings.Contains(err.Error(), "8080") || !strings.Contains(err.Error(), id[:12]) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("is gone with the pod", func(t *testing.T) {
		if err := c.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		c.refuses(lab.Host, "192.0.2.1:8080")
	})
}

// outsideHost makes a host that is connected by an uplink and returns its
// namespace. The lab's end has 192.0.2.1 and 2001:db8::1.
func outsideHost(t *testing.T, c *crib) string {
	t.Helper()
	c.host("ip", "netns", "add", "outside")
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", "outside").Run() })
	c.host("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", "outside")
	in := []string{"netns", "exec", "outside", "ip"}
	for _, args := range [][]string{
		{"addr", "add", "192.0.2.1/24", "dev", "uplink"},
		{"addr", "add", "2001:db8::1/64", "dev", "uplink", "nodad"},
		{"link", "set", "uplink", "up"},
		append(in, "addr", "add", "192.0.2.9/24", "dev", "eth0"),
		append(in, "addr", "add", "2001:db8::9/64", "dev", "eth0", "nodad"),
		append(in, "link", "set", "eth0", "up"),
		append(in, "link", "set", "lo", "up"),
	} {
		c.host("ip", args...)
	}
	return "/run/netns/outside"
}

func TestPodsLeaveByMasquerade(t *testing.T) {
	c := start(t, defaults)
	outside := outsideHost(t, c)
	id, _ := c.pod(c.Pod("a"))
	c.listen(outside, 80, "world")
	c.answers(lab.Netns(id), "192.0.2.9:80", "world")
	c.answers(lab.Netns(id), "[2001:db8::9]:80", "world")
}

func TestFullRangeIsAClearErrorAndTheNodeStaysReady(t *testing.T) {
	c := start(t, strings.Replace(defaults, `"10.85.0.0/24", "fd85::/64"`, `"10.85.0.0/29"`, 1))
	var ids []string
	for i := range 5 { // .2 to .6
		id, _ := c.pod(c.Pod(fmt.Sprint("p", i)))
		ids = append(ids, id)
	}
	_, err := c.Run(t.Context(), c.Pod("more"))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "10.85.0.0/29") {
		t.Errorf("the sixth pod: %v", err)
	}
	if ready := c.condition(runtime.NetworkReady); !ready.Status || !strings.Contains(ready.Message, "10.85.0.0/29") {
		t.Errorf("with a full range: %v", ready)
	}
	if err := c.Remove(t.Context(), ids[2]); err != nil {
		t.Fatal(err)
	}
	if _, ips := c.pod(c.Pod("more")); ips[0].String() != "10.85.0.4" {
		t.Errorf("the next pod has %v, free was 10.85.0.4", ips)
	}
}

func TestWithoutAPodCIDROnlyPodsInTheHostsNetworkRun(t *testing.T) {
	c := start(t, strings.Replace(defaults, `cidrs = ["10.85.0.0/24", "fd85::/64"]`, "", 1))
	if ready := c.condition(runtime.NetworkReady); ready.Status || ready.Reason != "NoPodCIDR" {
		t.Errorf("NetworkReady is %v", ready)
	}
	if _, err := c.Run(t.Context(), c.Pod("a")); err == nil || !strings.Contains(err.Error(), "CIDR") {
		t.Errorf("a pod with a network of its own: %v", err)
	}
	host := c.Pod("host")
	host.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
	id, ips := c.pod(host)
	if len(ips) > 0 {
		t.Errorf("it has %v", ips)
	}
	if got := c.status(id).Linux.Namespaces.Options.Network; got != runtime.NamespaceMode_NODE {
		t.Errorf("its network mode is echoed as %s", got)
	}
}

func TestTheKubeletsPodCIDROutlivesARestart(t *testing.T) {
	c := start(t, strings.Replace(defaults, `cidrs = ["10.85.0.0/24", "fd85::/64"]`, "", 1))
	for range 2 { // a repeat changes nothing
		_, err := c.UpdateRuntimeConfig(t.Context(), &runtime.UpdateRuntimeConfigRequest{RuntimeConfig: &runtime.RuntimeConfig{
			NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.7.0/24,fd00:10:244:7::/64"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, ips := c.pod(c.Pod("a")); fmt.Sprint(ips) != "[10.244.7.2 fd00:10:244:7::2]" {
		t.Errorf("pod a has %v", ips)
	}
	if err := errors.Join(c.Terminate(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, ips := c.pod(c.Pod("b")); fmt.Sprint(ips) != "[10.244.7.3 fd00:10:244:7::3]" {
		t.Errorf("after a restart pod b has %v", ips)
	}
}

func TestSemanticsOfTheContract(t *testing.T) {
	c := start(t, defaults)
	ctx := t.Context()
	cfg := c.Pod("a")
	cfg.Metadata.Attempt = 3
	cfg.Annotations = map[string]string{"note": "echoed"}
	id, _ := c.pod(cfg)
	if again, _ := c.pod(cfg); again != id {
		t.Errorf("a retry made pod %s beside %s", again, id)
	}
	got := c.status(id)
	if got.Metadata.Attempt != 3 || got.Annotations["note"] != "echoed" || got.Labels["io.kubernetes.pod.name"] != "a" || got.CreatedAt == 0 {
		t.Errorf("not echoed: %v", got)
	}
	unknown := strings.Repeat("0", 64)
	if _, err := c.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: unknown}); status.Code(err) != codes.NotFound {
		t.Errorf("status of an unknown pod: %v", err)
	}
	if err := c.Remove(ctx, unknown); err != nil {
		t.Errorf("stop and remove of an unknown pod: %v", err)
	}
	for range 2 {
		if _, err := c.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if stopped := c.status(id); stopped.State != runtime.PodSandboxState_SANDBOX_NOTREADY || stopped.Network.Ip != "" {
		t.Errorf("a stopped pod is %v", stopped)
	}
	next, _ := c.pod(cfg)
	if next == id {
		t.Error("Run gave a stopped pod")
	}
	list, err := c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		State:         &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": "a"},
	}})
	if err != nil || len(list.Items) != 1 || list.Items[0].Id != next {
		t.Errorf("the filter left %v, %v", list, err)
	}
	if _, err := c.Run(ctx, &runtime.PodSandboxConfig{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a pod without metadata: %v", err)
	}
	version, err := c.Version(ctx, &runtime.VersionRequest{Version: "0.1.0"})
	if err != nil || version.Version != "0.1.0" || version.RuntimeName != "crib" || version.RuntimeApiVersion != "v1" || version.RuntimeVersion == "" {
		t.Errorf("version: %v, %v", version, err)
	}
}

func TestTheLongestNamesThatKubernetesAllows(t *testing.T) {
	c := start(t, defaults)
	cfg := c.Pod("a")
	cfg.Hostname = strings.Repeat("h", 63)
	cfg.Metadata.Name, cfg.Metadata.Namespace = strings.Repeat("n", 253), strings.Repeat("s", 63)
	id, ips := c.pod(cfg)
	if _, err := lab.Ping(lab.Host, ips[0]); err != nil {
		t.Error(err)
	}
	if aliases := c.host("ip", "link", "show", "type", "veth"); !strings.Contains(aliases, id[:12]) {
		t.Errorf("its link does not tell whose it is: %s", aliases)
	}
}

func TestAPodHasItsHostnameSysctlsAndFiles(t *testing.T) {
	c := start(t, defaults)
	cfg := c.Pod("a")
	cfg.Hostname = "named"
	cfg.Linux.Sysctls = map[string]string{"net.core.somaxconn": "77", "kernel.msgmax": "7777"}
	cfg.DnsConfig = &runtime.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"svc"}}
	id, _ := c.pod(cfg)
	dir := filepath.Join(lab.State, "pods", id)
	for file, want := range map[string]string{"hostname": "named\n", "resolv.conf": "search svc\nnameserver 10.96.0.10\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", file, got, err)
		}
	}
	enter := []string{"--net=" + lab.Netns(id), "--ipc=" + dir + "/ns/ipc", "--uts=" + dir + "/ns/uts", "sh", "-c",
		"hostname; cat /proc/sys/net/core/somaxconn /proc/sys/kernel/msgmax /proc/sys/net/ipv4/ip_unprivileged_port_start"}
	if got := c.host("nsenter", enter...); got != "named\n77\n7777\n0\n" {
		t.Errorf("inside: %q", got)
	}
	if err := c.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left := mountsOf(t, lab.State+"/pods"); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

func TestASharedPIDPodHasAnInitThatARestartLeavesAlone(t *testing.T) {
	c := start(t, defaults)
	cfg := c.Pod("a")
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	id, _ := c.pod(cfg)
	pid := c.initPID(id)
	if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || link == "" {
		t.Fatalf("its init %d: %v", pid, err)
	}
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(cgroup), cfg.Linux.CgroupParent+"/"+id) {
		t.Errorf("its init is in %s, %v", cgroup, err)
	}
	if err := errors.Join(c.Kill(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if again := c.initPID(id); again != pid {
		t.Errorf("after a restart its init is %d, not %d", again, pid)
	}
	if err := c.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its init lives on: %v", err)
	}
}

func (c *crib) initPID(id string) int {
	c.t.Helper()
	resp, err := c.PodSandboxStatus(c.t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		c.t.Fatal(err)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil || info.PID == 0 {
		c.t.Fatalf("info %s: %v", resp.Info["info"], err)
	}
	return info.PID
}

func TestCrictlRunsThePodOfTheReadme(t *testing.T) {
	c := start(t, defaults)
	path, err := exec.LookPath("crictl")
	if err != nil {
		t.Fatal("crictl is not in PATH: make tools builds it, make test puts it there")
	}
	crictl := func(args ...string) string {
		return strings.TrimSpace(c.host(path, append([]string{"--config", "testdata/crictl.yaml", "--runtime-endpoint", "unix://" + lab.Socket}, args...)...))
	}
	lines := strings.Split(crictl("runp", "testdata/pod.json"), "\n")
	id := lines[len(lines)-1]
	var inspected struct {
		Status struct{ Network struct{ IP string } }
	}
	if err := json.Unmarshal([]byte(crictl("inspectp", id)), &inspected); err != nil || inspected.Status.Network.IP != "10.85.0.2" {
		t.Errorf("inspectp: %+v, %v", inspected, err)
	}
	if got := crictl("pods", "--quiet"); got != id {
		t.Errorf("pods: %q, want %s", got, id)
	}
	c.listen(lab.Netns(id), 8080, "hello")
	c.answers(lab.Host, "127.0.0.1:18080", "hello")
	crictl("stopp", id[:12])
	crictl("rmp", id)
	if got := crictl("pods", "--quiet"); got != "" {
		t.Errorf("pods: %q", got)
	}
}
