package bridge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/crib-runtime/crib/ipam/hostlocal"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// host is what was seen of the host's links, in two dumps.
type host struct {
	links  map[string]netlink.Link // by name
	names  map[int]string          // by index
	ports  map[int]port
	bridge string
}

// seeHost looks at the links of the host.
func seeHost(bridge string) (host, error) {
	h := host{links: map[string]netlink.Link{}, names: map[int]string{}, bridge: bridge}
	list, err := whole(netlink.LinkList)
	if err != nil {
		return host{}, fmt.Errorf("listing links: %w", err)
	}
	for _, l := range list {
		h.links[l.Attrs().Name], h.names[l.Attrs().Index] = l, l.Attrs().Name
	}
	if h.ports, err = bridgePorts(); err != nil {
		return host{}, fmt.Errorf("listing ports of bridges: %w", err)
	}
	return h, nil
}

// port is what a bridge does with one of its ports.
type port struct{ hairpin, flood bool }

// bridgePorts returns the parameters of all ports of bridges, by the links' indexes.
func bridgePorts() (map[int]port, error) {
	messages, err := whole(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	})
	if err != nil {
		return nil, err
	}
	ports := map[int]port{}
	for _, m := range messages {
		attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.IFLA_PROTINFO|unix.NLA_F_NESTED {
				ports[int(nl.DeserializeIfInfomsg(m).Index)] = parsePort(a.Value)
			}
		}
	}
	return ports, nil
}

// parsePort reads IFLA_PROTINFO of a bridge's port.
func parsePort(raw []byte) port {
	attrs, _ := nl.ParseRouteAttr(raw) // broken ones are those of a port without anything
	var p port
	for _, a := range attrs {
		on := len(a.Value) > 0 && a.Value[0] != 0
		switch a.Attr.Type {
		case nl.IFLA_BRPORT_MODE:
			p.hairpin = on
		case nl.IFLA_BRPORT_MCAST_FLOOD:
			p.flood = on
		}
	}
	return p
}

// facts returns what is to be compared of the host, for these wanted facts.
func (h host) facts(wanted world) (world, error) {
	w := world{}
	for f := range wanted {
		switch {
		case f.kind == kindSysctl:
			w.read(f, f.object)
		case f.kind == kindBridge && strings.HasPrefix(f.name, "net/"):
			w.read(f, f.name)
		case f.kind == kindLink && f.name == "type":
			h.addPort(w, f.object)
		}
	}
	br := h.links[h.bridge]
	if br == nil {
		return w, nil
	}
	h.addBridge(w, br)
	list, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(br, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses of bridge %s: %w", h.bridge, err)
	}
	for _, p := range prefixesOf(list) {
		f := fact{kindGateway, p.String(), "dev"}
		if _, ok := wanted[f]; ok { // others may have addresses there
			w[f] = h.bridge
		}
	}
	return w, nil
}

// read adds the value of a sysctl, if there is one.
func (w world) read(f fact, path string) {
	if value, err := (setting{path: path}).current(); err == nil {
		w[f] = value
	}
}

// addBridge adds what the bridge is.
func (h host) addBridge(w world, br netlink.Link) {
	a := br.Attrs()
	at := func(name string) fact { return fact{kindBridge, h.bridge, name} }
	w[at("type")], w[at("state")], w[at("alias")] = br.Type(), stateOf(a), a.Alias
	for _, name := range []string{"snooping", "querier"} {
		text, err := os.ReadFile("/sys/class/net/" + h.bridge + "/bridge/multicast_" + name)
		if err == nil {
			w[at("mcast_"+name)] = strings.TrimSpace(string(text))
		}
	}
}

// addPort adds what a pod's host's end is, if it is there.
func (h host) addPort(w world, name string) {
	l := h.links[name]
	if l == nil {
		return
	}
	a := l.Attrs()
	at := func(name string) fact { return fact{kindLink, a.Name, name} }
	w[at("type")], w[at("state")], w[at("alias")] = l.Type(), stateOf(a), a.Alias
	w[at("address")], w[at("mtu")] = a.HardwareAddr.String(), strconv.Itoa(a.MTU)
	w[at("master")] = "none"
	if a.MasterIndex != 0 {
		w[at("master")] = h.names[a.MasterIndex]
	}
	if p, ok := h.ports[a.Index]; ok {
		w[at("hairpin")], w[at("mcast_flood")] = onOff(p.hairpin), onOff(p.flood)
	}
}

func stateOf(a *netlink.LinkAttrs) string {
	if a.Flags&net.FlagUp != 0 {
		return "up"
	}
	return "down"
}

// strays adds the links of our form on our bridge that belong to no pod.
func (h host) strays(w world, known func(name string) bool) {
	br := h.links[h.bridge]
	if br == nil {
		return
	}
	for name, l := range h.links {
		if l.Type() == "veth" && isOurs(name) && l.Attrs().MasterIndex == br.Attrs().Index && !known(name) {
			w[fact{kindLink, name, "type"}] = "veth"
		}
	}
}

// seeInside looks at the pod's end, in its namespace. Where the pin does not hold
// that namespace there is nothing to see.
func seeInside(pod attached) (world, error) {
	w := world{}
	if inode := inodeOf(pod.netns); inode == 0 || pod.inode != 0 && inode != pod.inode {
		return w, nil
	}
	err := netns.Do(pod.netns, func() error {
		l, err := netlink.LinkByName(pod.name)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return w.addInside(pod, l)
	})
	if err != nil {
		return nil, fmt.Errorf("looking at link %s of pod %s: %w", pod.name, pod.alias, err)
	}
	return w, nil
}

// addInside adds what a pod's end is; the thread is in the pod's namespace.
func (w world) addInside(pod attached, l netlink.Link) error {
	a := l.Attrs()
	at := func(name string) fact { return fact{kindInside, pod.host, name} }
	w[at("type")], w[at("state")] = l.Type(), stateOf(a)
	w[at("address")], w[at("mtu")] = a.HardwareAddr.String(), strconv.Itoa(a.MTU)
	list, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	for _, p := range prefixesOf(list) {
		w[at("addr "+p.String())] = there
	}
	for six, family := range map[bool]int{false: netlink.FAMILY_V4, true: netlink.FAMILY_V6} {
		routes, err := defaultRoutes(family)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		if len(routes) > 0 { // the pod's own choice of gateway is its own business
			w[at("route default."+familyName(six))] = there
		}
	}
	return nil
}

// seePin adds which namespace the pin holds.
func (w world) seePin(pod attached) {
	value := "none"
	if inode := inodeOf(pod.netns); inode != 0 {
		value = strconv.FormatUint(inode, 10)
	}
	w[fact{kindNetns, pod.host, "inode"}] = value
}

// seeFiles adds the reservations of addresses that are wanted.
func (w world) seeFiles(wanted world, entries []hostlocal.Entry) {
	for _, e := range entries {
		id, dev := fact{kindReservation, e.Addr.String(), "id"}, fact{kindReservation, e.Addr.String(), "dev"}
		if want, ok := wanted[id]; ok {
			w[id], w[dev] = e.ID, e.Interface
			if e.Interface == "" && e.ID == want { // a file of an old version
				w[dev] = wanted[dev]
			}
		}
	}
}
