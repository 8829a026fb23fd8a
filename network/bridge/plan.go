package bridge

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"github.com/crib-runtime/crib/ipam"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/nat"
)

// Plan chooses the addresses, names and host ports of a pod's link, in memory
// only; first is the number of the interface (0 for eth0). The same pod gets the
// same again. Host ports lead to eth0 only. Classes of errors: Unavailable while no
// range is known, ResourceExhausted when one is full, AlreadyExists for a host
// port that another pod has.
func (n *Network) Plan(pod network.Pod, first int) ([]network.Attachment, error) {
	addrs, known := n.mem.addresses(pod.ID) // with the lengths of their own subnets
	if !known {
		var err error
		if addrs, err = n.addrs.Take(pod.ID); err != nil {
			return nil, fmt.Errorf("planning network %s: %w", n.cfg.Name, err)
		}
	}
	att := attachment(n.cfg.Name, pod, network.InterfaceName(first), addrs)
	if err := n.reserve(pod, att); err != nil {
		if !known {
			n.addrs.Release(pod.ID)
		}
		return nil, fmt.Errorf("planning network %s: %w", n.cfg.Name, err)
	}
	n.mem.add(pod, att)
	return []network.Attachment{att}, nil
}

// reserve takes the host ports of a pod, in memory.
func (n *Network) reserve(pod network.Pod, att network.Attachment) error {
	return n.firewall.Reserve(pod.ID, portsOf(pod, att))
}

// portsOf is what the firewall has to know of an attachment.
func portsOf(pod network.Pod, att network.Attachment) nat.Ports {
	mac, _ := net.ParseMAC(att.MAC) // a wrong one is refused when the link is made
	p := nat.Ports{Addrs: hosts(att.Addresses), Link: network.HostLinkName(pod.ID, att.Interface), MAC: mac}
	if hasPorts(pod, att) {
		p.Ports = pod.Ports
	}
	return p
}

// hasPorts reports whether host ports lead to this attachment.
func hasPorts(pod network.Pod, att network.Attachment) bool {
	return len(pod.Ports) > 0 && att.Interface == network.InterfaceName(0)
}

// attachment derives everything else from the pod's id and its addresses.
func attachment(name string, pod network.Pod, ifname string, addrs []netip.Prefix) network.Attachment {
	return network.Attachment{
		Driver:        Driver,
		Network:       name,
		Interface:     ifname,
		HostInterface: network.HostLinkName(pod.ID, ifname),
		MAC:           podMAC(addrs).String(),
		Addresses:     addrs,
		Gateways:      gateways(addrs),
	}
}

// gateways returns the gateway of the subnet of each address.
func gateways(addrs []netip.Prefix) []netip.Addr {
	list := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		list[i] = ipam.Gateway(a)
	}
	return list
}

// hosts returns the addresses without their prefix lengths.
func hosts(addrs []netip.Prefix) []netip.Addr {
	list := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		list[i] = a.Addr()
	}
	return list
}

// podMAC derives the link address from the IPv4 address, or else from the end of
// the IPv6 address: an address that is used again keeps its link address, so no
// neighbour has a stale entry.
func podMAC(addrs []netip.Prefix) net.HardwareAddr {
	var from netip.Addr
	for _, a := range addrs {
		if !from.IsValid() || a.Addr().Is4() {
			from = a.Addr()
		}
	}
	mac := net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 0}
	if from.IsValid() {
		raw := from.AsSlice()
		copy(mac[2:], raw[len(raw)-4:])
	}
	return mac
}

// hostMAC derives the link address of the host's end from its name. An address
// that is given is not changed by udev, a random one is.
func hostMAC(link string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(link))
	return net.HardwareAddr{0x0a, 0x59, sum[0], sum[1], sum[2], sum[3]}
}

// maxAlias is the length that IFALIASZ leaves for text.
const maxAlias = 255

// alias is what `ip link` shows at the host's end of a pod's link. A name that
// Kubernetes allows may be longer than an alias, so it is the name that is cut.
func alias(pod network.Pod) string {
	name, id := pod.Namespace+"/"+pod.Name, " "+pod.ID[:min(12, len(pod.ID))]
	return name[:min(len(name), maxAlias-len(id))] + id
}

// has4 and has6 report whether there is an address of the family.
func has4(addrs []netip.Prefix) bool { return hasFamily(addrs, netip.Addr.Is4) }
func has6(addrs []netip.Prefix) bool { return hasFamily(addrs, netip.Addr.Is6) }

func hasFamily(addrs []netip.Prefix, is func(netip.Addr) bool) bool {
	for _, a := range addrs {
		if is(a.Addr()) {
			return true
		}
	}
	return false
}
