package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/crib-runtime/crib/ipam/hostlocal"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/nat"
)

// Restore takes over at start what the records hold: it claims their addresses
// and host ports, makes bridge, sysctls and firewall right in one go, and deletes
// links and reservation files of ours that no record names. Reservations of
// containers that nobody here knows are others': their addresses are not handed
// out as long as they are there. A record that cannot be honoured does not stop
// the rest; the errors are joined.
func (n *Network) Restore(ctx context.Context, held []network.Held) error {
	var errs []error
	wanted := map[string]bool{}     // names of links
	ports := map[string]nat.Ports{} // by pod id
	for _, h := range held {
		for _, att := range h.Attachments {
			wanted[network.HostLinkName(h.Pod.ID, att.Interface)] = true // other networks' too
			if !n.owns(att) {
				continue
			}
			if err := n.claimHeld(h.Pod, att); err != nil {
				errs = append(errs, fmt.Errorf("restoring pod %s/%s (%s): %w", h.Pod.Namespace, h.Pod.Name, h.Pod.ID, err))
			}
			ports[h.Pod.ID] = portsOf(h.Pod, att)
		}
	}
	errs = append(errs, n.restoreRules(ctx, ports))
	n.mem.restore()
	errs = append(errs, n.apply(ctx), n.sweepFiles(held), n.sweepLinks(wanted))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restoring network %s: %w", n.cfg.Name, err)
	}
	return nil
}

// restoreRules tells the firewall of the networks first, so that there is no
// moment at which living pods are not masqueraded.
func (n *Network) restoreRules(ctx context.Context, ports map[string]nat.Ports) error {
	if subnets := n.mem.subnets(ipv6Available()); len(subnets) > 0 {
		if err := n.setNetworks(ctx, subnets); err != nil {
			return err
		}
	}
	return n.firewall.Restore(ctx, ports)
}

// claimHeld claims what one attachment of a record names.
func (n *Network) claimHeld(pod network.Pod, att network.Attachment) error {
	if err := n.addrs.Claim(pod.ID, hosts(att.Addresses)); err != nil {
		return err
	}
	n.mem.add(pod, att)
	var errs []error
	for _, addr := range hosts(att.Addresses) {
		errs = append(errs, n.files.Claim(addr, pod.ID, att.Interface))
	}
	return errors.Join(errs...)
}

// sweepFiles frees the reservations that were ours, and keeps off the others.
func (n *Network) sweepFiles(held []network.Held) error {
	entries, err := n.files.Entries()
	if err != nil {
		return err
	}
	links, err := n.ourLinks()
	if err != nil {
		return err
	}
	ours := map[string]bool{} // pod ids
	for _, h := range held {
		ours[h.Pod.ID] = true
	}
	names := map[string]bool{}
	for _, l := range links {
		names[l.name] = true
	}
	pods := n.mem.all()
	var errs []error
	for _, e := range entries {
		switch {
		case holds(pods[e.ID], e):
		case e.ID == "" || ours[e.ID] || names[network.HostLinkName(e.ID, e.Interface)]:
			errs = append(errs, n.files.Release(e.Addr, e.ID))
		default:
			n.cfg.Log.Warn("an address is reserved for a container that is not ours", "network", n.cfg.Name,
				"address", e.Addr, "container", e.ID, "interface", e.Interface)
			n.mem.refuse(e.Addr)
			n.addrs.Refuse(e.Addr)
		}
	}
	return errors.Join(errs...)
}

// holds reports whether the pod's record names the address of the entry.
func holds(pod attached, e hostlocal.Entry) bool {
	for _, a := range pod.addrs {
		if a.Addr() == e.Addr {
			return true
		}
	}
	return false
}

// sweepLinks deletes pods' links that no record names.
func (n *Network) sweepLinks(wanted map[string]bool) error {
	links, err := n.ourLinks()
	if err != nil {
		return err
	}
	var strays []int
	for _, l := range links {
		if !wanted[l.name] {
			n.cfg.Log.Info("deleting a link without a record", "network", n.cfg.Name, "link", l.name, "alias", l.alias)
			strays = append(strays, l.index)
		}
	}
	return deleteLinks(strays)
}
