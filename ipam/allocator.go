package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
)

// Allocator hands out addresses. It is safe for concurrent use.
type Allocator struct {
	mu      sync.Mutex // guards all fields
	ranges  []*addressRange
	owners  map[string][]netip.Prefix // what each owner holds, in the order it was given
	held    map[netip.Addr]string     // the same by address
	refused map[netip.Addr]struct{}
}

// Usage is the filling of one range, in addresses. Used and Refused are disjoint.
type Usage struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
	Used    uint64
	Free    uint64 // the largest uint64 where the number is larger
	Refused uint64
}

// New returns an allocator without ranges, whose Take fails.
func New() *Allocator {
	return &Allocator{
		owners:  map[string][]netip.Prefix{},
		held:    map[netip.Addr]string{},
		refused: map[netip.Addr]struct{}{},
	}
}

// SetRanges makes the prefixes, at most one of each family, the ranges that
// Take serves from; their host bits do not count. A range that stays keeps its
// order of allocation; what is held in one that goes stays held until it is
// released. On error (ErrInvalidArgument for a prefix, ErrAlreadyExists when a
// pod holds the new gateway) the ranges are as before.
func (a *Allocator) SetRanges(prefixes []netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ranges []*addressRange
	for _, prefix := range prefixes {
		r, err := a.rangeForLocked(prefix)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(ranges, func(o *addressRange) bool { return o.prefix.Addr().Is4() == r.prefix.Addr().Is4() }) {
			return fmt.Errorf("address range %v is the second of its family, one is allowed: %w", prefix, errdefs.ErrInvalidArgument)
		}
		ranges = append(ranges, r)
	}
	a.ranges = ranges
	return nil
}

// rangeForLocked returns the present range of the prefix or makes a new one.
func (a *Allocator) rangeForLocked(prefix netip.Prefix) (*addressRange, error) {
	for _, r := range a.ranges {
		if prefix.IsValid() && r.prefix == prefix.Masked() {
			return r, nil
		}
	}
	r, err := newRange(prefix)
	if err != nil {
		return nil, err
	}
	if owner, ok := a.held[r.gateway]; ok {
		return nil, fmt.Errorf("gateway %v of address range %v is still held by %q, which has to end first: %w",
			r.gateway, r.prefix, owner, errdefs.ErrAlreadyExists)
	}
	for addr := range a.held {
		r.startAfter(addr)
	}
	for _, old := range a.ranges {
		a.inheritLocked(r, old)
	}
	return r, nil
}

// inheritLocked keeps the order in which addresses were freed across a change
// of range, for those that are still free.
func (a *Allocator) inheritLocked(r, old *addressRange) {
	r.inherit(old)
	for addr := range a.held {
		r.dequeue(addr)
	}
}

// Take returns what the owner holds, or gives it one address of each range, in
// the order of the ranges and with their prefix length; all or nothing. Errors:
// ErrUnavailable without a range, ErrResourceExhausted when one is full.
func (a *Allocator) Take(owner string) ([]netip.Prefix, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.owners[owner]) > 0 {
		return a.holdingsLocked(owner), nil
	}
	if len(a.ranges) == 0 {
		return nil, fmt.Errorf("take address for %q: no address range is known yet (the kubelet gives the node's podCIDR, or set one in the configuration): %w",
			owner, errdefs.ErrUnavailable)
	}
	for _, r := range a.ranges {
		addr, err := a.takeLocked(owner, r)
		if err != nil {
			a.releaseLocked(owner)
			return nil, err
		}
		a.holdLocked(owner, netip.PrefixFrom(addr, r.prefix.Bits()))
	}
	return a.holdingsLocked(owner), nil
}

func (a *Allocator) takeLocked(owner string, r *addressRange) (netip.Addr, error) {
	addr, ok := r.take(a.freeLocked)
	if !ok {
		u := a.usageLocked(r)
		return netip.Addr{}, fmt.Errorf("take address for %q: range %v is full, %d of %d addresses are used and %d refused; end pods or give the node a larger range: %w",
			owner, r.prefix, u.Used, r.total(), u.Refused, errdefs.ErrResourceExhausted)
	}
	return addr, nil
}

func (a *Allocator) freeLocked(addr netip.Addr) bool {
	_, held := a.held[addr]
	_, refused := a.refused[addr]
	return !held && !refused
}

// Claim says that the owner holds the addresses, as records do after a restart;
// they may lie outside of the present ranges. All or nothing: another owner's
// address, or the gateway of a range, is ErrAlreadyExists and names who has it.
func (a *Allocator) Claim(owner string, addrs []netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range addrs {
		if err := a.claimableLocked(owner, addr.Unmap()); err != nil {
			return fmt.Errorf("claim address %v for %q: %w", addr, owner, err)
		}
	}
	for _, addr := range addrs {
		addr = addr.Unmap()
		if _, ok := a.held[addr]; ok {
			continue
		}
		for _, r := range a.ranges {
			r.dequeue(addr)
			r.startAfter(addr)
		}
		a.holdLocked(owner, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return nil
}

func (a *Allocator) claimableLocked(owner string, addr netip.Addr) error {
	if !addr.IsValid() {
		return fmt.Errorf("not an address: %w", errdefs.ErrInvalidArgument)
	}
	if other, ok := a.held[addr]; ok && other != owner {
		return fmt.Errorf("it is held by %q: %w", other, errdefs.ErrAlreadyExists)
	}
	for _, r := range a.ranges {
		if addr == r.gateway {
			return fmt.Errorf("it is the gateway of range %v: %w", r.prefix, errdefs.ErrAlreadyExists)
		}
	}
	return nil
}

// Replace says that an address that was given to the owner is used by somebody
// unknown: it is refused from now on, and the owner gets another one in its
// place. It returns all that the owner then holds. When the range is full
// (ErrResourceExhausted) the owner holds what it held. ErrNotFound: the owner
// does not hold the address.
func (a *Allocator) Replace(owner string, foreign netip.Addr) ([]netip.Prefix, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	foreign = foreign.Unmap()
	if held, ok := a.held[foreign]; !ok || held != owner {
		return nil, fmt.Errorf("replace address %v of %q: it does not hold it: %w", foreign, owner, errdefs.ErrNotFound)
	}
	a.refuseLocked(foreign)
	r := a.familyLocked(foreign)
	if r == nil {
		return nil, fmt.Errorf("replace address %v of %q: no address range of its family: %w", foreign, owner, errdefs.ErrUnavailable)
	}
	addr, err := a.takeLocked(owner, r)
	if err != nil {
		return nil, err
	}
	delete(a.held, foreign)
	a.held[addr] = owner
	i := slices.IndexFunc(a.owners[owner], func(p netip.Prefix) bool { return p.Addr() == foreign })
	a.owners[owner][i] = netip.PrefixFrom(addr, r.prefix.Bits())
	return a.holdingsLocked(owner), nil
}

// Refuse makes the address one that is not handed out, until Allow. Who holds
// it keeps it.
func (a *Allocator) Refuse(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuseLocked(addr.Unmap())
}

func (a *Allocator) refuseLocked(addr netip.Addr) {
	a.refused[addr] = struct{}{}
	for _, r := range a.ranges {
		r.dequeue(addr)
	}
}

// Allow ends what Refuse and Replace began: the address may be handed out again.
func (a *Allocator) Allow(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr = addr.Unmap()
	if _, ok := a.refused[addr]; !ok {
		return
	}
	delete(a.refused, addr)
	a.enqueueLocked(addr)
}

// Release frees all that the owner holds. An unknown owner is fine.
func (a *Allocator) Release(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseLocked(owner)
}

func (a *Allocator) releaseLocked(owner string) {
	for _, p := range a.owners[owner] {
		delete(a.held, p.Addr())
		a.enqueueLocked(p.Addr())
	}
	delete(a.owners, owner)
}

// enqueueLocked puts a free address at the end of its range's queue.
func (a *Allocator) enqueueLocked(addr netip.Addr) {
	if !a.freeLocked(addr) {
		return
	}
	for _, r := range a.ranges {
		r.enqueue(addr)
	}
}

func (a *Allocator) holdLocked(owner string, p netip.Prefix) {
	a.held[p.Addr()] = owner
	a.owners[owner] = append(a.owners[owner], p)
}

// holdingsLocked returns what the owner holds. A claimed address has the length
// of the present range that it lies in, or else that of a single address.
func (a *Allocator) holdingsLocked(owner string) []netip.Prefix {
	held := slices.Clone(a.owners[owner])
	for i, p := range held {
		if r := a.familyLocked(p.Addr()); p.IsSingleIP() && r != nil && r.prefix.Contains(p.Addr()) {
			held[i] = netip.PrefixFrom(p.Addr(), r.prefix.Bits())
		}
	}
	return held
}

// familyLocked returns the range of the address's family, or nil.
func (a *Allocator) familyLocked(addr netip.Addr) *addressRange {
	for _, r := range a.ranges {
		if r.prefix.Addr().Is4() == addr.Is4() {
			return r
		}
	}
	return nil
}

// Usage returns the filling of each range, in the order of the ranges. It costs
// a look at each held address.
func (a *Allocator) Usage() []Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	usage := make([]Usage, 0, len(a.ranges))
	for _, r := range a.ranges {
		usage = append(usage, a.usageLocked(r))
	}
	return usage
}

func (a *Allocator) usageLocked(r *addressRange) Usage {
	u := Usage{Prefix: r.prefix, Gateway: r.gateway}
	for addr := range a.held {
		if r.usable(addr) {
			u.Used++
		}
	}
	for addr := range a.refused {
		if _, held := a.held[addr]; !held && r.usable(addr) {
			u.Refused++
		}
	}
	u.Free = r.total() - u.Used - u.Refused
	return u
}
