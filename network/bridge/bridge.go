package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/ipam"
	"github.com/crib-runtime/crib/ipam/hostlocal"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/nat"
)

// Driver is what the attachments of this package have as their driver.
const Driver = "bridge"

// maxLinks is how many requests change links at once. The kernel has one lock
// for all of it, so more of them only wait longer.
const maxLinks = 3

// Config says what a network is like. All fields but MTU, Sysctls and
// NoMasquerade are required.
type Config struct {
	Name         string         // of the network, as in attachments
	Link         string         // name of the bridge
	MTU          int            // 0: that of the link with the default route
	Dir          string         // host-local's directory
	Sysctls      string         // file for the host's former sysctl values, which Reset gives back; "": none is kept
	NoMasquerade []netip.Prefix // destinations that see the pods' own addresses
	Log          *slog.Logger
}

// Firewall is the part of the network that translates addresses: package nat's
// Table. All methods are idempotent; those with a context change the kernel.
type Firewall interface {
	HostPorts
	// SetNetworks says whose addresses are masqueraded, and not to where.
	SetNetworks(ctx context.Context, pods, noMasquerade []netip.Prefix) error
	// Check says what is not as it was built.
	Check(ctx context.Context) ([]network.Finding, error)
	// Ensure builds it anew if anything is not.
	Ensure(ctx context.Context) error
	// Watch tells of changes by others, until ctx ends.
	Watch(ctx context.Context, changed func()) error
}

// HostPorts is the part of the firewall that leads host ports to pods.
type HostPorts interface {
	// Reserve takes host ports for a pod, in memory, in place of those that it had.
	// AlreadyExists: another pod has one of them.
	Reserve(podID string, pod nat.Ports) error
	// Publish opens the reserved ports, and lets the pod send from its addresses.
	Publish(ctx context.Context, podID string) error
	// Unpublish undoes both and frees the ports of a pod; none is fine.
	Unpublish(ctx context.Context, podID string) error
	// Restore reserves and opens exactly the ports of these pods, by their ids.
	Restore(ctx context.Context, pods map[string]nat.Ports) error
	// Forget ends the flows from and to addresses that were pods'.
	Forget(addrs []netip.Addr) error
}

// Network is a built-in network. It is safe for concurrent use, except that the
// calls for one pod must not overlap. Until Restore has been called, if only with
// nothing, SetCIDRs and Status are the only calls that make sense.
type Network struct {
	cfg      Config
	firewall Firewall
	addrs    *ipam.Allocator
	files    *hostlocal.Dir
	turns    turns
	alarm    alarm
	journal  journal
	mem      memory
}

// turns are who may do what at present.
type turns struct {
	links    chan struct{} // holds a token for each request that changes links
	applying chan struct{} // holds a token while the bridge and the rules are changed
}

// Range is a pod CIDR and how far it is used.
type Range struct {
	CIDR       netip.Prefix
	Gateway    netip.Addr
	Used, Free uint64 // addresses
	Refused    uint64 // addresses that somebody else uses
}

// Open returns the network. It touches nothing but the reservation directory
// and the directory of the file of sysctls, which are made if they are missing.
func Open(cfg Config, firewall Firewall) (*Network, error) {
	if cfg.Name == "" || cfg.Link == "" || cfg.Dir == "" || cfg.Log == nil || firewall == nil {
		return nil, fmt.Errorf("opening network %q: name, link, directory, log and firewall are required: %w",
			cfg.Name, errdefs.ErrInvalidArgument)
	}
	if cfg.Sysctls != "" {
		if err := os.MkdirAll(filepath.Dir(cfg.Sysctls), 0o755); err != nil {
			return nil, fmt.Errorf("opening network %s: %w", cfg.Name, err)
		}
	}
	files, err := hostlocal.Open(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening network %s: %w", cfg.Name, err)
	}
	return &Network{
		cfg: cfg, firewall: firewall, addrs: ipam.New(), files: files,
		turns:   turns{links: make(chan struct{}, maxLinks), applying: make(chan struct{}, 1)},
		alarm:   newAlarm(),
		journal: newJournal(),
		mem:     newMemory(),
	}, nil
}

// SetCIDRs says from which ranges new pods get their addresses, at most one of
// each family, the first one's family first, and makes bridge, sysctls and
// firewall match. Pods of former ranges keep their gateway until they end. An
// error of class InvalidArgument or AlreadyExists means that nothing changed;
// after any other the ranges hold, the cause shows in Status, and Serve goes on
// trying. Before Restore the ranges are only noted: what a former process left is
// not touched before its pods are known. On a host without IPv6, IPv6 ranges are left out and Status says so.
func (n *Network) SetCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	served, unserved := cidrs, []netip.Prefix(nil)
	if !ipv6Available() {
		served, unserved = splitFamilies(cidrs)
	}
	if err := n.addrs.SetRanges(cidrs); err != nil { // all of them, to have each checked
		return fmt.Errorf("setting ranges of network %s: %w", n.cfg.Name, err)
	}
	if len(unserved) > 0 {
		if err := n.addrs.SetRanges(served); err != nil {
			return fmt.Errorf("setting ranges of network %s: %w", n.cfg.Name, err)
		}
	}
	n.mem.setRanges(served, unserved)
	return n.apply(ctx)
}

// splitFamilies returns the IPv4 and the IPv6 prefixes.
func splitFamilies(cidrs []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, c := range cidrs {
		if c.Addr().Is4() {
			v4 = append(v4, c)
		} else {
			v6 = append(v6, c)
		}
	}
	return v4, v6
}

// Ranges returns the ranges that new pods get their addresses from.
func (n *Network) Ranges() []Range {
	var list []Range
	for _, u := range n.addrs.Usage() {
		list = append(list, Range{CIDR: u.Prefix, Gateway: u.Gateway, Used: u.Used, Free: u.Free, Refused: u.Refused})
	}
	return list
}

// Serve repairs what others break, and sweeps the links of pods that are gone
// but still held, until ctx ends and its goroutines have ended.
func (n *Network) Serve(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { n.reconciling(ctx) })
	all.Go(func() { n.sweeping(ctx) })
	for what, watch := range map[string]func(context.Context) error{
		"links": n.watchLinks, "pins": n.watchPins, "reservations": n.watchFiles, "rules": n.watchRules,
	} {
		all.Go(func() { n.watching(ctx, what, watch) })
	}
	all.Wait()
	return nil
}

// Reset gives the host back: pods' links, bridge, sysctls and the reservation
// directory go. No pod may be attached any more, and Serve must have ended. The
// firewall is the caller's to delete. It tries everything and joins the errors.
func (n *Network) Reset(ctx context.Context) error {
	filesErr := n.sweepFiles(nil) // while the links still tell whose the files are
	links, linksErr := n.ourLinks()
	var indexes []int
	for _, l := range links {
		indexes = append(indexes, l.index)
	}
	errs := []error{ctx.Err(), filesErr, linksErr, deleteLinks(indexes), n.deleteBridge(), restoreSettings(n.cfg.Sysctls)}
	for id, pod := range n.mem.reset() {
		errs = append(errs, n.releaseFiles(id, hosts(pod.addrs)))
		n.addrs.Release(id)
	}
	errs = append(errs, n.files.Remove())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resetting network %s: %w", n.cfg.Name, err)
	}
	return nil
}
