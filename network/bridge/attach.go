package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// Attach makes the kernel match the attachments of this network: reservation
// files, link, addresses, routes, host ports. It is idempotent: what is there and
// right stays, what is not is made again. An address that somebody else has
// reserved is replaced, and save is called with all attachments before the new
// one is used. What it returns are the attachments as they are then, also with an
// error; after an error the caller calls Detach. Class ResourceExhausted: the
// bridge has no port left; NotFound: the network namespace is gone.
func (n *Network) Attach(ctx context.Context, pod network.Pod, atts []network.Attachment, save network.Save) ([]network.Attachment, error) {
	atts = slices.Clone(atts)
	for i := range atts {
		if !n.owns(atts[i]) {
			continue
		}
		if err := n.attach(ctx, pod, claim{atts, i, save}); err != nil {
			return atts, fmt.Errorf("attaching pod %s/%s to network %s: %w", pod.Namespace, pod.Name, n.cfg.Name, err)
		}
	}
	return atts, nil
}

// owns reports whether the attachment is one of this network.
func (n *Network) owns(att network.Attachment) bool {
	return att.Driver == Driver && att.Network == n.cfg.Name
}

// claim is an attachment in its list, and how to save the list.
type claim struct {
	atts []network.Attachment
	i    int
	save network.Save
}

// att is the attachment.
func (c claim) att() *network.Attachment { return &c.atts[c.i] }

// attach makes one attachment.
func (n *Network) attach(ctx context.Context, pod network.Pod, c claim) error {
	if err := n.mem.seize(ctx, pod.ID); err != nil {
		return err
	}
	if err := n.addrs.Claim(pod.ID, hosts(c.att().Addresses)); err != nil {
		return err
	}
	if err := n.claimFiles(pod, c); err != nil {
		return err
	}
	n.mem.add(pod, *c.att())
	n.forgetFlows(n.mem.takeFormer(hosts(c.att().Addresses)...))
	// First the rules: the pod's first packets are to pass.
	if err := n.firewall.Publish(ctx, pod.ID); err != nil {
		return err
	}
	if err := n.ensureLink(ctx, pod, *c.att()); err != nil {
		return err
	}
	n.mem.settle(pod.ID, inodeOf(pod.Netns))
	return nil
}

// claimFiles reserves the addresses in the directory. One that is another's is
// replaced in memory, then in the record, and only then reserved.
func (n *Network) claimFiles(pod network.Pod, c claim) error {
	for i := 0; i < len(c.att().Addresses); {
		addr := c.att().Addresses[i].Addr()
		err := n.files.Claim(addr, pod.ID, c.att().Interface)
		if err == nil {
			i++
			continue
		}
		if !errdefs.IsAlreadyExists(err) {
			return err
		}
		n.cfg.Log.Warn("taking another address", "network", n.cfg.Name, "pod", alias(pod), "address", addr, "cause", err)
		addrs, err := n.addrs.Replace(pod.ID, addr)
		n.mem.refuse(addr)
		if err != nil {
			return err
		}
		*c.att() = attachment(n.cfg.Name, pod, c.att().Interface, addrs)
		if err := n.reserve(pod, *c.att()); err != nil {
			return err
		}
		if err := c.save(c.atts); err != nil {
			return fmt.Errorf("recording address %v: %w", c.att().Addresses[i], err)
		}
	}
	return nil
}

// ensureLink makes the pod's link, and the bridge before if it is not there.
func (n *Network) ensureLink(ctx context.Context, pod network.Pod, att network.Attachment) error {
	select {
	case n.turns.links <- struct{}{}:
		defer func() { <-n.turns.links }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := n.link(ctx, pod, att)
	if err != nil {
		return err
	}
	err = l.ensure()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		// The bridge may have been deleted, or deleted and made again.
		if l, err = n.freshLink(ctx, pod, att); err == nil {
			err = l.ensure()
		}
	}
	if errors.Is(err, unix.EXFULL) {
		return fmt.Errorf("adding a port to bridge %s: all of its 1023 ports are taken, end pods or use another node: %w: %w",
			n.cfg.Link, err, errdefs.ErrResourceExhausted)
	}
	return err
}

// link returns the wanted state of the pod's link.
func (n *Network) link(ctx context.Context, pod network.Pod, att network.Attachment) (link, error) {
	br := n.mem.bridge()
	if br.index == 0 {
		return n.freshLink(ctx, pod, att)
	}
	return attached{
		addrs: att.Addresses, host: att.HostInterface, alias: alias(pod),
		netns: pod.Netns, name: att.Interface, mac: att.MAC,
	}.link(br)
}

// freshLink returns the wanted state after another look at the bridge.
func (n *Network) freshLink(ctx context.Context, pod network.Pod, att network.Attachment) (link, error) {
	if err := n.apply(ctx); err != nil {
		return link{}, err
	}
	if n.mem.bridge().index == 0 {
		return link{}, fmt.Errorf("finding bridge %s: no pod CIDR is known yet: %w", n.cfg.Link, errdefs.ErrUnavailable)
	}
	return n.link(ctx, pod, att)
}

// ensure makes the link, or makes the one that is there right. Making comes
// first since it is the usual case.
func (l link) ensure() error {
	err := l.create()
	if errors.Is(err, unix.EEXIST) {
		err = l.replace()
	}
	if err == nil {
		err = l.joinGroups()
	}
	if err != nil {
		return err
	}
	return l.configurePod()
}

// replace deals with names that are taken: by this link, or by an older one.
func (l link) replace() error {
	if l.complete() {
		return l.repair()
	}
	if err := l.clear(); err != nil {
		return err
	}
	return l.create()
}
