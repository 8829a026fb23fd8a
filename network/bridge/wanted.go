package bridge

import (
	"net/netip"
	"strconv"
)

// wantHost returns what the host needs for these subnets and pods.
func (n *Network) wantHost(subnets []netip.Prefix, pods map[string]attached) (world, error) {
	settings, err := hostSettings(subnets)
	if err != nil {
		return nil, err
	}
	w := world{}
	for _, s := range settings {
		w[fact{kindSysctl, s.path, "value"}] = s.value
	}
	br := n.cfg.Link
	for _, s := range bridgeSettings(br, subnets) {
		w[fact{kindBridge, br, s.path}] = s.value
	}
	asks := onOff(has6(subnets))
	w[fact{kindBridge, br, "type"}] = "bridge"
	w[fact{kindBridge, br, "state"}] = "up"
	w[fact{kindBridge, br, "alias"}] = n.marker()
	w[fact{kindBridge, br, "mcast_snooping"}] = asks
	w[fact{kindBridge, br, "mcast_querier"}] = asks
	for _, s := range subnets {
		w[fact{kindGateway, gatewayPrefix(s).String(), "dev"}] = br
	}
	for _, pod := range pods {
		w.wantLink(pod, br)
	}
	return w, nil
}

// wantLink adds what a pod's host's end has to be.
func (w world) wantLink(pod attached, bridge string) {
	at := func(name string) fact { return fact{kindLink, pod.host, name} }
	w[at("type")] = "veth"
	w[at("state")] = "up"
	w[at("master")] = bridge
	w[at("address")] = hostMAC(pod.host).String()
	w[at("alias")] = pod.alias
	w[at("hairpin")] = onOff(true)
	if has6(pod.addrs) {
		w[at("mcast_flood")] = onOff(false)
	}
	if pod.mtu != 0 {
		w[at("mtu")] = strconv.Itoa(pod.mtu)
	}
}

// wantInside returns what a pod has to be inside: its own end, and the namespace.
func wantInside(pod attached) world {
	at := func(name string) fact { return fact{kindInside, pod.host, name} }
	w := world{
		at("type"):    "veth",
		at("state"):   "up",
		at("address"): pod.mac,
	}
	if pod.mtu != 0 {
		w[at("mtu")] = strconv.Itoa(pod.mtu)
	}
	for _, a := range pod.addrs {
		w[at("addr "+a.String())] = there
		w[at("route default."+familyName(a.Addr().Is6()))] = there
	}
	return w
}

// wantPin adds that the pin holds the namespace that it held.
func (w world) wantPin(pod attached) {
	if pod.inode != 0 {
		w[fact{kindNetns, pod.host, "inode"}] = strconv.FormatUint(pod.inode, 10)
	}
}

// wantFiles adds the pods' reservations.
func (w world) wantFiles(pods map[string]attached) {
	for id, pod := range pods {
		for _, a := range pod.addrs {
			w[fact{kindReservation, a.Addr().String(), "id"}] = id
			w[fact{kindReservation, a.Addr().String(), "dev"}] = pod.name
		}
	}
}

// onOff and familyName are words of facts.
func onOff(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func familyName(six bool) string {
	if six {
		return "inet6"
	}
	return "inet"
}
