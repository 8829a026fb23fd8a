package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
)

// scope says what is looked at: a change of one thing is no reason to read all.
type scope struct {
	host, table, pins, files bool
	insides                  map[int]bool // pods by the host's number of their namespace
	all                      bool         // everything
	ranges                   bool         // the last pod of a former range is gone
}

// everything is the scope of a full look.
func everything() scope { return scope{host: true, table: true, pins: true, files: true, all: true} }

// add makes the scope wider.
func (s *scope) add(o scope) {
	s.host, s.table, s.pins = s.host || o.host, s.table || o.table, s.pins || o.pins
	s.files, s.all, s.ranges = s.files || o.files, s.all || o.all, s.ranges || o.ranges
	if len(o.insides) > 0 && s.insides == nil {
		s.insides = map[int]bool{}
	}
	maps.Copy(s.insides, o.insides)
}

// covers reports whether all things of a kind are looked at.
func (s scope) covers(kind string) bool {
	switch kind {
	case kindSysctl, kindBridge, kindGateway, kindLink:
		return s.host
	case kindTable, kindFirewall:
		return s.table
	case kindNetns:
		return s.pins
	case kindReservation:
		return s.files
	}
	return s.all
}

// pass is one look at the world and what came of it.
type pass struct {
	n       *Network
	scope   scope
	subnets []netip.Prefix
	pods    map[string]attached // the living ones, by their ids
	owners  map[string]string   // their ids, by host's ends and addresses
	names   map[string]string   // for people, by host's ends and addresses
	again   time.Time           // when what was held back is due; zero for nothing
	left    map[key]network.Finding
}

// reconcile compares the world with memory and mends what differs. It returns
// when to come again for what it held back, zero for never. Errors are noted for
// Status and logged once.
func (n *Network) reconcile(ctx context.Context, s scope) (again time.Time, err error) {
	if err := n.turn(ctx); err != nil {
		return time.Time{}, err
	}
	defer func() { <-n.turns.applying }()
	p := n.newPass(s)
	if len(p.subnets) == 0 || !n.mem.isRestored() {
		return time.Time{}, nil
	}
	list, seeErr := p.look()
	hostErr := errors.Join(seeErr, p.mendAll(ctx, list))
	rulesErr := p.mendTable(ctx)
	n.mem.report(time.Now(), hostErr, rulesErr)
	for _, f := range n.journal.leave(s.covers, p.left) {
		n.cfg.Log.Warn("the network is not as it should be", "network", n.cfg.Name,
			"kind", f.Kind, "object", f.Object, "finding", f.Text, "remedy", f.Remedy)
	}
	return p.again, errors.Join(hostErr, rulesErr)
}

// turn waits until nobody else applies.
func (n *Network) turn(ctx context.Context) error {
	select {
	case n.turns.applying <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("applying network %s: %w", n.cfg.Name, context.Cause(ctx))
	}
}

func (n *Network) newPass(s scope) *pass {
	p := &pass{
		n: n, scope: s, subnets: n.mem.subnets(ipv6Available()), pods: n.mem.living(),
		owners: map[string]string{}, names: map[string]string{}, left: map[key]network.Finding{},
	}
	for id, pod := range p.pods {
		p.owners[pod.host], p.names[pod.host] = id, pod.alias
		for _, a := range pod.addrs {
			p.owners[a.Addr().String()], p.names[a.Addr().String()] = id, pod.alias
		}
	}
	return p
}

// look returns what is wrong with all that the scope says.
func (p *pass) look() ([]deviation, error) {
	wanted, actual := world{}, world{}
	insides := p.scope.insides
	if p.scope.host || len(insides) > 0 {
		h, err := seeHost(p.n.cfg.Link)
		if err != nil {
			return nil, err
		}
		if p.scope.host {
			if err := p.lookAtHost(h, wanted, actual); err != nil {
				return nil, err
			}
		}
		p.lookInto(h, wanted, actual)
	}
	if p.scope.all {
		for _, pod := range p.pods {
			p.lookInside(pod, wanted, actual)
		}
	}
	if p.scope.pins {
		for _, pod := range p.pods {
			wanted.wantPin(pod)
			actual.seePin(pod)
		}
	}
	if p.scope.files {
		entries, err := p.n.files.Entries()
		if err != nil {
			return nil, err
		}
		wanted.wantFiles(p.pods)
		actual.seeFiles(wanted, entries)
	}
	return compare(wanted, actual), nil
}

// lookAtHost looks at links, addresses and sysctls of the host.
func (p *pass) lookAtHost(h host, wanted, actual world) error {
	want, err := p.n.wantHost(p.subnets, p.pods)
	if err != nil {
		return err
	}
	is, err := h.facts(want)
	if err != nil {
		return err
	}
	for id, pod := range p.pods {
		if l := h.links[pod.host]; l != nil {
			p.n.mem.adopt(id, l.Attrs().MTU)
		}
	}
	h.strays(is, p.n.mem.knowsLink)
	maps.Copy(wanted, want)
	maps.Copy(actual, is)
	return nil
}

// lookInto looks into the pods in whose namespaces something changed.
func (p *pass) lookInto(h host, wanted, actual world) {
	for _, pod := range p.pods {
		if l := h.links[pod.host]; l != nil && !p.scope.all && p.scope.insides[l.Attrs().NetNsID] {
			p.lookInside(pod, wanted, actual)
		}
	}
}

// lookInside looks at one pod's end. A pod that ends meanwhile is no news.
func (p *pass) lookInside(pod attached, wanted, actual world) {
	is, err := seeInside(pod)
	if err != nil {
		p.n.cfg.Log.Debug("looking into a pod", "network", p.n.cfg.Name, "error", err)
		return
	}
	maps.Copy(wanted, wantInside(pod))
	maps.Copy(actual, is)
}

// mendAll does what mends the deviations, and returns what went wrong with the
// host; what goes wrong with a pod is that pod's.
func (p *pass) mendAll(ctx context.Context, list []deviation) error {
	var errs []error
	for _, a := range actions(list) {
		var whose []deviation
		for _, d := range list {
			if a.mends(d) {
				whose = append(whose, d)
			}
		}
		if p.heldBack(whose) {
			continue
		}
		did, err := p.do(ctx, a)
		if errors.Is(err, errNothing) {
			continue
		}
		for _, d := range whose {
			p.note(d, did, err)
		}
		if a.do == doHost {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// heldBack reports whether a repair has to wait, which it notes.
func (p *pass) heldBack(list []deviation) bool {
	now := time.Now()
	held := false
	for _, d := range list {
		k := key{d.kind, d.object}
		due := p.n.journal.due(k, now)
		if !due.After(now) {
			continue
		}
		held = true
		p.comeAgain(due)
		f := d.finding(p.names)
		f.Remedy = p.n.journal.undone(k, now)
		p.left[k] = f
	}
	return held
}

// note remembers a repair. One that was done is logged; what could not be mended
// stays a finding, which is logged when it is new.
func (p *pass) note(d deviation, did string, err error) {
	k := key{d.kind, d.object}
	r := network.Repair{Finding: d.finding(p.names), At: time.Now(), Done: did}
	if err == nil {
		p.n.journal.note(k, r)
		p.n.cfg.Log.Warn("repaired the network", "network", p.n.cfg.Name,
			"kind", r.Kind, "object", r.Object, "finding", r.Text, "done", r.Done)
		return
	}
	r.Done, r.Error = "", err.Error()
	p.n.journal.note(k, r)
	r.Remedy = "mending it was in vain: " + r.Error
	p.left[k] = r.Finding
	p.comeAgain(r.At.Add(time.Second))
}

// comeAgain asks for another look.
func (p *pass) comeAgain(at time.Time) {
	if p.again.IsZero() || at.Before(p.again) {
		p.again = at
	}
}

// errNothing says that there was nothing to do any more.
var errNothing = errors.New("nothing to do")

// do does one action and says what it did.
func (p *pass) do(ctx context.Context, a action) (did string, err error) {
	switch a.do {
	case doHost:
		return "made bridge, addresses and sysctls right", p.n.applyBridge(p.subnets)
	case doReserve:
		return "wrote the reservation", p.reserve(a.object)
	case doDelete:
		return "deleted the link", p.deleteStray(a.object)
	}
	return p.mendPod(ctx, p.owners[a.object])
}

// mendPod makes a living pod's pin, link, addresses and routes right.
func (p *pass) mendPod(ctx context.Context, id string) (did string, err error) {
	pod, end, ok := p.n.mem.mend(id)
	if !ok {
		return "", errNothing // it has ended
	}
	defer end()
	pin := netns.Pins{Net: netns.Pin{Path: pod.netns, Inode: pod.inode}}
	did = "made the pod's link right"
	if pod.inode != 0 && netns.Check(pin) != nil {
		if err := netns.Heal(pin); err != nil {
			return "", fmt.Errorf("finding the namespace, without which the pod counts as dead: %w", err)
		}
		did = "pinned the pod's namespace again"
	}
	l, err := pod.link(p.n.mem.bridge())
	if err != nil {
		return did, err
	}
	select {
	case p.n.turns.links <- struct{}{}:
		defer func() { <-p.n.turns.links }()
	case <-ctx.Done():
		return did, ctx.Err()
	}
	return did, l.ensure()
}

// reserve makes the file of a living pod's address say so.
func (p *pass) reserve(addr string) error {
	id := p.owners[addr]
	pod, end, ok := p.n.mem.mend(id)
	if !ok {
		return errNothing
	}
	defer end()
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return err
	}
	err = p.n.files.Claim(a, id, pod.name)
	if errdefs.IsAlreadyExists(err) {
		p.n.cfg.Log.Warn("the address of a living pod was reserved for another container; if that one lives, both have it",
			"network", p.n.cfg.Name, "pod", pod.alias, "address", addr, "cause", err)
		err = p.n.files.Replace(a, id, pod.name)
	}
	return err
}

// deleteStray deletes a link of our form that belongs to nothing.
func (p *pass) deleteStray(name string) error {
	if p.n.mem.knowsLink(name) {
		return errNothing
	}
	index, err := indexOf(name)
	if isGone(err) {
		return errNothing
	}
	if err != nil {
		return err
	}
	return deleteLinks([]int{index})
}

// mendTable makes the firewall's table right.
func (p *pass) mendTable(ctx context.Context) error {
	if err := p.n.setNetworks(ctx, p.subnets); err != nil || !p.scope.table {
		return err
	}
	found, err := p.n.firewall.Check(ctx)
	if err != nil {
		return err
	}
	var list []deviation
	for _, f := range found {
		if f.Remedy != "" { // not ours to mend
			p.left[key{f.Kind, f.Object}] = f
			continue
		}
		list = append(list, deviation{f.Kind, f.Object, f.Text})
	}
	if len(list) == 0 || p.heldBack(list) {
		return nil
	}
	err = p.n.firewall.Ensure(ctx)
	for _, d := range list {
		did := "built the table anew"
		if d.kind == kindFirewall {
			did = "let pods through"
		}
		p.note(d, did, err)
	}
	return err
}

// Findings returns what is wrong with the network at present and stays so for
// now: what it holds back, cannot mend, or what is others' to mend.
func (n *Network) Findings() []network.Finding { return n.journal.findings() }

// Repairs returns the last hundred repairs, the newest last, and how many there
// were of each kind since the start, less those in vain.
func (n *Network) Repairs() (last []network.Repair, counts map[string]uint64) {
	return n.journal.repairs()
}
