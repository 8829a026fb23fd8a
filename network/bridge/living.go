package bridge

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// inodeOf returns the inode of the namespace that is pinned at the path, or 0
// when there is none.
func inodeOf(path string) uint64 {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(path, &st) != nil || unix.Statfs(path, &fs) != nil || fs.Type != unix.NSFS_MAGIC {
		return 0
	}
	return st.Ino
}

// settle notes that all of the pod was made: from now on it is repaired.
func (m *memory) settle(id string, inode uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pod, ok := m.pods[id]; ok {
		pod.live, pod.inode = true, inode
		m.pods[id] = pod
	}
}

// adopt notes the MTU that a pod's link has, unless one is known.
func (m *memory) adopt(id string, mtu int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pod, ok := m.pods[id]; ok && pod.mtu == 0 {
		pod.mtu = mtu
		m.pods[id] = pod
	}
}

// living returns the pods that all was made of.
func (m *memory) living() map[string]attached {
	all := m.all()
	maps.DeleteFunc(all, func(_ string, pod attached) bool { return !pod.live })
	return all
}

// knowsLink reports whether the name is that of a pod's link, planned, attached
// or on its way out.
func (m *memory) knowsLink(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.leaving[name]; ok {
		return true
	}
	for _, pod := range m.pods {
		if pod.host == name {
			return true
		}
	}
	return false
}

// link returns the wanted state of the pod's link.
func (pod attached) link(bridge device) (link, error) {
	mac, err := net.ParseMAC(pod.mac)
	if err != nil {
		return link{}, fmt.Errorf("reading attachment: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if pod.mtu != 0 {
		bridge.mtu = pod.mtu
	}
	return link{
		host: pod.host, alias: pod.alias, bridge: bridge,
		netns: pod.netns, name: pod.name, mac: mac, addrs: pod.addrs,
	}, nil
}

// seize keeps repairs off a pod that is about to be changed, and waits for the
// end of one that runs.
func (m *memory) seize(ctx context.Context, id string) error {
	m.mu.Lock()
	pod, ok := m.pods[id]
	if ok {
		pod.live = false
		m.pods[id] = pod
	}
	m.mu.Unlock()
	busy := pod.busy
	if busy == nil {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of a repair of the pod's network: %w", context.Cause(ctx))
	}
}

// mend returns a pod that may be repaired until end is called; no for one that
// is not living, or being repaired.
func (m *memory) mend(id string) (pod attached, end func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod = m.pods[id]
	if !pod.live || pod.busy != nil {
		return attached{}, nil, false
	}
	pod.busy = make(chan struct{})
	m.pods[id] = pod
	return pod, func() { m.mended(id) }, true
}

// mended ends what mend began.
func (m *memory) mended(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pods[id]
	close(pod.busy)
	pod.busy = nil
	m.pods[id] = pod
}

// lives reports whether the name is that of a living pod's link.
func (m *memory) lives(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range m.pods {
		if pod.host == host {
			return pod.live
		}
	}
	return false
}

// minds reports whether an address is a living pod's, or refused since somebody
// else has it.
func (m *memory) minds(addr netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused[addr] {
		return true
	}
	for _, pod := range m.pods {
		if pod.live && slices.ContainsFunc(pod.addrs, func(p netip.Prefix) bool { return p.Addr() == addr }) {
			return true
		}
	}
	return false
}
