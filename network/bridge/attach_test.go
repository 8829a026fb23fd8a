package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
	"github.com/vishvananda/netlink"
)

// families are the three kinds of nodes.
var families = map[string][]string{
	"v4":   {"10.9.0.0/24"},
	"v6":   {"fd09::/64"},
	"dual": {"10.9.0.0/24", "fd09::/64"},
	"6+4":  {"fd09::/64", "10.9.0.0/24"},
}

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	for kind, cidrs := range families {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t, cidrs...)
			one, atts := l.run("one")
			two, others := l.run("two")
			listen(t, one, ":80")
			listen(t, network.Pod{}, ":81")
			for i, a := range atts[0].Addresses {
				for what, err := range map[string]error{
					"pod to pod":    reaches(two, at(a.Addr(), 80)),
					"host to pod":   reaches(network.Pod{}, at(a.Addr(), 80)),
					"pod to itself": reaches(one, at(a.Addr(), 80)),
					"pod to host":   reaches(two, at(others[0].Gateways[i], 81)),
				} {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
		})
	}
}

func TestPodsHaveAddressesInTheOrderOfTheRanges(t *testing.T) {
	for kind, cidrs := range families {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t, cidrs...)
			_, atts := l.run("one")
			if len(atts[0].Addresses) != len(cidrs) {
				t.Fatalf("addresses %v", atts[0].Addresses)
			}
			for i, a := range atts[0].Addresses {
				if a.Masked() != netip.MustParsePrefix(cidrs[i]) {
					t.Errorf("address %v is not of range %s", a, cidrs[i])
				}
			}
		})
	}
}

func TestPodEndAsIPShowsIt(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, _ := l.run("one")
	eventually(t, "the kernel has noticed the carrier", func() bool {
		return strings.Contains(ip(t, pod, "-br", "link", "show", "dev", "eth0"), " UP ")
	})
	want := map[string]string{
		"-4 route": "default via 10.9.0.1 dev eth0 onlink \n10.9.0.0/24 dev eth0 proto kernel scope link src 10.9.0.2 \n",
		"-br link": "lo UNKNOWN 00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \neth0@IF UP 0a:58:0a:09:00:02 <BROADCAST,MULTICAST,UP,LOWER_UP> \n",
	}
	for args, text := range want {
		if got := squeeze(ip(t, pod, strings.Fields(args)...)); got != text {
			t.Errorf("ip %s:\n%q, want\n%q", args, got, text)
		}
	}
	if got := ip(t, pod, "-6", "route"); !strings.Contains(got, "default via fd09::1 dev eth0 metric 1024 onlink") {
		t.Errorf("IPv6 routes: %s", got)
	}
	if got := ip(t, pod, "-6", "addr", "show", "dev", "eth0"); strings.Contains(got, "tentative") || !strings.Contains(got, "fd09::2/64 scope global nodad") {
		t.Errorf("IPv6 addresses: %s", got)
	}
}

// squeeze takes out what ip pads with, and the index of a link's other end.
func squeeze(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if before, _, ok := strings.Cut(fields[0], "@if"); ok {
			fields[0] = before + "@IF"
		}
		out.WriteString(strings.Join(fields, " ") + " \n")
	}
	return out.String()
}

func TestHostEndTellsThePod(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, atts := l.run("one")
	got := ip(t, network.Pod{}, "-d", "link", "show", "dev", atts[0].HostInterface)
	for _, want := range []string{"alias default/one " + pod.ID[:12], "master crib0", "hairpin on", ",UP", "addrgenmode none", "mtu 1500"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestPodOfIPv4HasNoIPv6(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, _ := l.run("one")
	if got := ip(t, pod, "-6", "addr", "show", "dev", "eth0"); got != "" {
		t.Errorf("IPv6 addresses: %s", got)
	}
	if got := sysctl(t, pod, "net/ipv6/conf/lo/disable_ipv6"); got != "0" {
		t.Errorf("lo has disable_ipv6=%s", got)
	}
}

func TestPodIgnoresRouterAdvertisements(t *testing.T) {
	l := newLab(t, "fd09::/64")
	pod, _ := l.run("one")
	if got := sysctl(t, pod, "net/ipv6/conf/eth0/accept_ra"); got != "0" {
		t.Errorf("accept_ra=%s", got)
	}
	if got := sysctl(t, network.Pod{}, "net/ipv6/conf/crib0/accept_ra"); got != "0" {
		t.Errorf("accept_ra=%s on the bridge", got)
	}
}

func TestMTUIsThatOfTheUplink(t *testing.T) {
	l := newLab(t)
	up := netlink.NewLinkAttrs()
	up.Name, up.MTU = "up0", 1400
	veth := &netlink.Veth{LinkAttrs: up, PeerName: "up1"}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { must(t, netlink.LinkDel(veth)) })
	ip(t, network.Pod{}, "addr", "add", "192.0.2.1/24", "dev", "up0")
	ip(t, network.Pod{}, "link", "set", "up0", "up")
	ip(t, network.Pod{}, "link", "set", "up1", "up")
	ip(t, network.Pod{}, "route", "add", "default", "via", "192.0.2.2")
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24")))
	pod, _ := l.run("one")
	if got := ip(t, pod, "link", "show", "dev", "eth0"); !strings.Contains(got, "mtu 1400") {
		t.Errorf("link: %s", got)
	}
}

func TestAttachTwiceKeepsTheLink(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, atts := l.run("one")
	state := func() string { return ip(t, pod, "addr", "show", "scope", "global") + ip(t, pod, "route") }
	before := stateless.Replace(state())
	again, err := l.n.Attach(t.Context(), pod, atts, l.noSave)
	must(t, err)
	if after := stateless.Replace(state()); after != before || again[0].MAC != atts[0].MAC {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestAttachRepairs(t *testing.T) {
	damages := map[string]func(t *testing.T, pod network.Pod, host string){
		"no address": func(t *testing.T, pod network.Pod, _ string) { ip(t, pod, "addr", "flush", "dev", "eth0") },
		"no route":   func(t *testing.T, pod network.Pod, _ string) { ip(t, pod, "route", "del", "default") },
		"down":       func(t *testing.T, _ network.Pod, host string) { ip(t, network.Pod{}, "link", "set", host, "down") },
		"no master":  func(t *testing.T, _ network.Pod, host string) { ip(t, network.Pod{}, "link", "set", host, "nomaster") },
		"no link":    func(t *testing.T, _ network.Pod, host string) { ip(t, network.Pod{}, "link", "del", host) },
		"wrong MAC": func(t *testing.T, pod network.Pod, _ string) {
			ip(t, pod, "link", "set", "eth0", "address", "02:00:00:00:00:09")
		},
		"no bridge":    func(t *testing.T, _ network.Pod, _ string) { ip(t, network.Pod{}, "link", "del", "crib0") },
		"foreign eth0": replaceByAnother,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "10.9.0.0/24", "fd09::/64")
			pod, atts := l.run("one")
			damage(t, pod, atts[0].HostInterface)
			_, err := l.n.Attach(t.Context(), pod, atts, l.noSave)
			must(t, err)
			listen(t, pod, ":80")
			for _, a := range atts[0].Addresses {
				if err := reaches(network.Pod{}, at(a.Addr(), 80)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// replaceByAnother puts another veth where the pod's was; its other end has the host's name.
func replaceByAnother(t *testing.T, pod network.Pod, host string) {
	ip(t, network.Pod{}, "link", "del", host)
	eventually(t, "the link is gone", func() bool { return !linkThere(t, host) })
	ip(t, network.Pod{}, "link", "add", host, "type", "veth", "peer", "name", "other0")
	t.Cleanup(func() {
		if linkThere(t, "other0") {
			ip(t, network.Pod{}, "link", "del", "other0")
		}
	})
}

func TestAttachInAGoneNamespaceIsNotFound(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod := l.newPod("one")
	atts, err := l.n.Plan(pod, 0)
	must(t, err)
	pod.Netns += "-gone"
	if _, err := l.n.Attach(t.Context(), pod, atts, l.noSave); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

func TestAFullRangeSaysSoUntilAPodEnds(t *testing.T) {
	l := newLab(t, "10.9.0.0/29") // five pods
	var pods []network.Pod
	for i := range 5 {
		pod, _ := l.run(name(i))
		pods = append(pods, pod)
	}
	late := l.newPod("late")
	_, err := l.n.Plan(late, 0)
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "10.9.0.0/29") {
		t.Fatalf("got %v", err)
	}
	if s := l.n.Status(); !s.Ready || !strings.Contains(s.Message, "full") {
		t.Errorf("status %+v", s)
	}
	l.detach(pods[2])
	if atts := l.attach(late); atts[0].Addresses[0] != netip.MustParsePrefix("10.9.0.4/29") {
		t.Errorf("got %v", atts[0].Addresses)
	}
}

func TestAnAddressReservedByAnotherIsReplaced(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	file := filepath.Join(l.cfg.Dir, "10.9.0.2")
	must(t, os.WriteFile(file, []byte("somebody\r\neth0"), 0o600))
	pod := l.newPod("one")
	planned, err := l.n.Plan(pod, 0)
	must(t, err)
	var saved []network.Attachment
	atts, err := l.n.Attach(t.Context(), pod, planned, func(a []network.Attachment) error {
		saved = append([]network.Attachment(nil), a...)
		if linkThere(t, a[0].HostInterface) {
			t.Error("the link was made before the record names its address")
		}
		return nil
	})
	must(t, err)
	if len(saved) != 1 || saved[0].Addresses[0] != netip.MustParsePrefix("10.9.0.3/24") || saved[0].MAC != "0a:58:0a:09:00:03" {
		t.Errorf("saved %+v", saved)
	}
	if planned[0].Addresses[0] != netip.MustParsePrefix("10.9.0.2/24") || atts[0].Addresses[1] != planned[0].Addresses[1] {
		t.Errorf("planned %+v, attached %+v", planned, atts)
	}
	if l.n.Ranges()[0].Refused != 1 {
		t.Errorf("ranges %+v", l.n.Ranges())
	}
	must(t, os.Remove(file))
	l.n.allowFreed()
	if l.n.Ranges()[0].Refused != 0 {
		t.Errorf("ranges %+v", l.n.Ranges())
	}
}

func TestAttachGivesUpWhenTheRecordCannotBeSaved(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	file := filepath.Join(l.cfg.Dir, "10.9.0.2")
	must(t, os.WriteFile(file, []byte("somebody\r\neth0"), 0o600))
	t.Cleanup(func() { must(t, os.Remove(file)) })
	pod := l.newPod("one")
	planned, err := l.n.Plan(pod, 0)
	must(t, err)
	full := errors.New("disk full")
	atts, err := l.n.Attach(t.Context(), pod, planned, func([]network.Attachment) error { return full })
	if !errors.Is(err, full) || linkThere(t, planned[0].HostInterface) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(l.cfg.Dir, atts[0].Addresses[0].Addr().String())); !os.IsNotExist(err) {
		t.Errorf("the address was reserved: %v", err)
	}
}

func TestHostPortsLeadToThePod(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, _ := l.run("one", network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80})
	other, _ := l.run("two")
	listen(t, pod, ":80")
	for _, addr := range []string{"127.0.0.1:8080", "10.9.0.1:8080", "[fd09::1]:8080"} {
		if err := reaches(network.Pod{}, addr); err != nil {
			t.Errorf("from the host: %v", err)
		}
	}
	for _, from := range []network.Pod{pod, other} {
		for _, addr := range []string{"10.9.0.1:8080", "[fd09::1]:8080"} {
			if err := reaches(from, addr); err != nil {
				t.Errorf("from pod %s: %v", from.Name, err)
			}
		}
	}
	clash := l.newPod("three", network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 81})
	if _, err := l.n.Plan(clash, 0); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), pod.ID) {
		t.Errorf("got %v", err)
	}
	if used := l.n.Ranges()[0].Used; used != 2 {
		t.Errorf("%d addresses are used after a plan that came to nothing", used)
	}
	l.detach(pod)
	if err := reaches(network.Pod{}, "127.0.0.1:8080"); err == nil {
		t.Error("the host port is still open")
	}
}

func TestAFullBridgeSaysSo(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	var fill strings.Builder
	for i := range 512 { // both ends are ports
		fmt.Fprintf(&fill, "link add f%d master crib0 group 77 type veth peer name g%d\n", i, i)
		fmt.Fprintf(&fill, "link set g%d master crib0\n", i)
	}
	cmd := exec.Command("ip", "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader(fill.String())
	_ = cmd.Run() // the last one does not fit
	t.Cleanup(func() { ip(t, network.Pod{}, "link", "del", "group", "77") })
	pod := l.newPod("one")
	atts, err := l.n.Plan(pod, 0)
	must(t, err)
	_, err = l.n.Attach(t.Context(), pod, atts, l.noSave)
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "1023") {
		t.Errorf("got %v", err)
	}
	if linkThere(t, atts[0].HostInterface) {
		t.Error("half of a link is left")
	}
}

func TestFiftyPodsAtOnce(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pods := make([]network.Pod, 50)
	for i := range pods {
		pods[i] = l.newPod(name(i))
	}
	var mu sync.Mutex
	seen := map[netip.Prefix]string{}
	var all sync.WaitGroup
	for _, pod := range pods {
		all.Go(func() {
			atts, err := l.n.Plan(pod, 0)
			if err == nil {
				atts, err = l.n.Attach(t.Context(), pod, atts, l.noSave)
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, a := range atts[0].Addresses {
				if other, ok := seen[a]; ok {
					t.Errorf("%v is of %s and of %s", a, pod.Name, other)
				}
				seen[a] = pod.Name
			}
		})
	}
	all.Wait()
	listen(t, pods[0], ":80")
	for a, owner := range seen {
		if owner == pods[0].Name {
			if err := reaches(pods[49], at(a.Addr(), 80)); err != nil {
				t.Error(err)
			}
		}
	}
}

// stateless takes out what the kernel changes in its own time after a link came up.
var stateless = strings.NewReplacer("state UNKNOWN", "state UP")
