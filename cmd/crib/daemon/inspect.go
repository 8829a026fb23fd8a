package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/look"
	"github.com/crib-runtime/crib/network/nat"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
)

// find returns a pod by its id, the beginning of it, or namespace/name; of several
// with one name it is the newest.
func (d *Daemon) find(name string) (*sandbox.Pod, error) {
	var found *sandbox.Pod
	for _, pod := range d.pods.List() { // the oldest first
		if pod.Spec.Key.String() == name || pod.Spec.Name == name || name != "" && strings.HasPrefix(pod.ID, name) {
			found = pod
		}
	}
	if found == nil {
		return nil, fmt.Errorf("pod %q is not known, by neither its name nor its id (crib pods lists them): %w", name, errdefs.ErrNotFound)
	}
	return found, nil
}

// PodNetwork implements admin.NetworkSource.
func (d *Daemon) PodNetwork(_ context.Context, name string) (admin.PodNetwork, error) {
	pod, err := d.find(name)
	if err != nil {
		return admin.PodNetwork{}, err
	}
	shown := admin.PodNetwork{Netns: pod.Pins.Net.Path, Ports: slices.Concat([]network.PortMapping{}, pod.Spec.Ports), Links: []admin.PodLink{}}
	for _, p := range d.Pods() {
		if p.ID == pod.ID {
			shown.Pod = p
		}
	}
	if pod.Released {
		return shown, nil
	}
	for _, a := range pod.Attachments {
		shown.Links = append(shown.Links, linkOf(pod, a))
	}
	return shown, nil
}

// linkOf looks at both ends of a pod's link.
func linkOf(pod *sandbox.Pod, a network.Attachment) admin.PodLink {
	link := admin.PodLink{Attachment: a}
	if a.HostInterface != "" {
		host, err := look.Host(a.HostInterface)
		if err == nil {
			link.Host = &host
		} else {
			link.Errors = append(link.Errors, err.Error())
		}
	}
	inside, err := look.Pod(pod.Pins.Net.Path, a.Interface)
	if err == nil {
		link.Inside = &inside
	} else {
		link.Errors = append(link.Errors, err.Error())
	}
	return link
}

// Findings implements admin.NetworkSource.
func (d *Daemon) Findings(ctx context.Context) ([]network.Finding, error) {
	all := append([]network.Finding{}, d.nets.bridge.Findings()...)
	add := func(kind, object, text, remedy string) {
		all = append(all, network.Finding{Kind: kind, Object: object, Text: text, Remedy: remedy})
	}
	if status := d.nets.status(); !status.Ready {
		add("network", status.Reason, status.Message, "")
	}
	table, tableErr := d.nets.table.Check(ctx)
	all = append(all, table...)
	if len(d.nets.bridge.Ranges()) > 0 {
		if br, err := look.Host(d.cfg.Network.Bridge); err != nil {
			add("bridge", d.cfg.Network.Bridge, err.Error(), "")
		} else if !br.Up {
			add("bridge", br.Name, "it is down", "")
		}
	}
	for _, pod := range d.pods.List() {
		if pod.State == sandbox.Ready && !pod.Spec.Namespaces.HostNetwork {
			all = append(all, d.podFindings(pod)...)
		}
	}
	drops, err := nat.ForeignDrops()
	for _, chain := range drops {
		add("firewall", chain, "drops by its policy what no rule of it accepts, pods' packets included", "crib check names the command")
	}
	return all, errors.Join(tableErr, err)
}

// podFindings compares what a pod has with what its record says.
func (d *Daemon) podFindings(pod *sandbox.Pod) []network.Finding {
	var all []network.Finding
	add := func(kind, format string, args ...any) {
		all = append(all, network.Finding{Kind: kind, Object: pod.Spec.Key.String(), Text: fmt.Sprintf(format, args...)})
	}
	if err := netns.Check(pod.Pins); err != nil {
		add("netns", "%v", err)
		return all
	}
	for _, a := range pod.Attachments {
		link := linkOf(pod, a)
		for _, text := range link.Errors {
			add("link", "%s", text)
		}
		if host := link.Host; host != nil && a.Driver == driverBridge {
			if !host.Up {
				add("link", "%s is down", host.Name)
			}
			if host.Master != d.cfg.Network.Bridge {
				add("link", "%s is no port of %s but of %q", host.Name, d.cfg.Network.Bridge, host.Master)
			}
		}
		if link.Inside != nil {
			all = append(all, lacking(pod, a, *link.Inside)...)
		}
	}
	return all
}

// lacking says what of an attachment is not inside of the pod.
func lacking(pod *sandbox.Pod, a network.Attachment, inside look.Inside) []network.Finding {
	var all []network.Finding
	add := func(format string, args ...any) {
		all = append(all, network.Finding{Kind: "pod", Object: pod.Spec.Key.String(), Text: fmt.Sprintf(format, args...)})
	}
	if !inside.Link.Up {
		add("%s is down in the pod", a.Interface)
	}
	for _, want := range a.Addresses {
		if !slices.ContainsFunc(inside.Addresses, func(p netip.Prefix) bool { return p.Addr() == want.Addr() }) {
			add("%s has no longer the address %s", a.Interface, want.Addr())
		}
	}
	for _, gw := range a.Gateways {
		if a.Driver == driverBridge && !slices.ContainsFunc(inside.Routes, func(r string) bool { return strings.HasPrefix(r, "default via "+gw.String()+" ") }) {
			add("%s has no longer the default route via %s", a.Interface, gw)
		}
	}
	return all
}

// Repair implements admin.NetworkSource: bridge, sysctls and table by giving the
// ranges again, each pod that lacks something by attaching it again.
func (d *Daemon) Repair(ctx context.Context) ([]network.Finding, error) {
	if err := d.nets.again(ctx); err != nil {
		d.log.Warn("the built-in network could not be repaired", "error", err)
	}
	for _, pod := range d.pods.List() {
		if pod.State != sandbox.Ready || pod.Spec.Namespaces.HostNetwork || len(d.podFindings(pod)) == 0 {
			continue
		}
		log := d.log.With("pod", pod.Spec.Key, "id", pod.ID)
		if err := d.pods.Repair(ctx, pod.ID); err != nil {
			log.Warn("the network of a pod could not be repaired", "event", "PodBroken", "error", err)
			continue
		}
		log.Info("the network of a pod was repaired on demand", "event", "PodRepaired")
	}
	return d.Findings(ctx)
}
