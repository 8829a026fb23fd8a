package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/ipam"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// apply makes the bridge, the sysctls and the firewall match what is in memory;
// it is idempotent. The result goes into Status.
func (n *Network) apply(ctx context.Context) error {
	if err := n.turn(ctx); err != nil {
		return err
	}
	defer func() { <-n.turns.applying }()
	subnets := n.mem.subnets(ipv6Available())
	if len(subnets) == 0 || !n.mem.isRestored() {
		return nil
	}
	onBridge := n.applyBridge(subnets)
	onRules := n.applyRules(ctx, subnets)
	n.mem.report(time.Now(), onBridge, onRules)
	if err := errors.Join(onBridge, onRules); err != nil {
		return fmt.Errorf("applying network %s: %w", n.cfg.Name, err)
	}
	return nil
}

// applyRules makes the firewall match.
func (n *Network) applyRules(ctx context.Context, subnets []netip.Prefix) error {
	if err := n.setNetworks(ctx, subnets); err != nil {
		return err
	}
	return n.firewall.Ensure(ctx)
}

// setNetworks tells the firewall of the subnets if they are not those of last time.
func (n *Network) setNetworks(ctx context.Context, subnets []netip.Prefix) error {
	if n.mem.rulesAreFor(subnets) {
		return nil
	}
	if err := n.firewall.SetNetworks(ctx, subnets, n.cfg.NoMasquerade); err != nil {
		return err
	}
	n.mem.setRules(subnets)
	return nil
}

// applyBridge makes the bridge and the sysctls match.
func (n *Network) applyBridge(subnets []netip.Prefix) error {
	mtu := n.cfg.MTU
	if mtu == 0 {
		var err error
		if mtu, err = uplinkMTU(); err != nil {
			return err
		}
	}
	settings, err := hostSettings(subnets)
	if err != nil {
		return err
	}
	if err := n.set(settings, n.cfg.Sysctls); err != nil {
		return err
	}
	br, made, err := n.ensureBridge(subnets, mtu)
	if err != nil {
		n.mem.setBridge(device{})
		return err
	}
	dev := device{index: br.Attrs().Index, mtu: mtu, ipv6: ipv6Available()}
	n.mem.setBridge(dev)
	if made {
		n.rejoin(dev)
	}
	return n.applyGateways(br, subnets)
}

// set applies sysctls; the log tells which.
func (n *Network) set(list []setting, record string) error {
	changed, err := applySettings(list, record)
	for _, s := range changed {
		n.cfg.Log.Info("set sysctl", "network", n.cfg.Name, "sysctl", s.path, "value", s.value)
	}
	return err
}

// bridgeFilterLoaded reports whether rules see what passes between bridge ports.
func bridgeFilterLoaded() bool {
	_, err := os.Stat(sysctlRoot + "net/bridge")
	return err == nil
}

// marker is the alias of the bridge, which tells it from a stranger's.
func (n *Network) marker() string { return "crib network " + n.cfg.Name }

// ensureBridge returns the bridge, up, and whether it had to be made.
func (n *Network) ensureBridge(subnets []netip.Prefix, mtu int) (br netlink.Link, made bool, err error) {
	br, err = netlink.LinkByName(n.cfg.Link)
	mac := podMAC([]netip.Prefix{gatewayPrefix(subnets[0])})
	if isGone(err) {
		if err := n.createBridge(mac, mtu); err != nil {
			return nil, false, err
		}
		n.cfg.Log.Info("made bridge", "network", n.cfg.Name, "link", n.cfg.Link, "mtu", mtu)
		made = true
		br, err = netlink.LinkByName(n.cfg.Link)
	}
	if err != nil {
		return nil, false, fmt.Errorf("looking up bridge %s: %w", n.cfg.Link, err)
	}
	if err := n.checkOurs(br, mac); err != nil {
		return nil, false, err
	}
	if err := n.set(bridgeSettings(n.cfg.Link, subnets), ""); err != nil {
		return nil, false, err
	}
	if asks := has6(subnets); !n.isRaised(br, asks) {
		err = n.raiseBridge(asks)
	}
	return br, made, err
}

// checkOurs refuses a link that was not made by us for this network. One without
// an alias but with our link address comes from a crash right after its making.
func (n *Network) checkOurs(br netlink.Link, mac net.HardwareAddr) error {
	a := br.Attrs()
	if br.Type() == "bridge" && (a.Alias == n.marker() || a.Alias == "" && a.HardwareAddr.String() == mac.String()) {
		return nil
	}
	return fmt.Errorf("using link %s as bridge of network %s: it is somebody else's %s (alias %q instead of %q); "+
		"remove it, or give the network another link name: %w",
		n.cfg.Link, n.cfg.Name, br.Type(), a.Alias, n.marker(), errdefs.ErrFailedPrecondition)
}

// createBridge makes the bridge. Its link address is given, so that it never
// changes with the ports, and derived, so that it is the same after a repair.
func (n *Network) createBridge(mac net.HardwareAddr, mtu int) error {
	info := bridgeInfo(
		// The time for an answer is also how long a bridge that has just begun to
		// ask distrusts what it knows: with flooding off nothing passes meanwhile.
		nl.NewRtAttr(nl.IFLA_BR_MCAST_QUERY_RESPONSE_INTVL, nl.Uint64Attr(second/20)),
		// The first question comes to nothing when the bridge has no link-local
		// address yet, which it gets in the kernel's own time; so ask again soon.
		nl.NewRtAttr(nl.IFLA_BR_MCAST_STARTUP_QUERY_INTVL, nl.Uint64Attr(second)),
		nl.NewRtAttr(nl.IFLA_BR_MCAST_STARTUP_QUERY_CNT, nl.Uint32Attr(startupQueries)),
	)
	var b batch
	b.add("creating bridge "+n.cfg.Link, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(n.cfg.Link)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, mac),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))),
		info,
	)
	return lacking("bridge", b.run())
}

// lacking names the module of a kind of link that the kernel does not know.
func lacking(module string, err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: this kernel has no such links; `modprobe %s` loads them or says why not", err, module)
	}
	return err
}

const (
	second         = 100 // in the unit of the kernel's bridges, USER_HZ
	startupQueries = 5   // questions, one a second, after the bridge or a port came up
)

// bridgeInfo holds attributes of a bridge.
func bridgeInfo(attrs ...*nl.RtAttr) *nl.RtAttr {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	for _, a := range attrs {
		data.AddChild(a)
	}
	return info
}

// isRaised reports whether raiseBridge has nothing to do. Doing it all the same
// would wake everybody who watches links.
func (n *Network) isRaised(br netlink.Link, asks bool) bool {
	dir := "/sys/class/net/" + n.cfg.Link + "/bridge/multicast_"
	for _, file := range []string{"snooping", "querier"} {
		got, err := os.ReadFile(dir + file)
		if err != nil || (string(got) == "1\n") != asks {
			return false
		}
	}
	return br.Attrs().Alias == n.marker() && br.Attrs().Flags&net.FlagUp != 0
}

// raiseBridge marks the bridge as ours, sets it up, and makes it ask who listens
// to which multicast group, or not (see addHost). Without IPv6 it need not know:
// the questions, five to each new port, cost more than the port.
func (n *Network) raiseBridge(asks bool) error {
	up := nl.NewIfInfomsg(unix.AF_UNSPEC)
	up.Flags, up.Change = unix.IFF_UP, unix.IFF_UP
	on := nl.Uint8Attr(0)
	if asks {
		on = nl.Uint8Attr(1)
	}
	var b batch
	b.add("setting up bridge "+n.cfg.Link, unix.RTM_SETLINK, 0, up,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(n.cfg.Link)),
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(n.marker())),
	)
	b.add("asking for listeners on bridge "+n.cfg.Link, unix.RTM_NEWLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(n.cfg.Link)),
		bridgeInfo(nl.NewRtAttr(nl.IFLA_BR_MCAST_SNOOPING, on), nl.NewRtAttr(nl.IFLA_BR_MCAST_QUERIER, on)),
	)
	return b.run()
}

// rejoin puts the links of all pods on a bridge that was made again. A pod whose
// link is not there yet is fine; what else goes wrong is logged.
func (n *Network) rejoin(to device) {
	for _, pod := range n.mem.all() {
		l := link{host: pod.host, alias: pod.alias, bridge: to, addrs: pod.addrs}
		err := l.repair()
		if err == nil {
			err = l.joinGroups()
		}
		if err != nil && !isGone(err) {
			n.cfg.Log.Warn("putting a pod back on the bridge", "network", n.cfg.Name, "pod", pod.alias, "error", err)
		}
	}
}

// applyGateways gives the bridge the gateway address of each subnet, and takes
// away those of subnets that are no more. New ones come first, so that no pod is
// without.
func (n *Network) applyGateways(br netlink.Link, subnets []netip.Prefix) error {
	list, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(br, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("listing addresses of bridge %s: %w", n.cfg.Link, err)
	}
	have := prefixesOf(list)
	var b batch
	for _, s := range subnets {
		if gw := gatewayPrefix(s); !slices.Contains(have, gw) {
			n.cfg.Log.Info("adding gateway", "network", n.cfg.Name, "link", n.cfg.Link, "address", gw)
			b.add("adding gateway "+gw.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
				addressMessage(br.Attrs().Index, gw)...)
		}
	}
	for _, p := range have {
		if p == gatewayPrefix(p) && !p.Addr().IsLinkLocalUnicast() && !slices.Contains(subnets, p.Masked()) {
			n.cfg.Log.Info("removing gateway", "network", n.cfg.Name, "link", n.cfg.Link, "address", p)
			b.add("removing gateway "+p.String(), unix.RTM_DELADDR, 0, addressMessage(br.Attrs().Index, p)...)
		}
	}
	return b.run()
}

// gatewayPrefix is the gateway's address with the length of its subnet.
func gatewayPrefix(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(ipam.Gateway(subnet), subnet.Bits())
}

// prefixesOf converts what netlink lists.
func prefixesOf(list []netlink.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		if ok {
			out = append(out, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return out
}

// deleteBridge deletes the bridge if it is there and ours.
func (n *Network) deleteBridge() error {
	br, err := netlink.LinkByName(n.cfg.Link)
	if isGone(err) {
		return nil
	}
	if err == nil && br.Attrs().Alias != n.marker() {
		return nil // somebody else's
	}
	if err == nil {
		err = netlink.LinkDel(br)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting bridge %s: %w", n.cfg.Link, err)
	}
	return nil
}
