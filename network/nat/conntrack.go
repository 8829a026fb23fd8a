package nat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/crib-runtime/crib/network"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dumps is how often a dump of flows that the kernel interrupts is repeated.
const dumps = 5

// forget makes the kernel forget the UDP flows to the host ports that lead
// elsewhere than to their target (published), or that lead to it (not
// published): a client that never pauses would else stay with the dead pod for
// ever. It comes after the rules, since a packet in between makes the flow anew.
// TCP and SCTP end by themselves. Failure is logged: the ports work for others.
//
// It costs a walk through the whole table of flows, 11 ms where that has 262144
// buckets, but only for pods with UDP host ports.
func (t *Table) forget(binds []bind, published bool) {
	var udp []bind
	for _, b := range binds {
		if b.proto == network.UDP {
			udp = append(udp, b)
		}
	}
	if len(udp) == 0 {
		return
	}
	if err := forgetFlows(udp, published); err != nil {
		t.cfg.Log.Warn("UDP clients of a host port may stay with a former pod", "port", portName(udp[0]), "error", err)
	}
}

// forgetFlows makes the kernel forget the flows of ports.
func forgetFlows(binds []bind, published bool) error {
	return deleteFlows(func(h *netlink.Handle) netlink.CustomConntrackFilter {
		return &staleFlows{binds: binds, published: published, handle: h, local: map[netip.Addr]bool{}}
	})
}

// Forget makes the kernel forget all flows from or to the addresses, which were
// pods' that are gone: an address's next pod would get what was meant for the last,
// and a Service's clients would stay with it. It costs one walk through the table of
// flows, for however many addresses.
func (t *Table) Forget(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	gone := flowsOf{}
	for _, a := range addrs {
		gone[a.Unmap()] = true
	}
	return deleteFlows(func(*netlink.Handle) netlink.CustomConntrackFilter { return gone })
}

// flowsOf matches the flows in which one of the addresses has a part.
type flowsOf map[netip.Addr]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowsOf) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if addr, ok := netip.AddrFromSlice(ip); ok && f[addr.Unmap()] {
			return true
		}
	}
	return false
}

// deleteFlows looks at the flows of both families at once, and again only where
// there is something to delete.
func deleteFlows(matching func(*netlink.Handle) netlink.CustomConntrackFilter) error {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("connect to conntrack: %w", err)
	}
	defer h.Close()
	if err := h.SetSocketTimeout(patience); err != nil {
		return fmt.Errorf("set time limit: %w", err)
	}
	stale := matching(h)
	families := map[uint8]bool{}
	err = whole(func() error {
		flows, err := h.ConntrackTableList(netlink.ConntrackTable, unix.AF_UNSPEC)
		for _, flow := range flows {
			if stale.MatchConntrackFlow(flow) {
				families[flow.FamilyType] = true
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list flows: %w", err)
	}
	for family := range families {
		err := whole(func() error {
			_, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), stale)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete flows: %w", err)
		}
	}
	return nil
}

// whole repeats a dump that the kernel interrupts.
func whole(dump func() error) (err error) {
	for range dumps {
		if err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// staleFlows matches the flows to forget.
type staleFlows struct {
	binds     []bind
	published bool
	handle    *netlink.Handle
	local     map[netip.Addr]bool // which addresses are the host's, as far as asked
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter. A flow to the
// port of another host that only passes through here is none of ours.
func (s *staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	from, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	to, from = to.Unmap(), from.Unmap()
	for _, b := range s.binds {
		if b.v6 != to.Is6() || b.port != flow.Forward.DstPort || b.host.IsValid() && b.host != to {
			continue
		}
		leadsThere := netip.AddrPortFrom(from, flow.Reverse.SrcPort) == b.target
		if leadsThere != s.published && (leadsThere || s.isLocal(to)) {
			return true
		}
	}
	return false
}

// isLocal reports whether the address is one of the host's.
func (s *staleFlows) isLocal(addr netip.Addr) bool {
	local, asked := s.local[addr]
	if !asked {
		routes, err := s.handle.RouteGet(addr.AsSlice())
		local = err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
		s.local[addr] = local
	}
	return local
}
