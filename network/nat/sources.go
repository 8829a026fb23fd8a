package nat

import (
	"net"
	"net/netip"

	"github.com/crib-runtime/crib/network"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// sourcesPriority comes before br_netfilter, which has IP's chains look at what the
// bridge passes, at 0.
const sourcesPriority = -300

// The sets of what pods may have as their source.
const sources4, sources6 = "sources4", "sources6"

// Offsets in headers, and numbers of RFC 4861.
const (
	etherSource, etherType = 6, 12
	arpMAC, arpIP          = 8, 14
	neighborTarget         = 8 // in the ICMPv6 message
	routerAdvertisement    = 134
	neighborAdvertisement  = 136
	redirect               = 137
)

// addSources adds the table of the bridge's family, which drops what pods send from
// link addresses and IP addresses that are not theirs.
func (s *schema) addSources() {
	s.beside = &nftables.Table{Name: s.table.Name, Family: nftables.TableFamilyBridge}
	for name, addr := range map[string]nftables.SetDatatype{sources4: nftables.TypeIPAddr, sources6: nftables.TypeIP6Addr} {
		s.addSetTo(s.beside, nftables.Set{
			Name: name, Concatenation: true, Comment: "made by crib: what pods may send from",
			KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, addr),
		})
	}
	s.addChainTo(s.beside, base("sources", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, sourcesPriority), sourceRules())
}

// sourceRules let pods send from their own addresses, and nothing else. Router
// advertisements and redirects are not theirs to send, and neighbours are told of
// their own addresses only.
func sourceRules() []rule {
	verdict := func(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
	mac, ip4, ip6 := linkField(etherSource), networkField(ipv4().source, 4), networkField(ipv6().source, 16)
	icmpType := func(n byte) []expr.Any {
		return join(fields(protocol()), []expr.Any{equal(unix.IPPROTO_ICMPV6)}, fields(payload(expr.PayloadBaseTransportHeader, 0, 1)), []expr.Any{equal(n)})
	}
	target := payload(expr.PayloadBaseTransportHeader, neighborTarget, 16)
	others := join(fields(meta(expr.MetaKeyIIFNAME)), []expr.Any{differ([]byte(network.Prefix)...)}, verdict(expr.VerdictReturn))
	return []rule{
		{"made by crib: not a pod's link", others},
		{"", join(isType(unix.ETH_P_ARP), from(mac, networkField(arpIP, 4), sources4), from(networkMAC(arpMAC), networkField(arpIP, 4), sources4), verdict(expr.VerdictAccept))},
		{"", join(isType(unix.ETH_P_IP), from(mac, ip4, sources4), verdict(expr.VerdictAccept))},
		{"", join(isType(unix.ETH_P_IPV6), icmpType(routerAdvertisement), verdict(expr.VerdictDrop))},
		{"", join(isType(unix.ETH_P_IPV6), icmpType(redirect), verdict(expr.VerdictDrop))},
		{"", join(isType(unix.ETH_P_IPV6), icmpType(neighborAdvertisement), notFrom(mac, target, sources6), verdict(expr.VerdictDrop))},
		{"", join(isType(unix.ETH_P_IPV6), from(mac, ip6, sources6), verdict(expr.VerdictAccept))},
		{"made by crib: not from the pod's own addresses", verdict(expr.VerdictDrop)},
	}
}

// isType matches the type of the frame as it is on the wire.
func isType(number int) []expr.Any {
	return append(fields(payload(expr.PayloadBaseLLHeader, etherType, 2)), equal(binaryutil.BigEndian.PutUint16(uint16(number))...))
}

// from matches when the link, with these fields, is in the set; notFrom when not.
func from(mac, addr field, set string) []expr.Any {
	return append(fields(linkName(), mac, addr), in(set))
}

func notFrom(mac, addr field, set string) []expr.Any {
	return append(fields(linkName(), mac, addr), notIn(set))
}

// linkName is the name of the link that the frame came in by, four words long.
func linkName() field {
	f := meta(expr.MetaKeyIIFNAME)
	f.words = unix.IFNAMSIZ / 4
	return f
}

// linkField and networkMAC are link addresses, which fill two words.
func linkField(offset uint32) field  { return macField(expr.PayloadBaseLLHeader, offset) }
func networkMAC(offset uint32) field { return macField(expr.PayloadBaseNetworkHeader, offset) }

func macField(base expr.PayloadBase, offset uint32) field {
	f := payload(base, offset, 6)
	f.words = 2
	return f
}

func networkField(offset, length uint32) field {
	return payload(expr.PayloadBaseNetworkHeader, offset, length)
}

// sourceElements returns what a pod may send from: its addresses, none while it
// asks whether an address is free, and the link-local address of its link address.
func sourceElements(p Ports) []element {
	if p.Link == "" {
		return nil
	}
	var all []element
	families := map[bool]bool{}
	add := func(addr netip.Addr) {
		set := sources4
		if addr.Is6() {
			set = sources6
		}
		all = append(all, element{set: set, key: string(interfaceName(p.Link)) + concat(p.MAC, addr.AsSlice())})
	}
	for _, a := range p.Addrs {
		add(a.Unmap())
		families[a.Unmap().Is6()] = true
	}
	if families[false] {
		add(netip.IPv4Unspecified())
	}
	if families[true] {
		add(netip.IPv6Unspecified())
		add(linkLocal(p.MAC))
	}
	return all
}

// linkLocal is the address that the kernel makes of a link address (RFC 4291,
// appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	raw := [16]byte{0: 0xfe, 1: 0x80, 11: 0xff, 12: 0xfe}
	copy(raw[8:11], mac)
	copy(raw[13:], mac[min(3, len(mac)):])
	raw[8] ^= 2
	return netip.AddrFrom16(raw)
}
