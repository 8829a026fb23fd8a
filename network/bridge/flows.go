package bridge

import (
	"net/netip"
)

// takeFormer returns, and forgets, those of the addresses that former pods had and
// whose flows are still to be forgotten; all of them without a choice.
func (m *memory) takeFormer(choice ...netip.Addr) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []netip.Addr
	for addr := range m.former {
		list = append(list, addr)
	}
	if len(choice) > 0 {
		list = list[:0]
		for _, addr := range choice {
			if m.former[addr] {
				list = append(list, addr)
			}
		}
	}
	for _, addr := range list {
		delete(m.former, addr)
	}
	return list
}

// forgetFlows ends the flows of addresses that former pods had. Many pods share one
// walk through the kernel's table, which is long; a pod that gets an address before
// its turn has come pays for it. That it did not work is no reason for a pod not to
// start: most flows end by themselves.
func (n *Network) forgetFlows(addrs []netip.Addr) {
	if err := n.firewall.Forget(addrs); err != nil {
		n.cfg.Log.Warn("flows of former pods stay until they end by themselves", "network", n.cfg.Name, "addresses", addrs, "error", err)
	}
}
