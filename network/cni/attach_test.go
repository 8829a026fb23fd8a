package cni_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/cni"
	"github.com/crib-runtime/crib/network/netns"
)

func TestAttachGivesEachNetworkItsOwnInterface(t *testing.T) {
	n := newNode(t)
	n.shared("blue0")
	n.write("10-blue.conflist", blue)
	n.write("20-green.conflist", green)
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	if len(attached) != 2 {
		t.Fatalf("%d attachments; want 2", len(attached))
	}
	for i, subnet := range []string{"10.88.0.0/24", "10.89.0.0/24"} {
		a := attached[i]
		addresses, mac := n.inside(pod, network.InterfaceName(i))
		if len(a.Addresses) != 1 || !slices.Equal(addresses, []string{a.Addresses[0].String()}) || a.MAC != mac {
			t.Errorf("%s: recorded %v %s; the kernel has %v %s", a.Interface, a.Addresses, a.MAC, addresses, mac)
		}
		want := netip.MustParsePrefix(subnet)
		if a.Addresses[0].Masked() != want || !slices.Equal(a.Gateways, []netip.Addr{want.Addr().Next()}) {
			t.Errorf("%s: address %v by %v; want one of %v", a.Interface, a.Addresses, a.Gateways, want)
		}
		if _, err := net.InterfaceByName(a.HostInterface); err != nil || a.HostInterface == "blue0" {
			t.Errorf("%s: the host's end %q is not there: %v", a.Interface, a.HostInterface, err)
		}
	}
	n.must(networks.Detach(t.Context(), pod, attached))
}

func TestDetachLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.shared("blue0")
	n.write("10-blue.conflist", blue)
	n.write("20-green.conflist", green)
	networks, pod := n.open(), n.pod("a")
	pod.Ports = []network.PortMapping{{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80}}
	attached := n.attach(networks, pod)
	if rules := n.command("nft", "list", "ruleset"); !strings.Contains(rules, "8080") || !strings.Contains(rules, "10.88.0.") {
		t.Fatalf("neither port nor masquerade rule was made:\n%s", rules)
	}
	n.must(networks.Detach(t.Context(), pod, attached))
	n.must(networks.Detach(t.Context(), pod, attached)) // idempotent
	if left := n.reserved(); len(left) > 0 {
		t.Errorf("addresses still reserved: %v", left)
	}
	if rules := n.command("nft", "list", "ruleset"); strings.Contains(rules, "8080") || strings.Contains(rules, "10.88.0.") {
		t.Errorf("rules left:\n%s", rules)
	}
	for _, a := range attached {
		if _, err := net.InterfaceByName(a.HostInterface); err == nil {
			t.Errorf("link %s left", a.HostInterface)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(n.cache, "results", "*")); len(left) > 0 {
		t.Errorf("plugin cache left: %v", left)
	}
}

func TestDetachGoesByTheRecord(t *testing.T) {
	for name, damage := range map[string]func(n *node, pod network.Pod){
		"conflist deleted": func(n *node, _ network.Pod) { n.must(os.Remove(filepath.Join(n.conf, "10-blue.conflist"))) },
		"conflist changed": func(n *node, _ network.Pod) {
			n.write("10-blue.conflist", strings.ReplaceAll(blue, "DATA", "/nonexistent"))
		},
		"directory deleted": func(n *node, _ network.Pod) { n.must(os.RemoveAll(n.conf)) },
		"cache deleted":     func(n *node, _ network.Pod) { n.must(os.RemoveAll(n.cache)) },
		"cache empty":       func(n *node, _ network.Pod) { overwriteCache(n, "") },
		"cache corrupt":     func(n *node, _ network.Pod) { overwriteCache(n, `{"kind": "cniCacheV1", "result": {"ips": 7}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.shared("blue0")
			n.write("10-blue.conflist", blue)
			networks, pod := n.open(), n.pod("a")
			pod.Ports = []network.PortMapping{{Protocol: network.UDP, HostPort: 5353, ContainerPort: 53}}
			attached := n.attach(networks, pod)
			damage(n, pod)
			networks = n.open()
			n.must(networks.Detach(t.Context(), pod, attached))
			if left := n.reserved(); len(left) > 0 {
				t.Errorf("addresses still reserved: %v", left)
			}
			if rules := n.command("nft", "list", "ruleset"); strings.Contains(rules, "5353") {
				t.Errorf("rules left:\n%s", rules)
			}
		})
	}
}

func overwriteCache(n *node, text string) {
	files, err := filepath.Glob(filepath.Join(n.cache, "results", "*"))
	if err != nil || len(files) == 0 {
		n.t.Fatalf("no plugin cache: %v", err)
	}
	for _, f := range files {
		n.must(os.WriteFile(f, []byte(text), 0o600))
	}
}

func TestDetachNeedsNoNamespace(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"pin removed": func(path string) error { return netns.Remove(netns.Pins{Net: netns.Pin{Path: path}}) },
		"empty file instead": func(path string) error {
			return errors.Join(netns.Remove(netns.Pins{Net: netns.Pin{Path: path}}), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write("20-green.conflist", green)
			networks, pod := n.open(), n.pod("a")
			attached := n.attach(networks, pod)
			n.must(damage(pod.Netns))
			n.must(networks.Detach(t.Context(), pod, attached))
			if left := n.reserved(); len(left) > 0 {
				t.Errorf("addresses still reserved: %v", left)
			}
		})
	}
}

func TestDetachIgnoresTheCallersDeadline(t *testing.T) {
	n := newNode(t)
	n.write("20-green.conflist", green)
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.must(networks.Detach(ctx, pod, attached))
	if left := n.reserved(); len(left) > 0 {
		t.Errorf("addresses still reserved: %v", left)
	}
}

func TestDetachGoesOnAfterAFailure(t *testing.T) {
	n := newNode(t)
	n.script("stubborn", answer+"\n[ $CNI_COMMAND != DEL ] || { echo '{\"code\": 7, \"msg\": \"no way\"}'; exit 1; }")
	n.write("10-green.conflist", green)
	n.write("20-bad.conflist", spy("bad", "stubborn"))
	n.write("30-teal.conflist", strings.NewReplacer("green", "teal", "10.89", "10.90").Replace(green))
	networks, pod := n.open(), n.pod("a")
	err := networks.Detach(t.Context(), pod, n.attach(networks, pod))
	if err == nil || err.Error() != "detach network bad from eth1: plugin stubborn: DEL: no way" {
		t.Errorf("error %v; want one that names network, interface, plugin and cause", err)
	}
	if left := n.reserved(); len(left) > 0 {
		t.Errorf("addresses of the other networks still reserved: %v", left)
	}
}

func TestDetachIsInReverseOrder(t *testing.T) {
	n := newNode(t)
	n.script("spy", answer)
	for _, name := range []string{"x", "y", "z"} {
		n.write(name+".conflist", spy(name, "spy"))
	}
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	n.must(os.Remove(n.log))
	n.must(networks.Detach(t.Context(), pod, attached))
	if got := strings.Join(n.calls(), ", "); got != "spy DEL eth2, spy DEL eth1, spy DEL eth0" {
		t.Errorf("calls: %s", got)
	}
}

func TestFailedAddRemovesEveryNetwork(t *testing.T) {
	n := newNode(t)
	n.script("broken", "[ $CNI_COMMAND != ADD ] || { echo 'disk on fire' >&2; exit 3; }")
	n.write("10-green.conflist", green)
	n.write("20-bad.conflist", spy("bad", "broken"))
	networks, pod := n.open(), n.pod("a")
	planned, err := networks.Plan(pod, 0)
	n.must(err)
	_, err = networks.Attach(t.Context(), pod, planned, keep)
	if err == nil || !strings.HasPrefix(err.Error(), "attach network bad as eth1: ") || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("error %v; want one that names the network and the cause", err)
	}
	if left := n.reserved(); len(left) > 0 {
		t.Errorf("addresses still reserved: %v", left)
	}
	if got := n.calls(); !slices.Equal(got, []string{"broken ADD eth1", "broken DEL eth1"}) {
		t.Errorf("calls: %v", got)
	}
}

func TestHungPluginIsKilledWithItsChildren(t *testing.T) {
	n := newNode(t)
	// The grandchildren ignore a polite end and hold the output open.
	n.script("hung", `trap '' TERM
[ $CNI_COMMAND != ADD ] || { (trap '' TERM; sleep 1000) & sleep 1000; }`)
	n.write("10-hung.conflist", spy("hung", "hung"))
	networks := n.open(func(c *cni.Config) { c.Timeout = 300 * time.Millisecond })
	pod := n.pod("a")
	planned, err := networks.Plan(pod, 0)
	n.must(err)
	_, err = networks.Attach(t.Context(), pod, planned, keep)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "plugin hung ") {
		t.Errorf("error %v; want one of a deadline that names the plugin", err)
	}
	// That no process is left is seen by the check at the end of each test.
}

func TestMissingPluginIsNamedAndWorthARetry(t *testing.T) {
	n := newNode(t)
	n.script("spy", answer)
	n.write("10-x.conflist", spy("x", "spy"))
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	hidden := filepath.Join(n.t.TempDir(), "spy")
	n.must(os.Rename(filepath.Join(n.bin, "spy"), hidden))
	err := networks.Detach(t.Context(), pod, attached)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "find plugin spy") || !strings.Contains(err.Error(), n.bin) {
		t.Errorf("error %v; want ErrUnavailable with the plugin and the directories", err)
	}
	n.must(os.Rename(hidden, filepath.Join(n.bin, "spy")))
	n.must(networks.Detach(t.Context(), pod, attached))
}

func TestAttachAgainIsNoOp(t *testing.T) {
	n := newNode(t)
	n.script("spy", answer)
	n.write("10-x.conflist", spy("x", "spy"))
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	networks = n.open() // the daemon was restarted
	again, err := networks.Attach(t.Context(), pod, attached, keep)
	n.must(err)
	if len(again) != 1 || !slices.Equal(again[0].Addresses, attached[0].Addresses) {
		t.Errorf("attachments changed: %v", again)
	}
	if got := n.calls(); len(got) != 1 {
		t.Errorf("calls: %v; want ADD alone", got)
	}
}

func TestInterruptedAddIsUndoneFirst(t *testing.T) {
	n := newNode(t)
	n.script("spy", answer)
	n.write("10-x.conflist", spy("x", "spy"))
	networks, pod := n.open(), n.pod("a")
	planned, err := networks.Plan(pod, 0)
	n.must(err)
	var recorded []network.Attachment
	crash := errors.New("crash")
	_, err = networks.Attach(t.Context(), pod, planned, func(a []network.Attachment) error {
		recorded = slices.Clone(a)
		return crash
	})
	if !errors.Is(err, crash) || n.calls()[0] != "" {
		t.Fatalf("error %v, calls %v; want no plugin before the record is saved", err, n.calls())
	}
	_, err = networks.Attach(t.Context(), pod, recorded, keep)
	n.must(err)
	if got := n.calls(); !slices.Equal(got, []string{"spy DEL eth0", "spy ADD eth0"}) {
		t.Errorf("calls: %v", got)
	}
}

func TestPluginsGetWhatContainerdGives(t *testing.T) {
	n := newNode(t)
	n.script("spy", "echo \"$CNI_ARGS\" >>$LOG; cat >>$LOG; "+answer)
	n.write("10-x.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "spy", "capabilities": {
		"portMappings": true, "bandwidth": true, "dns": true, "cgroupPath": true, "io.kubernetes.cri.pod-annotations": true, "mac": true}}]}`)
	networks, pod := n.open(), n.pod("a")
	pod.CgroupParent = "/kubepods/a"
	pod.DNS = network.DNS{Servers: []string{"10.96.0.10"}}
	pod.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M"}
	pod.Ports = []network.PortMapping{
		{Protocol: network.TCP, HostPort: 80, ContainerPort: 8080, HostIP: netip.MustParseAddr("127.0.0.1")},
		{Protocol: network.TCP, ContainerPort: 9090},
	}
	n.attach(networks, pod)
	got := n.calls()
	if want := "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_INFRA_CONTAINER_ID=" + pod.ID +
		";K8S_POD_UID=uid-a"; got[1] != want {
		t.Errorf("CNI_ARGS\n got %s\nwant %s", got[1], want)
	}
	want := `"runtimeConfig":{"bandwidth":{"IngressRate":10000000,"IngressBurst":4294967295,"EgressRate":0,"EgressBurst":0},` +
		`"cgroupPath":"/kubepods/a","dns":{"Servers":["10.96.0.10"],"Searches":null,"Options":null},` +
		`"io.kubernetes.cri.pod-annotations":{"kubernetes.io/ingress-bandwidth":"10M"},` +
		`"portMappings":[{"HostPort":80,"ContainerPort":8080,"Protocol":"tcp","HostIP":"127.0.0.1"}]}`
	if !strings.Contains(got[2], want) {
		t.Errorf("configuration\n got %s\nwant %s", got[2], want)
	}
}

func TestRestoreSweepsWhatNoRecordNames(t *testing.T) {
	n := newNode(t)
	n.write("20-green.conflist", green)
	networks := n.open()
	kept, lost := n.pod("kept"), n.pod("lost")
	held := network.Held{Pod: kept, Attachments: n.attach(networks, kept)}
	n.attach(networks, lost)
	networks = n.open()
	n.must(networks.Restore(t.Context(), []network.Held{held}))
	if got := n.reserved(); !slices.Equal(got, []string{held.Attachments[0].Addresses[0].Addr().String()}) {
		t.Errorf("reserved: %v; want the address of the pod on record alone", got)
	}
	n.must(networks.Detach(t.Context(), held.Pod, held.Attachments))
}

func TestUnreadableRecordDoesNotKeepTheOtherNetworks(t *testing.T) {
	n := newNode(t)
	n.script("spy", answer)
	n.write("10-x.conflist", spy("x", "spy"))
	n.write("20-green.conflist", green)
	networks, pod := n.open(), n.pod("a")
	attached := n.attach(networks, pod)
	attached[0].Detail = []byte(`{"conflist": 7}`)
	err := networks.Detach(t.Context(), pod, attached)
	if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "network x on eth0") {
		t.Errorf("error %v; want ErrDataLoss with network and interface", err)
	}
	if left := n.reserved(); len(left) > 0 {
		t.Errorf("addresses of the other network still reserved: %v", left)
	}
}
