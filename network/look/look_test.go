package look_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"

	"github.com/crib-runtime/crib/network/look"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

// veth makes a bridge with a port, and in a namespace the other end with an address
// and a default route. It returns the namespace's path.
func veth(t *testing.T) string {
	t.Helper()
	nstest.Lab(t)
	path := filepath.Join(t.TempDir(), "net")
	pins, err := netns.Create(t.Context(), netns.Spec{Net: path})
	if err != nil {
		t.Fatal(err)
	}
	run := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		run(netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}), netns.Remove(pins))
	})
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "host"}, PeerName: "eth0"}
	run(netlink.LinkAdd(bridge), netlink.LinkAdd(pair), netlink.LinkSetMaster(pair, bridge), netlink.LinkSetUp(pair), netlink.LinkSetUp(bridge))
	address, err := netlink.ParseAddr("10.9.0.1/24")
	run(err, netlink.AddrAdd(bridge, address))
	peer, err := netlink.LinkByName("eth0")
	run(err)
	pin, err := os.Open(path)
	run(err, netlink.LinkSetNsFd(peer, int(pin.Fd())), pin.Close())
	run(netns.Do(path, func() error {
		address, err := netlink.ParseAddr("10.9.0.2/24")
		return errors.Join(err, netlink.AddrAdd(peer, address), netlink.LinkSetUp(peer),
			netlink.RouteAdd(&netlink.Route{LinkIndex: peer.Attrs().Index, Gw: netip.MustParseAddr("10.9.0.1").AsSlice()}))
	}))
	return path
}

func TestBothEndsOfALinkAreSeen(t *testing.T) {
	path := veth(t)
	host, err := look.Host("host")
	if err != nil || host.Kind != "veth" || !host.Up || host.Master != "br" || host.MTU != 1500 {
		t.Errorf("host: %+v, %v", host, err)
	}
	inside, err := look.Pod(path, "eth0")
	if err != nil || !inside.Link.Up || !slices.Equal(inside.Addresses, []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}) ||
		!slices.Contains(inside.Routes, "default via 10.9.0.1 dev eth0") {
		t.Errorf("pod: %+v, %v", inside, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	path := veth(t)
	_, host := look.Host("nobody")
	_, pod := look.Pod(path, "nobody")
	_, gone := look.Pod(path+"-gone", "eth0")
	for name, err := range map[string]error{"host": host, "pod": pod, "namespace": gone} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestThePathOfAPacketIsThatOfTheTables(t *testing.T) {
	path := veth(t)
	hop, err := look.Onward(path, look.Packet{To: netip.MustParseAddr("192.0.2.1")})
	if err != nil || hop.Route != "default via 10.9.0.1 dev eth0" || hop.Dev != "eth0" || hop.Next.String() != "10.9.0.1" || hop.Kind != "unicast" {
		t.Errorf("from the pod: %+v, %v", hop, err)
	}
	if hop, err := look.Onward("", look.Packet{To: netip.MustParseAddr("10.9.0.1")}); err != nil || hop.Kind != "local" {
		t.Errorf("to the host: %+v, %v", hop, err)
	}
	if hop, err := look.Onward("", look.Packet{To: netip.MustParseAddr("192.0.2.1")}); err == nil {
		t.Errorf("without a route: %+v", hop)
	}
}

func TestTheLockOfLinksIsHadAndNothingChanges(t *testing.T) {
	nstest.Lab(t)
	before, err := look.Host("lo")
	if err != nil {
		t.Fatal(err)
	}
	if took, err := look.RTNL(); err != nil || took <= 0 {
		t.Errorf("got %s, %v", took, err)
	}
	if after, err := look.Host("lo"); err != nil || after.Up != before.Up || after.MTU != before.MTU || after.Alias != before.Alias {
		t.Errorf("lo is %+v, was %+v, %v", after, before, err)
	}
}
