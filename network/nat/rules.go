package nat

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const hostPortsChain = "host_ports"

// statusDNAT is IPS_DST_NAT of the kernel's nf_conntrack_common.h.
const statusDNAT = 1 << 5

// rule is one rule with the words that a person reads behind it.
type rule struct {
	comment string
	exprs   []expr.Any
}

// field puts one value of a packet into the register, and takes words of them.
type field struct {
	words int
	load  func(register uint32) expr.Any
}

// register numbers the nth 32-bit register as the kernel shows it: those that
// begin a 128-bit register by its number.
func register(n int) uint32 {
	if n%4 == 0 {
		return uint32(unix.NFT_REG_1 + n/4)
	}
	return uint32(unix.NFT_REG32_00 + n)
}

// fields loads them one behind the other, as the key of a concatenation.
func fields(fs ...field) []expr.Any {
	var out []expr.Any
	n := 0
	for _, f := range fs {
		out = append(out, f.load(register(n)))
		n += f.words
	}
	return out
}

func payload(base expr.PayloadBase, offset, length uint32) field {
	return field{max(1, int(length)/4), func(r uint32) expr.Any {
		return &expr.Payload{DestRegister: r, Base: base, Offset: offset, Len: length}
	}}
}

func meta(key expr.MetaKey) field {
	return field{1, func(r uint32) expr.Any { return &expr.Meta{Key: key, Register: r} }}
}

func (f family) sourceAddr() field {
	return payload(expr.PayloadBaseNetworkHeader, f.source, f.addr.Bytes)
}

func (f family) destAddr() field {
	return payload(expr.PayloadBaseNetworkHeader, f.dest, f.addr.Bytes)
}

func protocol() field { return meta(expr.MetaKeyL4PROTO) }

func destPort() field { return payload(expr.PayloadBaseTransportHeader, 2, 2) }

// firstPort is the destination port of the flow's first packet, before any NAT.
func firstPort() field {
	return field{1, func(r uint32) expr.Any { return &expr.Ct{Key: expr.CtKeyPROTODST, Register: r} }}
}

func equal(data ...byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: data}
}

func differ(data ...byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: data}
}

func (f family) is() []expr.Any {
	return append(fields(meta(expr.MetaKeyNFPROTO)), equal(f.number))
}

func in(set string) expr.Any {
	return &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: set}
}

func notIn(set string) expr.Any {
	return &expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: set, Invert: true}
}

func join(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// loopback4 matches 127.0.0.0/8 at the offset in the IPv4 header.
func loopback4(offset uint32) []expr.Any {
	return append(fields(payload(expr.PayloadBaseNetworkHeader, offset, 1)), equal(127))
}

func guardRules(bridge string) []rule {
	link := append(fields(meta(expr.MetaKeyIIFNAME)), differ(interfaceName("lo")...))
	if bridge != "" {
		link = append(fields(meta(expr.MetaKeyIIFNAME)), equal(interfaceName(bridge)...))
	}
	drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	return []rule{{"made by crib: the host's loopback is not the pods'", join(link, ipv4().is(), loopback4(ipv4().dest), drop)}}
}

func interfaceName(name string) []byte {
	out := make([]byte, unix.IFNAMSIZ)
	copy(out, name)
	return out
}

// toHostPorts sends packets to the host's own addresses to the maps.
func toHostPorts() []rule {
	local := make([]byte, 4)
	binary.NativeEndian.PutUint32(local, unix.RTN_LOCAL)
	return []rule{{"made by crib: host ports", []expr.Any{
		&expr.Fib{Register: unix.NFT_REG_1, FlagDADDR: true, ResultADDRTYPE: true},
		equal(local...),
		&expr.Verdict{Kind: expr.VerdictJump, Chain: hostPortsChain},
	}}}
}

// hostPortRules look into the maps, first into those of one host IP.
func hostPortRules() []rule {
	loopback6 := make([]byte, 16)
	loopback6[15] = 1
	leave := join(ipv6().is(), fields(ipv6().destAddr()), []expr.Any{equal(loopback6...), &expr.Verdict{Kind: expr.VerdictReturn}})
	rules := []rule{{"IPv6 cannot route from loopback to a pod", leave}}
	for _, f := range families() {
		rules = append(rules,
			rule{"", join(f.is(), fields(f.destAddr(), protocol(), destPort()), f.leadTo(f.hostPorts))},
			rule{"", join(f.is(), fields(protocol(), destPort()), f.leadTo(f.ports))})
	}
	return rules
}

// leadTo changes the destination to what the map says of the key.
func (f family) leadTo(ports string) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, IsDestRegSet: true, SetName: ports},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: uint32(f.number),
			RegAddrMin: unix.NFT_REG_1, RegProtoMin: register(f.words()),
		},
	}
}

func masqueradeRules() []rule {
	var rules []rule
	for _, f := range families() {
		outside := join(f.is(), fields(f.sourceAddr()), []expr.Any{in(f.pods)}, fields(f.destAddr()), []expr.Any{notIn(f.noMasq)})
		rules = append(rules,
			rule{"made by crib: pods to outside", join(outside, masquerade())},
			rule{"pods by a host port", join(byDNAT(), f.is(), fields(f.sourceAddr()), []expr.Any{in(f.pods)}, f.toTarget(), masquerade())})
	}
	local := join(byDNAT(), ipv4().is(), loopback4(ipv4().source), ipv4().toTarget(), masquerade())
	return append(rules, rule{"the host by a host port of 127.0.0.1", local})
}

// byDNAT matches flows whose destination was changed.
func byDNAT() []expr.Any {
	bits := make([]byte, 4)
	binary.NativeEndian.PutUint32(bits, statusDNAT)
	none := make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: unix.NFT_REG_1},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: bits, Xor: none},
		differ(none...),
	}
}

// toTarget matches flows that a host port led to where they go.
func (f family) toTarget() []expr.Any {
	return append(fields(f.destAddr(), protocol(), destPort(), firstPort()), in(f.targets))
}

// masquerade with random ports, since ports chosen in order by two CPUs collide
// and the second packet is lost.
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }
