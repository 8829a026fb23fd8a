package look

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// Packet is one whose way is asked for.
type Packet struct {
	From, To netip.Addr
	In       string // the link by which it comes to the host; "" for one that is sent there
}

// Hop is where the kernel sends a packet next.
type Hop struct {
	Route string     `json:"route"` // the entry of the table that matches, as ip writes it
	Kind  string     `json:"kind"`  // "unicast", "local" for an address of ours, "blackhole" and so on
	Dev   string     `json:"dev"`
	Next  netip.Addr `json:"next"` // the gateway, or the destination itself
	// Neighbour is how the kernel knows the next one, "" if it does not yet.
	Neighbour string `json:"neighbour,omitempty"`
}

// Onward tells where a packet goes from the namespace that is pinned at path, ""
// being the host's.
func Onward(path string, p Packet) (hop Hop, err error) {
	if path == "" {
		return onward(p)
	}
	err = netns.Do(path, func() error {
		hop, err = onward(p)
		return err
	})
	return hop, err
}

func onward(p Packet) (Hop, error) {
	options := netlink.RouteGetOptions{Iif: p.In, FIBMatch: true}
	if p.From.IsValid() {
		options.SrcAddr = p.From.AsSlice()
	}
	routes, err := netlink.RouteGetWithOptions(p.To.AsSlice(), &options)
	if err != nil || len(routes) == 0 {
		return Hop{}, fmt.Errorf("asking for the route to %s: %w", p.To, err)
	}
	r := routes[0]
	hop := Hop{Route: routeText(r), Kind: kindName(r.Type), Next: p.To}
	if r.LinkIndex != 0 {
		hop.Dev = nameOf(r.LinkIndex)
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		hop.Next = gw.Unmap()
	}
	hop.Neighbour = neighbour(r.LinkIndex, hop.Next)
	return hop, nil
}

// kindName is how ip writes the type of a route.
func kindName(kind int) string {
	switch kind {
	case unix.RTN_LOCAL:
		return "local"
	case unix.RTN_BLACKHOLE:
		return "blackhole"
	case unix.RTN_UNREACHABLE:
		return "unreachable"
	case unix.RTN_PROHIBIT:
		return "prohibit"
	}
	return "unicast"
}

// neighbour returns what the kernel knows of one.
func neighbour(index int, addr netip.Addr) string {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
	if err != nil {
		return err.Error()
	}
	for _, n := range list {
		if known, ok := netip.AddrFromSlice(n.IP); ok && known.Unmap() == addr {
			return n.HardwareAddr.String() + " " + stateName(n.State)
		}
	}
	return ""
}

// Learned returns the port of a bridge behind which it knows a link address, "" if
// it does not know it.
func Learned(bridge, mac string) (string, error) {
	l, err := netlink.LinkByName(bridge)
	if err != nil {
		return "", fmt.Errorf("looking at bridge %s: %w", bridge, err)
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return "", fmt.Errorf("listing the forwarding database: %w", err)
	}
	for _, n := range list {
		if n.MasterIndex == l.Attrs().Index && n.HardwareAddr.String() == mac && n.State&unix.NUD_PERMANENT == 0 {
			return nameOf(n.LinkIndex), nil
		}
	}
	return "", nil
}
