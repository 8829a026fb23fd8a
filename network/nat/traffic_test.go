package nat

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
	"github.com/vishvananda/netlink"
)

func tcp80() []network.PortMapping {
	return []network.PortMapping{mapping(network.TCP, "", 80, 8080)}
}

func TestHostPortLeadsToThePodFromEverywhere(t *testing.T) {
	l := newLab(t)
	l.pod1.serveTCP(t, "pod1", ":8080")
	publish(t, l.table, "pod1", tcp80(), "10.9.0.2", "fd09::2")
	l.askFromEverywhere(t)
}

func TestHostPortNeedsNoBridgeNetfilter(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"iptables", "ip6tables"} {
		if path := "net/bridge/bridge-nf-call-" + name; exists("/proc/sys/" + path) {
			sysctl(t, path, "0")
		}
	}
	l.pod1.serveTCP(t, "pod1", ":8080")
	publish(t, l.table, "pod1", tcp80(), "10.9.0.2", "fd09::2")
	l.askFromEverywhere(t)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (l *lab) askFromEverywhere(t *testing.T) {
	t.Helper()
	node := host{}
	for _, c := range []struct {
		from     host
		to, want string
	}{
		{node, node4 + ":80", "pod1 " + node4},
		{node, gateway4 + ":80", "pod1 " + gateway4},
		{node, "127.0.0.1:80", "pod1 " + gateway4},
		{node, "[" + node6 + "]:80", "pod1 " + node6},
		{l.outside, node4 + ":80", "pod1 " + outside4},
		{l.outside, "[" + node6 + "]:80", "pod1 " + outside6},
		{l.pod2, node4 + ":80", "pod1 " + gateway4},
		{l.pod2, gateway4 + ":80", "pod1 " + gateway4},
		{l.pod2, "[" + node6 + "]:80", "pod1 " + gateway6},
		{l.pod1, node4 + ":80", "pod1 " + gateway4},
		{l.pod1, "[" + node6 + "]:80", "pod1 " + gateway6},
	} {
		wantAnswer(t, filepath.Base(c.from.path)+" to "+c.to, c.from.ask(t, c.to), c.want)
	}
	wantRefused(t, "the node to ::1", node.ask(t, "[::1]:80"))
}

func TestUnpublishedHostPortIsRefused(t *testing.T) {
	l := newLab(t)
	l.pod1.serveTCP(t, "pod1", ":8080")
	publish(t, l.table, "pod1", tcp80(), "10.9.0.2")
	must(t, l.table.Unpublish(t.Context(), "pod1"))
	wantRefused(t, "outside", l.outside.ask(t, node4+":80"))
}

func TestHostPortOfOneHostIPIsThatAddressAlone(t *testing.T) {
	l := newLab(t)
	l.pod1.serveTCP(t, "pod1", ":8080")
	l.pod2.serveTCP(t, "pod2", ":8080")
	publish(t, l.table, "pod1", []network.PortMapping{mapping(network.TCP, node4, 80, 8080)}, "10.9.0.2", "fd09::2")
	publish(t, l.table, "pod2", []network.PortMapping{mapping(network.TCP, node6, 80, 8080)}, "10.9.0.3", "fd09::3")
	wantAnswer(t, "its IPv4 address", l.outside.ask(t, node4+":80"), "pod1 "+outside4)
	wantAnswer(t, "its IPv6 address", l.outside.ask(t, "["+node6+"]:80"), "pod2 "+outside6)
	wantRefused(t, "another address", l.outside.ask(t, gateway4+":80"))
	wantAnswer(t, "hairpin", l.pod1.ask(t, node4+":80"), "pod1 "+gateway4)
}

func TestForeignAddressWithTheNumberOfAHostPortIsUntouched(t *testing.T) {
	l := newLab(t)
	l.pod1.serveTCP(t, "pod1", ":8080")
	l.outside.serveTCP(t, "outside", ":80")
	publish(t, l.table, "pod1", tcp80(), "10.9.0.2", "fd09::2")
	wantAnswer(t, "node", host{}.ask(t, outside4+":80"), "outside "+node4)
	wantAnswer(t, "pod", l.pod2.ask(t, outside4+":80"), "outside "+node4)
	wantAnswer(t, "pod, IPv6", l.pod2.ask(t, "["+outside6+"]:80"), "outside "+node6)
}

func TestPodsAreMasqueradedOutsideAloneNotAmongThemselves(t *testing.T) {
	l := newLab(t)
	l.pod1.serveTCP(t, "pod1", ":8080")
	l.outside.serveTCP(t, "outside", ":80")
	wantAnswer(t, "outside", l.pod2.ask(t, outside4+":80"), "outside "+node4)
	wantAnswer(t, "pod to pod", l.pod2.ask(t, "10.9.0.2:8080"), "pod1 10.9.0.3")
	wantAnswer(t, "pod to pod, IPv6", l.pod2.ask(t, "[fd09::2]:8080"), "pod1 fd09::3")
	wantAnswer(t, "outside to pod", l.outside.ask(t, "10.9.0.2:8080"), "pod1 "+outside4)
	must(t, l.table.SetNetworks(t.Context(), prefixes("10.9.0.0/24", "fd09::/64"), prefixes("192.0.2.0/24")))
	wantAnswer(t, "a network that is not masqueraded", l.pod2.ask(t, outside4+":80"), "outside 10.9.0.3")
}

// A Service's connection between two pods has its destination changed as well,
// and keeps its source unless it also came by the host port's number.
func TestServiceBetweenPodsKeepsItsSource(t *testing.T) {
	l := newLab(t)
	routed := newHost(t, "routed", "", "10.9.1.2/24") // behind a link of its own, so that answers pass here
	setUp(t, "vrouted", "10.9.1.1/24")
	routed.defaultRoutes(t, "10.9.1.1")
	routed.serveTCP(t, "routed", ":8080")
	must(t, l.table.SetNetworks(t.Context(), prefixes("10.9.0.0/16"), nil))
	publish(t, l.table, "routed", tcp80(), "10.9.1.2")
	nft(t, "add", "table", "ip", "service")
	t.Cleanup(func() { nft(t, "delete", "table", "ip", "service") })
	nft(t, "add", "chain", "ip", "service", "pre", "{ type nat hook prerouting priority dstnat; }")
	nft(t, "add", "rule", "ip", "service", "pre", "ip", "daddr", "10.96.0.1", "tcp", "dport", "8000", "dnat", "to", "10.9.1.2:8080")
	wantAnswer(t, "by the Service", l.pod1.ask(t, "10.96.0.1:8000"), "routed 10.9.0.2")
	wantAnswer(t, "by the host port", l.pod1.ask(t, node4+":80"), "routed 10.9.1.1")
}

func TestLoopbackOfTheHostIsNotThePods(t *testing.T) {
	l := newLab(t)
	host{}.serveTCP(t, "node", "127.0.0.1:7000")
	l.pod1.routeLoopback(t, gateway4)
	l.outside.routeLoopback(t, node4)
	for name, from := range map[string]host{"pod": l.pod1, "outside": l.outside} {
		if got := from.ask(t, "127.0.0.1:7000"); !strings.Contains(got, "timeout") {
			t.Errorf("%s to the host's loopback: %q", name, got)
		}
	}
	nft(t, "flush", "chain", "inet", "crib", "guard")
	wantAnswer(t, "pod without the guard", l.pod1.ask(t, "127.0.0.1:7000"), "node 10.9.0.2")
}

// routeLoopback makes 127.0.0.1 an address behind the gateway.
func (h host) routeLoopback(t *testing.T, gateway string) {
	t.Helper()
	h.do(t, func() error {
		sysctl(t, "net/ipv4/conf/eth0/route_localnet", "1")
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.AddrDel(lo, &netlink.Addr{IPNet: ipNet("127.0.0.1/8")}))
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet("127.0.0.1/32"), Gw: netip.MustParseAddr(gateway).AsSlice(),
		})
	})
}

func ipNet(text string) *net.IPNet {
	p := netip.MustParsePrefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func TestUDPClientMovesToTheNewPod(t *testing.T) {
	l := newLab(t)
	l.pod1.serveUDP(t, "pod1", ":5353")
	l.pod2.serveUDP(t, "pod2", ":5353")
	ports := []network.PortMapping{mapping(network.UDP, "", 53, 5353)}
	for _, c := range []struct{ to, source string }{{node4 + ":53", outside4}, {"[" + node6 + "]:53", outside6}} {
		flow := l.outside.dialUDP(t, c.to)
		publish(t, l.table, "pod1", ports, "10.9.0.2", "fd09::2")
		wantAnswer(t, "before", flow.ask(t), "pod1 "+c.source)
		must(t, l.table.Unpublish(t.Context(), "pod1"))
		publish(t, l.table, "pod2", ports, "10.9.0.3", "fd09::3")
		wantAnswer(t, "after", flow.ask(t), "pod2 "+c.source)
		must(t, l.table.Unpublish(t.Context(), "pod2"))
	}
}

// The flow's entry is made before the rules are: by a client that came too early.
func TestUDPClientThatCameTooEarlyIsServed(t *testing.T) {
	l := newLab(t)
	l.pod1.serveUDP(t, "pod1", ":5353")
	host{}.serveUDP(t, "node", ":53")
	ports := []network.PortMapping{mapping(network.UDP, "", 53, 5353)}
	for _, c := range []struct{ to, source string }{{node4 + ":53", outside4}, {"[" + node6 + "]:53", outside6}} {
		flow := l.outside.dialUDP(t, c.to)
		wantAnswer(t, "before", flow.ask(t), "node "+c.source)
		publish(t, l.table, "pod1", ports, "10.9.0.2", "fd09::2")
		wantAnswer(t, "after", flow.ask(t), "pod1 "+c.source)
		must(t, l.table.Unpublish(t.Context(), "pod1"))
		wantAnswer(t, "at last", flow.ask(t), "node "+c.source)
	}
}

func TestPublishKeepsFlowsThatAreNotItsOwn(t *testing.T) {
	l := newLab(t)
	l.outside.serveUDP(t, "outside", ":53")
	l.pod1.serveUDP(t, "pod1", ":5353")
	foreign := l.pod2.dialUDP(t, outside4+":53")
	wantAnswer(t, "before", foreign.ask(t), "outside "+node4)
	ports := []network.PortMapping{mapping(network.UDP, "", 53, 5353)}
	publish(t, l.table, "pod1", ports, "10.9.0.2", "fd09::2")
	own := l.outside.dialUDP(t, node4+":53")
	wantAnswer(t, "own", own.ask(t), "pod1 "+outside4)
	before := flows(t)
	publish(t, l.table, "pod1", ports, "10.9.0.2", "fd09::2")
	if after := flows(t); after != before {
		t.Errorf("flows to port 53: %d, before %d", after, before)
	}
}

// flows counts the UDP flows to port 53.
func flows(t *testing.T) (n int) {
	t.Helper()
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
	must(t, err)
	for _, f := range all {
		if f.Forward.Protocol == 17 && f.Forward.DstPort == 53 {
			n++
		}
	}
	return n
}

func TestHostWithoutIPv6HasIPv4HostPorts(t *testing.T) {
	l := newLab(t)
	sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
	l.pod1.serveTCP(t, "pod1", ":8080")
	l.pod1.serveUDP(t, "pod1", ":8080")
	table := openAgain(t)
	must(t, table.Restore(t.Context(), nil))
	setNetworks(t, table)
	publish(t, table, "pod1", append(tcp80(), mapping(network.UDP, "", 80, 8080)), "10.9.0.2", "fd09::2")
	wantAnswer(t, "outside", l.outside.ask(t, node4+":80"), "pod1 "+outside4)
}
