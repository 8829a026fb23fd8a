package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// sweepTime is the time between two looks for links that stay.
	sweepTime = time.Second
	// grace is how long the kernel may take to delete a link by itself.
	grace = 2 * time.Second
	// deadGroup is the link group that marks links for deletion: "crib" in ASCII.
	deadGroup = 0x63726962
)

// ourLink is what has to be known of a pod's link that is found in the kernel.
type ourLink struct {
	name, alias string
	index       int
}

// ourLinks lists the links whose names have the form of ours, less those on the
// bridge of another network.
func (n *Network) ourLinks() ([]ourLink, error) {
	master, err := indexOf(n.cfg.Link)
	if err != nil && !isGone(err) {
		return nil, fmt.Errorf("looking up bridge %s: %w", n.cfg.Link, err)
	}
	all, err := whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	var links []ourLink
	for _, l := range all {
		a := l.Attrs()
		if l.Type() == "veth" && isOurs(a.Name) && (a.MasterIndex == 0 || a.MasterIndex == master) {
			links = append(links, ourLink{a.Name, a.Alias, a.Index})
		}
	}
	return links, nil
}

// deleteLinks deletes links as a group, so that the kernel waits once for all
// of them. Those that are gone are fine.
func deleteLinks(indexes []int) error {
	if len(indexes) == 0 {
		return nil
	}
	var errs []error
	for _, index := range indexes {
		mark := nl.NewIfInfomsg(unix.AF_UNSPEC)
		mark.Index = int32(index)
		var b batch
		b.add("marking link "+strconv.Itoa(index)+" for deletion", unix.RTM_SETLINK, 0, mark,
			nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(deadGroup)))
		if err := b.run(); !isGone(err) {
			errs = append(errs, err)
		}
	}
	var b batch
	b.add("deleting links", unix.RTM_DELLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(deadGroup)))
	if err := b.run(); !isGone(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweeping deletes the links that stay after their pods, until ctx ends.
func (n *Network) sweeping(ctx context.Context) {
	tick := time.NewTicker(sweepTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := n.sweep(now); err != nil {
				n.cfg.Log.Warn("deleting links that stay", "network", n.cfg.Name, "error", err)
			}
			n.forgetFlows(n.mem.takeFormer())
		}
	}
}

// sweep deletes the links that have been leaving for longer than the grace.
func (n *Network) sweep(now time.Time) error {
	var indexes []int
	for name, l := range n.mem.overdue(now.Add(-grace)) {
		index, err := indexOf(name)
		switch {
		case isGone(err):
			n.mem.left(name)
		case err != nil:
			return fmt.Errorf("looking up link %s: %w", name, err)
		case n.mem.isLeaving(name):
			n.cfg.Log.Warn("a link stays after its pod: somebody holds the pod's network namespace",
				"network", n.cfg.Name, "link", name, "holders", holders(l.netns))
			indexes = append(indexes, index)
		}
	}
	return deleteLinks(indexes)
}

// holders names the processes that are in a network namespace or have it open,
// as far as they can be found.
func holders(inode uint64) []string {
	if inode == 0 {
		return nil
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []string
	for _, proc := range procs {
		if holdsNamespace(proc, inode) {
			name, _ := os.ReadFile(proc + "/comm")
			found = append(found, filepath.Base(proc)+" "+strings.TrimSpace(string(name)))
		}
	}
	return found
}

// holdsNamespace looks at the threads and descriptors of a process.
func holdsNamespace(proc string, inode uint64) bool {
	for _, pattern := range []string{"/task/*/ns/net", "/fd/*"} {
		paths, err := filepath.Glob(proc + pattern)
		if err == nil && slices.ContainsFunc(paths, func(p string) bool { return isNamespace(p, inode) }) {
			return true
		}
	}
	return false
}

// isNamespace reports whether a path leads to the namespace of that inode. The
// link's text does not tell: it is a path for one that was opened by its pin. It
// asks no file system that may hang, as a network's can.
func isNamespace(path string, inode uint64) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st)
	if err != nil || st.Ino != inode {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// allowFreed hands out the addresses again that others have given up.
func (n *Network) allowFreed() {
	if !n.mem.hasRefused() {
		return
	}
	entries, err := n.files.Entries()
	if err != nil {
		return // the next Claim says it too
	}
	for _, addr := range n.mem.freed(entries) {
		n.cfg.Log.Info("an address is free again", "network", n.cfg.Name, "address", addr)
		n.addrs.Allow(addr)
	}
}
