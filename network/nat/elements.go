package nat

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// element is one element of a set or map of the table, in the kernel's bytes:
// each field of a concatenation is filled up to four bytes.
type element struct {
	set   string
	key   string
	value string // empty in sets
	end   bool   // of an interval, which it does not belong to
}

// protocolNumber returns the protocol's number on the wire.
func protocolNumber(p network.Protocol) (byte, bool) {
	switch p {
	case network.TCP:
		return unix.IPPROTO_TCP, true
	case network.UDP:
		return unix.IPPROTO_UDP, true
	case network.SCTP:
		return unix.IPPROTO_SCTP, true
	}
	return 0, false
}

// portElements returns the elements of the binds, each once.
func portElements(binds []bind) []element {
	var all []element
	for _, b := range binds {
		f := ipv4()
		if b.v6 {
			f = ipv6()
		}
		proto, _ := protocolNumber(b.proto)
		key := concat([]byte{proto}, port(b.port))
		to := concat(b.target.Addr().AsSlice(), port(b.target.Port()))
		lead := element{set: f.ports, key: key, value: to}
		if b.host.IsValid() {
			lead = element{set: f.hostPorts, key: concat(b.host.AsSlice()) + key, value: to}
		}
		target := element{set: f.targets, key: concat(b.target.Addr().AsSlice(), []byte{proto}, port(b.target.Port()), port(b.port))}
		for _, e := range []element{lead, target} {
			if !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return all
}

// concat joins fields as nft_set_elem keys are: each filled up with zeroes.
func concat(fields ...[]byte) string {
	var out []byte
	for _, f := range fields {
		out = append(out, f...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return string(out)
}

func port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// networkElements returns the elements of the sets of networks of both families.
func networkElements(pods, noMasquerade []netip.Prefix) []element {
	keep := slices.Concat(pods, noMasquerade, []netip.Prefix{
		netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("fe80::/10"),
	})
	var all []element
	for _, f := range families() {
		all = append(all, intervals(f.pods, f.only(pods))...)
		all = append(all, intervals(f.noMasq, f.only(keep))...)
	}
	return all
}

// intervals returns the prefixes as intervals. One that lies in another is left
// out, since the kernel refuses overlaps.
func intervals(set string, prefixes []netip.Prefix) []element {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var all []element
	var last netip.Prefix
	for _, p := range sorted {
		if last.IsValid() && last.Contains(p.Addr()) {
			continue
		}
		last = p
		all = append(all, element{set: set, key: string(p.Addr().AsSlice())})
		if end := behind(p); end.IsValid() { // else the interval is open
			all = append(all, element{set: set, key: string(end.AsSlice()), end: true})
		}
	}
	return all
}

// behind returns the first address after the prefix, or the zero Addr.
func behind(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := range raw {
		host := 8*(i+1) - p.Bits() // bits of this byte that are not the network's
		raw[i] |= byte(1<<min(8, max(0, host)) - 1)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last.Next()
}
