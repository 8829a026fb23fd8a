package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/crib-runtime/crib/ipam/hostlocal"
	"github.com/crib-runtime/crib/network"
)

// memory is what a Network knows besides its addresses.
type memory struct {
	mu      sync.Mutex          // guards everything below
	cidrs   cidrs               // for new pods
	pods    map[string]attached // by pod id: planned or attached
	leaving map[string]leaver   // by name of the host's end: down, not yet gone
	marks
	device   device
	health   health
	restored bool // pods are known, so that what is not theirs may go
}

// marks are what has to be known of addresses that no pod has.
type marks struct {
	refused map[netip.Addr]bool // reserved by others
	former  map[netip.Addr]bool // of pods that are gone, with flows to be forgotten
}

// cidrs are the ranges for new pods.
type cidrs struct {
	served   []netip.Prefix
	unserved []netip.Prefix // given, but the host has no IPv6
}

// attached is what has to be known of a pod to make its link right.
type attached struct {
	addrs       []netip.Prefix
	host, alias string // of the host's end
	netns       string // path of the pin
	name, mac   string // of the pod's end
	seen
	busy chan struct{} // closed when the repair that runs ends; nil without one
}

// seen is what a pod was when it was attached.
type seen struct {
	live  bool   // Attach has made all of it, and nobody has begun to undo it
	inode uint64 // of the namespace; 0 if unknown
	mtu   int    // of the link, when it was first looked at; 0 before
}

// leaver is a host's end that the kernel is to delete.
type leaver struct {
	since time.Time
	netns uint64 // inode of the pod's network namespace; 0 if unknown
}

// device is the bridge as it was seen last; zero if it is not there.
type device struct {
	index int
	mtu   int  // for new links
	ipv6  bool // whether the kernel runs it
}

// newMemory returns an empty one.
func newMemory() memory {
	return memory{
		pods:    map[string]attached{},
		leaving: map[string]leaver{},
		marks:   marks{refused: map[netip.Addr]bool{}, former: map[netip.Addr]bool{}},
	}
}

// setRanges notes the ranges for new pods.
func (m *memory) setRanges(served, unserved []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cidrs = cidrs{masked(served), masked(unserved)}
}

// masked returns the prefixes without their host bits.
func masked(list []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, p := range list {
		out[i] = p.Masked()
	}
	return out
}

// ranges returns the ranges for new pods.
func (m *memory) ranges() (served, unserved []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cidrs.served, m.cidrs.unserved
}

// subnets returns the ranges for new pods, then those of former times that pods
// still live in, less what the host cannot run.
func (m *memory) subnets(ipv6 bool) []netip.Prefix {
	m.mu.Lock()
	defer m.mu.Unlock()
	former := map[netip.Prefix]struct{}{}
	for _, pod := range m.pods {
		for _, a := range pod.addrs {
			if subnet := a.Masked(); !slices.Contains(m.cidrs.served, subnet) {
				former[subnet] = struct{}{}
			}
		}
	}
	all := slices.Concat(m.cidrs.served, slices.SortedFunc(maps.Keys(former), netip.Prefix.Compare))
	return slices.DeleteFunc(all, func(p netip.Prefix) bool { return p.Addr().Is6() && !ipv6 })
}

// addresses returns those of a pod that has been planned or restored.
func (m *memory) addresses(id string) (addrs []netip.Prefix, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod, known := m.pods[id]
	return pod.addrs, known
}

// restore notes that all pods are known.
func (m *memory) restore() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restored = true
}

// isRestored reports whether all pods are known.
func (m *memory) isRestored() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restored
}

// refuse notes an address that somebody else has reserved.
func (m *memory) refuse(addr netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[addr] = true
}

// hasRefused reports whether there are refused addresses.
func (m *memory) hasRefused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.refused) > 0
}

// freed returns, and forgets, the refused addresses that have no reservation any more.
func (m *memory) freed(entries []hostlocal.Entry) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	var free []netip.Addr
	for addr := range m.refused {
		if !slices.ContainsFunc(entries, func(e hostlocal.Entry) bool { return e.Addr == addr }) {
			free = append(free, addr)
			delete(m.refused, addr)
		}
	}
	return free
}

// add notes a pod, and that the name of its link is wanted again. The pod counts
// as living from settle on.
func (m *memory) add(pod network.Pod, att network.Attachment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[pod.ID] = attached{
		addrs: att.Addresses, host: att.HostInterface, alias: alias(pod),
		netns: pod.Netns, name: att.Interface, mac: att.MAC, busy: m.pods[pod.ID].busy,
	}
	delete(m.leaving, att.HostInterface)
}

// remove forgets a pod, and notes its link as leaving if it was there. It reports
// whether the pod was the last one of a former range.
func (m *memory) remove(id, host string, l *leaver) (last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pods[id]
	delete(m.pods, id)
	if l != nil {
		m.leaving[host] = *l
	}
	for _, a := range pod.addrs {
		m.former[a.Addr()] = true
		last = last || !m.inUseLocked(a.Masked())
	}
	return last
}

// inUseLocked reports whether a subnet is a range for new pods or has a pod.
func (m *memory) inUseLocked(subnet netip.Prefix) bool {
	if slices.Contains(m.cidrs.served, subnet) {
		return true
	}
	for _, pod := range m.pods {
		if slices.ContainsFunc(pod.addrs, func(a netip.Prefix) bool { return a.Masked() == subnet }) {
			return true
		}
	}
	return false
}

// all returns a copy of the pods.
func (m *memory) all() map[string]attached {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.pods)
}

// reset forgets everything and returns the pods that there were.
func (m *memory) reset() map[string]attached {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := m.pods
	m.pods, m.leaving, m.device = map[string]attached{}, map[string]leaver{}, device{}
	return pods
}

// bridge returns the bridge as it was seen last.
func (m *memory) bridge() device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.device
}

// setBridge notes the bridge.
func (m *memory) setBridge(d device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.device = d
}

// overdue returns the links that have been leaving since before the time given.
func (m *memory) overdue(before time.Time) map[string]leaver {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := map[string]leaver{}
	for name, l := range m.leaving {
		if l.since.Before(before) {
			late[name] = l
		}
	}
	return late
}

// isLeaving reports whether the link is still to be deleted.
func (m *memory) isLeaving(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.leaving[name]
	return ok
}

// left notes that a link is gone.
func (m *memory) left(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leaving, name)
}
