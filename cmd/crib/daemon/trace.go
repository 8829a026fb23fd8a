package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/look"
	"github.com/crib-runtime/crib/network/nat"
	"github.com/crib-runtime/crib/sandbox"
)

// trace is the way of a packet as far as it is known.
type trace struct {
	d     *Daemon
	pod   *sandbox.Pod
	link  network.Attachment
	from  netip.Addr
	to    netip.AddrPort
	steps []look.Step
}

// Trace implements admin.NetworkSource. It follows a packet from the first link of a
// pod to where it leaves the host, or to what stops it.
func (d *Daemon) Trace(_ context.Context, name string, to netip.AddrPort) ([]look.Step, error) {
	pod, err := d.find(name)
	if err != nil {
		return nil, err
	}
	if len(pod.Attachments) == 0 || pod.Released {
		return nil, fmt.Errorf("pod %s has no network of its own: %w", pod.Spec.Key, errdefs.ErrFailedPrecondition)
	}
	t := &trace{d: d, pod: pod, link: pod.Attachments[0], to: to}
	for _, p := range t.link.Addresses {
		if p.Addr().Is4() == to.Addr().Is4() {
			t.from = p.Addr()
		}
	}
	if !t.from.IsValid() {
		return t.stop("pod", "it has no address of the family of %s", to.Addr()), nil
	}
	for _, leg := range []func() bool{t.inPod, t.onBridge, t.hostPort, t.onHost, t.others} {
		if !leg() {
			break
		}
	}
	return t.steps, nil
}

func (t *trace) note(where, format string, args ...any) {
	t.steps = append(t.steps, look.Step{Where: where, What: fmt.Sprintf(format, args...)})
}

func (t *trace) stop(where, format string, args ...any) []look.Step {
	t.steps = append(t.steps, look.Step{Where: where, What: fmt.Sprintf(format, args...), Stops: true})
	return t.steps
}

// inPod is the pod's own routing. All legs say whether the packet goes on.
func (t *trace) inPod() bool {
	hop, err := look.Onward(t.pod.Pins.Net.Path, look.Packet{From: t.from, To: t.to.Addr()})
	if err != nil {
		t.stop("pod", "%v", err)
		return false
	}
	t.note("pod", "%s, route %s, next %s%s", t.from, hop.Route, hop.Next, known(hop))
	if hop.Kind != "unicast" {
		t.stop("pod", "the route is %s: the packet does not leave the pod", hop.Kind)
	}
	return hop.Kind == "unicast"
}

// known tells how a next one is known.
func known(hop look.Hop) string {
	if hop.Neighbour == "" {
		return " (not asked for yet)"
	}
	return " (" + hop.Neighbour + ")"
}

// onBridge is the host's end of the link, and for another pod of the bridge its port.
func (t *trace) onBridge() bool {
	if t.link.Driver != driverBridge {
		t.note("host", "network %s is of CNI plugins: what they made is not known", t.link.Network)
		return true
	}
	host, err := look.Host(t.link.HostInterface)
	switch {
	case err != nil:
		t.stop("bridge", "%v", err)
	case !host.Up:
		t.stop("bridge", "%s is down: crib net check --repair", host.Name)
	case host.Master != t.d.cfg.Network.Bridge:
		t.stop("bridge", "%s is no port of %s: crib net check --repair", host.Name, t.d.cfg.Network.Bridge)
	default:
		t.note("bridge", "%s is up, a port of %s", host.Name, host.Master)
		return t.toNeighbour()
	}
	return false
}

// toNeighbour ends at a pod of the same bridge, where the packet is not routed.
func (t *trace) toNeighbour() bool {
	for _, pod := range t.d.pods.List() {
		if pod.Released || len(pod.Attachments) == 0 || !slices.Contains(pod.IPs(), t.to.Addr()) {
			continue
		}
		a := pod.Attachments[0]
		port, err := look.Learned(t.d.cfg.Network.Bridge, a.MAC)
		if err != nil {
			t.stop("bridge", "%v", err)
			return false
		}
		switch port {
		case "":
			port = "no port yet: it is flooded"
		case a.HostInterface:
		default:
			port += ", which is not that pod's " + a.HostInterface
		}
		t.note("bridge", "pod %s has %s; the forwarding database has %s at %s", pod.Spec.Key, t.to.Addr(), a.MAC, port)
		return false
	}
	return true
}

// hostPort is our table's translation of the destination.
func (t *trace) hostPort() bool {
	local, err := look.Onward("", look.Packet{To: t.to.Addr()})
	if err != nil || local.Kind != "local" {
		return true
	}
	for _, pod := range t.d.pods.List() {
		for _, p := range pod.Spec.Ports {
			if pod.Released || p.HostPort != t.to.Port() || p.HostIP.IsValid() && !p.HostIP.IsUnspecified() && p.HostIP != t.to.Addr() {
				continue
			}
			t.note("table "+builtin, "host port %s %d leads to pod %s port %d", p.Protocol, p.HostPort, pod.Spec.Key, p.ContainerPort)
			return false
		}
	}
	t.note("host", "%s is an address of the host; no pod has port %d there", t.to.Addr(), t.to.Port())
	return false
}

// onHost is the host's routing, and our table's masquerade.
func (t *trace) onHost() bool {
	in := t.d.cfg.Network.Bridge
	if t.link.Driver != driverBridge {
		in = t.link.HostInterface
	}
	hop, err := look.Onward("", look.Packet{From: t.from, To: t.to.Addr(), In: in})
	if err != nil {
		t.stop("host", "%v (is ip_forward on?)", err)
		return false
	}
	t.note("host", "from %s, route %s, next %s by %s%s", in, hop.Route, hop.Next, hop.Dev, known(hop))
	if hop.Kind != "unicast" {
		t.stop("host", "the route is %s", hop.Kind)
		return false
	}
	if t.link.Driver == driverBridge {
		t.note("table "+builtin, "%s", t.masquerade(hop.Dev))
	}
	return true
}

// masquerade evaluates our rule about sources, as package nat makes it.
func (t *trace) masquerade(dev string) string {
	for _, p := range t.d.cfg.Network.NoMasquerade {
		if p.Contains(t.to.Addr()) {
			return fmt.Sprintf("not masqueraded: %s is in network.no_masquerade", p)
		}
	}
	for _, r := range t.d.nets.bridge.Ranges() {
		if r.CIDR.Contains(t.to.Addr()) {
			return "not masqueraded: it goes to pods"
		}
	}
	return "masqueraded as the host's address on " + dev
}

// others are the chains of somebody else's that may drop it.
func (t *trace) others() bool {
	drops, err := nat.ForeignDrops()
	if err != nil {
		t.note("others", "their chains cannot be read: %v", err)
	}
	for _, chain := range drops {
		t.note("others", "chain %s drops what none of its rules accepts: crib check names the remedy", chain)
	}
	return true
}
