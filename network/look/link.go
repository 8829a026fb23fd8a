package look

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// Link is a link of the kernel.
type Link struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"` // "veth", "bridge"
	Alias    string   `json:"alias,omitempty"`
	MAC      string   `json:"mac,omitempty"`
	MTU      int      `json:"mtu"`
	Up       bool     `json:"up"`
	Master   string   `json:"master,omitempty"` // the bridge that it is a port of
	Received Counters `json:"received"`
	Sent     Counters `json:"sent"`
}

// Counters are what passed since the link was made.
type Counters struct {
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	Dropped uint64 `json:"dropped"`
	Errors  uint64 `json:"errors"`
}

// Inside is what a pod has in its network namespace.
type Inside struct {
	Link       Link           `json:"link"`
	Addresses  []netip.Prefix `json:"addresses"`
	Routes     []string       `json:"routes"`     // as ip writes them
	Neighbours []string       `json:"neighbours"` // as ip writes them
}

// Host returns a link of the host's network namespace.
func Host(name string) (Link, error) { return find(name) }

// Pod returns a link in the network namespace that is pinned at a path.
func Pod(path, name string) (inside Inside, err error) {
	err = netns.Do(path, func() error {
		inside, err = look(name)
		return err
	})
	return inside, err
}

// find looks in the network namespace of the thread, as all below.
func find(name string) (Link, error) {
	l, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return Link{}, fmt.Errorf("looking at link %s: it is not there: %w", name, errdefs.ErrNotFound)
	}
	if err != nil {
		return Link{}, fmt.Errorf("looking at link %s: %w", name, err)
	}
	return linkOf(l), nil
}

func linkOf(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{Name: a.Name, Kind: l.Type(), Alias: a.Alias, MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0}
	if s := a.Statistics; s != nil {
		link.Received = Counters{s.RxBytes, s.RxPackets, s.RxDropped, s.RxErrors}
		link.Sent = Counters{s.TxBytes, s.TxPackets, s.TxDropped, s.TxErrors}
	}
	if a.MasterIndex != 0 {
		link.Master = nameOf(a.MasterIndex)
	}
	return link
}

// nameOf names a link by its index, or the index if it is gone.
func nameOf(index int) string {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("if%d", index)
	}
	return l.Attrs().Name
}

func look(name string) (Inside, error) {
	link, err := find(name)
	if err != nil {
		return Inside{}, err
	}
	inside := Inside{Link: link, Addresses: []netip.Prefix{}, Routes: []string{}, Neighbours: []string{}}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return inside, err
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return inside, fmt.Errorf("listing addresses of %s: %w", name, err)
	}
	for _, a := range addrs {
		if p := prefixOf(a.IPNet); p.IsValid() && !p.Addr().IsLinkLocalUnicast() {
			inside.Addresses = append(inside.Addresses, p)
		}
	}
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return inside, fmt.Errorf("listing routes of %s: %w", name, err)
	}
	for _, r := range routes {
		inside.Routes = append(inside.Routes, routeText(r))
	}
	inside.Neighbours, err = neighbours(l.Attrs().Index)
	return inside, err
}

// routeText writes a route as ip does.
func routeText(r netlink.Route) string {
	words := []string{"default"}
	if p := prefixOf(r.Dst); p.IsValid() && p.Bits() > 0 {
		words = []string{p.String()}
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		words = append(words, "via", gw.Unmap().String())
	}
	if r.LinkIndex != 0 {
		words = append(words, "dev", nameOf(r.LinkIndex))
	}
	if src, ok := netip.AddrFromSlice(r.Src); ok {
		words = append(words, "src", src.Unmap().String())
	}
	return strings.Join(words, " ")
}

// prefixOf translates the library's subnet; the result is not valid for none.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

// neighbours lists those of a link in both families.
func neighbours(index int) ([]string, error) {
	texts := []string{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
		if err != nil {
			return texts, fmt.Errorf("listing neighbours of %s: %w", nameOf(index), err)
		}
		for _, n := range list {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&unix.NUD_NOARP == 0 {
				texts = append(texts, fmt.Sprintf("%s lladdr %s %s", addr.Unmap(), n.HardwareAddr, stateName(n.State)))
			}
		}
	}
	return texts, nil
}

// stateName is how ip writes the state of a neighbour.
func stateName(state int) string {
	for bit, name := range map[int]string{
		unix.NUD_INCOMPLETE: "INCOMPLETE", unix.NUD_REACHABLE: "REACHABLE", unix.NUD_STALE: "STALE",
		unix.NUD_DELAY: "DELAY", unix.NUD_PROBE: "PROBE", unix.NUD_FAILED: "FAILED", unix.NUD_PERMANENT: "PERMANENT",
	} {
		if state&bit != 0 {
			return name
		}
	}
	return "NONE"
}

// whole repeats a dump that the kernel interrupted.
func whole[T any](dump func() ([]T, error)) ([]T, error) {
	for range 20 {
		list, err := dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, netlink.ErrDumpInterrupted
}
