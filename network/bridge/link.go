package bridge

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// link is the wanted state of a pod's link: a plain value.
type link struct {
	host, alias string // the host's end
	bridge      device // the host's end is a port of it
	netns       string // path
	name        string // of the pod's end
	mac         net.HardwareAddr
	addrs       []netip.Prefix
}

// minMTU6 is the smallest MTU at which the kernel runs IPv6 on a link.
const minMTU6 = 1280

// create makes both ends in one message, the pod's in its namespace, and sets up
// the host's in a second one: the kernel takes these attributes only from links
// that exist. The error wraps EEXIST if either name is taken.
func (l link) create() error {
	ns, err := os.Open(l.netns)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("opening network namespace %s: it is gone: %w", l.netns, errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	defer func() { _ = ns.Close() }()
	var b batch
	b.add("creating link "+l.host, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, l.createMessage(int(ns.Fd()))...)
	l.addHost(&b)
	return lacking("veth", b.run())
}

// createMessage says what both ends are.
func (l link) createMessage(ns int) []nl.NetlinkRequestData {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(l.name))
	peer.AddRtAttr(unix.IFLA_ADDRESS, l.mac)
	peer.AddRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(l.bridge.mtu)))
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(ns)))
	return []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(l.host)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, hostMAC(l.host)),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(l.bridge.mtu))),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(l.bridge.index))),
		info,
	}
}

// addHost appends what makes an existing host's end right: on the bridge, able to
// send back to where a packet came from, named for people, up.
func (l link) addHost(b *batch) {
	up := nl.NewIfInfomsg(unix.AF_UNSPEC)
	up.Flags, up.Change = unix.IFF_UP, unix.IFF_UP
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_SLAVE_KIND, nl.NonZeroTerminated("bridge"))
	port := info.AddRtAttr(nl.IFLA_INFO_SLAVE_DATA, nil)
	port.AddRtAttr(nl.IFLA_BRPORT_MODE, nl.Uint8Attr(1)) // hairpin
	if has6(l.addrs) {
		// Else each neighbour solicitation goes to every pod of the node. The
		// bridge knows by its own queries who listens to what.
		port.AddRtAttr(nl.IFLA_BRPORT_MCAST_FLOOD, nl.Uint8Attr(0))
	}
	parts := []nl.NetlinkRequestData{
		up,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(l.host)),
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(l.alias)),
		info,
	}
	if l.bridge.ipv6 && l.bridge.mtu >= minMTU6 {
		parts = append(parts, noLinkLocal())
	}
	b.add("setting up link "+l.host, unix.RTM_NEWLINK, 0, parts...)
}

// noLinkLocal keeps the host's end of a link, a mere port, silent in IPv6.
func noLinkLocal() *nl.RtAttr {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
	inet6.AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(nl.IN6_ADDR_GEN_MODE_NONE))
	return spec
}

// addMaster appends putting an existing host's end on the bridge.
func (l link) addMaster(b *batch) {
	b.add("adding link "+l.host+" to the bridge", unix.RTM_SETLINK, 0,
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(l.host)),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(l.bridge.index))),
	)
}

// repair makes an existing host's end right.
func (l link) repair() error {
	var b batch
	l.addMaster(&b)
	l.addHost(&b)
	return b.run()
}

// configurePod makes the pod's end right, in the pod's namespace.
func (l link) configurePod() error {
	return netns.Do(l.netns, func() error {
		index, err := indexOf(l.name)
		if err != nil {
			return fmt.Errorf("looking up link %s: %w", l.name, err)
		}
		if err := l.podSysctls(); err != nil {
			return err
		}
		var b batch
		up := nl.NewIfInfomsg(unix.AF_UNSPEC)
		up.Index, up.Flags, up.Change = int32(index), unix.IFF_UP, unix.IFF_UP
		for _, a := range l.addrs {
			b.add("adding address "+a.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, addressMessage(index, a)...)
		}
		b.add("setting up link "+l.name, unix.RTM_SETLINK, 0, up)
		for _, gw := range gateways(l.addrs) {
			b.add("adding default route via "+gw.String(), unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, routeMessage(index, gw)...)
		}
		return b.run()
	})
}

// podSysctls sets what the pod's end needs before it comes up. A pod must not
// install routes in its neighbours by router advertisements, and one without an
// IPv6 address has no use for the noise of IPv6.
func (l link) podSysctls() error {
	if !l.bridge.ipv6 {
		return nil
	}
	dir, err := os.OpenRoot(sysctlRoot + "net/ipv6/conf/" + l.name)
	if errors.Is(err, os.ErrNotExist) && !has6(l.addrs) {
		return nil // a link with an MTU too small for IPv6
	}
	if err != nil {
		return fmt.Errorf("setting IPv6 of link %s: %w", l.name, err)
	}
	defer func() { _ = dir.Close() }()
	if !has6(l.addrs) {
		return setting{"disable_ipv6", "1"}.writeIn(dir)
	}
	for _, s := range []setting{{"accept_ra", "0"}, {"accept_dad", "0"}, {"keep_addr_on_down", "1"}, {"disable_ipv6", "0"}} {
		if err := s.writeIn(dir); err != nil {
			return err
		}
	}
	return nil
}

// addressMessage gives a link an address that can be used at once.
func addressMessage(index int, a netip.Prefix) []nl.NetlinkRequestData {
	family := unix.AF_INET
	if a.Addr().Is6() {
		family = unix.AF_INET6
	}
	msg := nl.NewIfAddrmsg(family)
	msg.Index, msg.Prefixlen = uint32(index), uint8(a.Bits())
	raw := a.Addr().AsSlice()
	parts := []nl.NetlinkRequestData{msg, nl.NewRtAttr(unix.IFA_LOCAL, raw), nl.NewRtAttr(unix.IFA_ADDRESS, raw)}
	if a.Addr().Is6() {
		// No duplicate address detection: it takes seconds, and the allocator
		// never gives an address twice.
		return append(parts, nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD)))
	}
	broadcast := lastOf(a)
	return append(parts, nl.NewRtAttr(unix.IFA_BROADCAST, broadcast.AsSlice()))
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for i := range raw {
		host := 8*(i+1) - p.Bits()
		raw[i] |= byte(1<<min(8, max(0, host)) - 1)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// routeMessage is a default route. It is onlink: the kernel need not find the
// gateway first, which it sometimes cannot right after the link came up.
func routeMessage(index int, gw netip.Addr) []nl.NetlinkRequestData {
	msg := nl.NewRtMsg()
	msg.Family = unix.AF_INET
	if gw.Is6() {
		msg.Family = unix.AF_INET6
	}
	msg.Flags = unix.RTNH_F_ONLINK
	return []nl.NetlinkRequestData{
		msg,
		nl.NewRtAttr(unix.RTA_GATEWAY, gw.AsSlice()),
		nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))),
	}
}

// indexOf returns the index of a link of the calling thread's namespace. The
// ioctl costs less than a netlink socket and an answer with all statistics.
func indexOf(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, err
	}
	return int(ifr.Uint32()), nil
}

// complete reports whether the host's end exists and its peer is the pod's end,
// with the right link address, in the pod's namespace.
func (l link) complete() bool {
	host, err := netlink.LinkByName(l.host)
	if err != nil || host.Type() != "veth" {
		return false
	}
	err = netns.Do(l.netns, func() error {
		pod, err := netlink.LinkByName(l.name)
		if err != nil {
			return err
		}
		if pod.Type() != "veth" || pod.Attrs().ParentIndex != host.Attrs().Index ||
			host.Attrs().ParentIndex != pod.Attrs().Index || pod.Attrs().HardwareAddr.String() != l.mac.String() {
			return errors.New("another link's end")
		}
		return nil
	})
	return err == nil
}

// clear deletes what stands where the link is to be: an older one of ours.
func (l link) clear() error {
	if err := deleteLink(l.host); err != nil {
		return err
	}
	return netns.Do(l.netns, func() error { return deleteLink(l.name) })
}

// deleteLink deletes a veth; one that is gone is fine.
func deleteLink(name string) error {
	found, err := netlink.LinkByName(name)
	if isGone(err) {
		return nil
	}
	if err == nil && found.Type() != "veth" {
		return fmt.Errorf("deleting link %s: it is a %s, not one of ours", name, found.Type())
	}
	if err == nil {
		err = netlink.LinkDel(found)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("deleting link %s: %w", name, err)
	}
	return nil
}

// isGone reports whether the error says that there is no such link.
func isGone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV)
}

// isOurs reports whether the name of a link has the form of HostLinkName.
func isOurs(name string) bool {
	digits, ok := strings.CutPrefix(name, network.Prefix)
	if !ok || len(name) != len(network.HostLinkName("", "")) {
		return false
	}
	_, err := hex.DecodeString(digits + "0") // eleven digits
	return err == nil
}
