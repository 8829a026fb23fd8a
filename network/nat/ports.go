package nat

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
)

// Ports is what a record says of one pod.
type Ports struct {
	Ports []network.PortMapping
	Addrs []netip.Addr     // of the pod; the first of each family is where ports lead to
	Link  string           // the host's end of the pod's link; "" for no check of sources
	MAC   net.HardwareAddr // of the pod's end
}

// slot is a port of the host in one family.
type slot struct {
	v6    bool
	proto network.Protocol
	port  uint16
}

// bind leads one port of the host to a pod.
type bind struct {
	slot
	host   netip.Addr // the zero Addr stands for every address of the family
	target netip.AddrPort
}

// reservation is what one pod has.
type reservation struct {
	binds   []bind
	sources []element // what the pod may send from
	live    []element // what was put into the kernel
}

// book knows who owns which port of the host. Table's mutex guards it.
type book struct {
	pods   map[string]*reservation
	owners map[slot]map[netip.Addr]string // pod ids by host address
	guards bool                           // whether sources are checked
}

func newBook(guards bool) *book {
	return &book{guards: guards, pods: map[string]*reservation{}, owners: map[slot]map[netip.Addr]string{}}
}

// reserve gives the ports to the pod in place of those it has. On error nothing changes.
func (b *book) reserve(podID string, p Ports) error {
	binds, err := bindsOf(p)
	if err != nil {
		return err
	}
	for _, bind := range binds {
		if err := b.conflict(podID, bind); err != nil {
			return err
		}
	}
	var live []element
	if old := b.pods[podID]; old != nil {
		live = old.live
	}
	b.release(podID)
	var sources []element
	if b.guards {
		sources = sourceElements(p)
	}
	if len(binds)+len(sources)+len(live) == 0 {
		return nil
	}
	b.pods[podID] = &reservation{binds: binds, sources: sources, live: live}
	for _, bind := range binds {
		if b.owners[bind.slot] == nil {
			b.owners[bind.slot] = map[netip.Addr]string{}
		}
		b.owners[bind.slot][bind.host] = podID
	}
	return nil
}

// conflict returns an error that names the other pod that has the port.
func (b *book) conflict(podID string, want bind) error {
	for host, other := range b.owners[want.slot] {
		if other == podID || want.host.IsValid() && host.IsValid() && want.host != host {
			continue
		}
		return fmt.Errorf("host port %s is taken by pod %s, as %s: %w",
			portName(want), other, portName(bind{slot: want.slot, host: host}), errdefs.ErrAlreadyExists)
	}
	return nil
}

func portName(b bind) string {
	host := b.host
	switch {
	case host.IsValid():
	case b.v6:
		host = netip.IPv6Unspecified()
	default:
		host = netip.IPv4Unspecified()
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(host, b.port), b.proto)
}

func (b *book) release(podID string) {
	res := b.pods[podID]
	if res == nil {
		return
	}
	for _, bind := range res.binds {
		delete(b.owners[bind.slot], bind.host)
		if len(b.owners[bind.slot]) == 0 {
			delete(b.owners, bind.slot)
		}
	}
	delete(b.pods, podID)
}

// publish notes that the pod's ports are to be in the kernel, and returns which
// elements that takes out and puts in.
func (r *reservation) publish() (del, add []element) {
	add = slices.Concat(portElements(r.binds), r.sources)
	kept := map[element]bool{}
	for _, e := range add {
		kept[e] = true
	}
	for _, e := range r.live {
		if !kept[e] {
			del = append(del, e)
		}
	}
	r.live = add
	return del, add
}

// live returns the elements of all published pods.
func (b *book) live() []element {
	var all []element
	for _, id := range slices.Sorted(maps.Keys(b.pods)) {
		all = append(all, b.pods[id].live...)
	}
	return all
}

// bindsOf checks the mappings and says what each means in each family. A host IP
// of a family in which the pod has no address leads nowhere and is left out.
func bindsOf(p Ports) ([]bind, error) {
	if len(p.Ports) > 0 && len(p.Addrs) == 0 {
		return nil, fmt.Errorf("host ports of a pod without an address: %w", errdefs.ErrInvalidArgument)
	}
	var binds []bind
	for _, mapping := range p.Ports {
		if err := checkMapping(mapping); err != nil {
			return nil, err
		}
		for _, v6 := range []bool{false, true} {
			b, ok := bindOf(mapping, p.Addrs, v6)
			if !ok {
				continue
			}
			i := slices.IndexFunc(binds, func(o bind) bool { return o.slot == b.slot && o.host == b.host })
			if i >= 0 && binds[i].target != b.target {
				return nil, fmt.Errorf("host port %s is asked for twice, for container ports %d and %d: %w",
					portName(b), binds[i].target.Port(), b.target.Port(), errdefs.ErrInvalidArgument)
			}
			if i < 0 {
				binds = append(binds, b)
			}
		}
	}
	return binds, nil
}

func checkMapping(m network.PortMapping) error {
	if _, ok := protocolNumber(m.Protocol); !ok {
		return fmt.Errorf("host port %d has protocol %q, known are tcp, udp and sctp: %w", m.HostPort, m.Protocol, errdefs.ErrInvalidArgument)
	}
	if m.HostPort == 0 || m.ContainerPort == 0 {
		return fmt.Errorf("host port %d to container port %d: zero is no port: %w", m.HostPort, m.ContainerPort, errdefs.ErrInvalidArgument)
	}
	return nil
}

// bindOf returns what the mapping means in one family, if it means something there.
func bindOf(m network.PortMapping, addrs []netip.Addr, v6 bool) (bind, bool) {
	host := m.HostIP.Unmap()
	if host.IsValid() && host.Is6() != v6 {
		return bind{}, false
	}
	if host.IsUnspecified() {
		host = netip.Addr{}
	}
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.IsValid() && a.Unmap().Is6() == v6 })
	if i < 0 {
		return bind{}, false
	}
	return bind{
		slot:   slot{v6, m.Protocol, m.HostPort},
		host:   host.WithZone(""),
		target: netip.AddrPortFrom(addrs[i].Unmap(), m.ContainerPort),
	}, true
}
