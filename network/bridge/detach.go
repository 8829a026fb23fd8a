package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// detachTime bounds a Detach, whatever the caller's context says.
const detachTime = 30 * time.Second

// Detach sets the pod's links of this network down, closes its host ports, and
// frees its addresses. Nothing of it has to be there. The links themselves go
// with the pod's namespace; Serve deletes those that stay. It does not heed the
// end of ctx. After an error the addresses stay taken, and Detach can be called
// again.
func (n *Network) Detach(ctx context.Context, pod network.Pod, atts []network.Attachment) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTime)
	defer cancel()
	var errs []error
	for _, att := range atts {
		if n.owns(att) {
			errs = append(errs, n.detach(ctx, pod, att))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detaching pod %s/%s from network %s: %w", pod.Namespace, pod.Name, n.cfg.Name, err)
	}
	return nil
}

// detach undoes one attachment.
func (n *Network) detach(ctx context.Context, pod network.Pod, att network.Attachment) error {
	if err := n.mem.seize(ctx, pod.ID); err != nil {
		return err
	}
	host := network.HostLinkName(pod.ID, att.Interface) // the record may lack it
	left, downErr := setDown(host, pod.Netns)
	if err := errors.Join(downErr, n.firewall.Unpublish(ctx, pod.ID)); err != nil {
		return err // the address may still be reached, so nobody else may have it
	}
	if err := n.releaseFiles(pod.ID, hosts(att.Addresses)); err != nil {
		return err
	}
	n.addrs.Release(pod.ID)
	if n.mem.remove(pod.ID, host, left) {
		n.alarm.ring(scope{ranges: true})
	}
	return nil
}

// releaseFiles frees reservations; those that are missing, or another's, are fine.
func (n *Network) releaseFiles(id string, addrs []netip.Addr) error {
	var errs []error
	for _, addr := range addrs {
		errs = append(errs, n.files.Release(addr, id))
	}
	return errors.Join(errs...)
}

// setDown sets the host's end of a link down, which costs far less than deleting
// it. It returns nil for a link that is gone.
func setDown(host, netns string) (*leaver, error) {
	down := nl.NewIfInfomsg(unix.AF_UNSPEC)
	down.Change = unix.IFF_UP
	var b batch
	b.add("setting down link "+host, unix.RTM_SETLINK, 0, down,
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(host)))
	err := b.run()
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The inode is for naming who holds it, should it stay.
	return &leaver{since: time.Now(), netns: inodeOf(netns)}, nil
}
