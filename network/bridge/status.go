package bridge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crib-runtime/crib/network"
)

// patience is how long bridge or rules may be broken before the network counts
// as not ready: the kubelet then evicts every pod of the node.
const patience = 30 * time.Second

// health is what came of the last looks at the kernel. The memory's mutex guards it.
type health struct {
	worked   bool      // once
	since    time.Time // when the present trouble began; zero without one
	reason   string
	trouble  string
	logged   string         // the trouble that was logged last
	networks []netip.Prefix // that the rules were made for last
}

// rulesAreFor reports whether the rules were made for these subnets.
func (m *memory) rulesAreFor(subnets []netip.Prefix) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Equal(m.health.networks, subnets)
}

// setRules notes the subnets that the rules were made for.
func (m *memory) setRules(subnets []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health.networks = subnets
}

// report notes what came of an apply.
func (m *memory) report(now time.Time, onBridge, onRules error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &m.health
	switch {
	case onBridge != nil:
		h.reason, h.trouble = "BridgeBroken", onBridge.Error()
	case onRules != nil:
		h.reason, h.trouble = "NFTUnavailable", onRules.Error()
	default:
		h.worked, h.since, h.reason, h.trouble = true, time.Time{}, "", ""
		return
	}
	if h.since.IsZero() {
		h.since = now
	}
}

// isNews reports whether the error is not the one that was logged last.
func (m *memory) isNews(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	news := text != "" && text != m.health.logged
	m.health.logged = text
	return news
}

// trouble returns what is wrong at present, if anything, and whether it counts.
func (m *memory) trouble(now time.Time) (h health, counts bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h = m.health
	return h, h.reason != "" && (!h.worked || now.Sub(h.since) > patience)
}

// Status tells whether new pods can be attached. It does not ask the kernel.
func (n *Network) Status() network.Status {
	return n.status(time.Now())
}

// status is Status at a time.
func (n *Network) status(now time.Time) network.Status {
	served, unserved := n.mem.ranges()
	if len(served)+len(unserved) == 0 {
		return network.Status{Reason: "NoPodCIDR", Message: "no pod CIDR yet: the kubelet hands it over when the node has one " +
			"(kube-controller-manager --allocate-node-cidrs), or set network.cidrs"}
	}
	if len(served) == 0 {
		return network.Status{Reason: "IPv6Unavailable", Message: fmt.Sprintf(
			"the pod CIDR %v is IPv6 and this kernel runs no IPv6: boot without ipv6.disable=1, or give the node an IPv4 CIDR", unserved)}
	}
	h, counts := n.mem.trouble(now)
	if counts {
		return network.Status{Reason: h.reason, Message: h.trouble}
	}
	return network.Status{Ready: true, Message: strings.Join(n.notes(h), "; ")}
}

// notes says what people should know of a network that is ready.
func (n *Network) notes(h health) []string {
	var notes []string
	if h.reason != "" {
		notes = append(notes, fmt.Sprintf("being repaired since %s: %s", h.since.Format(time.TimeOnly), h.trouble))
	}
	if _, unserved := n.mem.ranges(); len(unserved) > 0 {
		notes = append(notes, fmt.Sprintf("range %v is not served: this kernel runs no IPv6", unserved))
	}
	if !bridgeFilterLoaded() {
		notes = append(notes, "br_netfilter is not loaded: Services may not answer pods of the same node; "+
			"`modprobe br_netfilter` loads it or says why not")
	}
	for _, f := range n.Findings() {
		notes = append(notes, strings.TrimSuffix(fmt.Sprintf("%s %s: %s; %s", f.Kind, f.Object, f.Text, f.Remedy), "; "))
	}
	for _, r := range n.Ranges() {
		if r.Free == 0 {
			notes = append(notes, fmt.Sprintf("range %v is full: %d addresses are used, %d refused; "+
				"new pods wait until others end", r.CIDR, r.Used, r.Refused))
		}
	}
	return notes
}
