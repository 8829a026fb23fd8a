package ipam

import (
	"container/list"
	"fmt"
	"math"
	"net/netip"

	"github.com/containerd/errdefs"
)

// The sizes that a range may have. Shorter prefixes are mistakes (a cluster's
// range where a node's is wanted), longer ones have no room for gateway and pod.
const (
	shortest4, longest4 = 8, 30
	shortest6, longest6 = 48, 126
)

// addressRange is one range with its free addresses. The allocator's mutex
// guards it.
type addressRange struct {
	prefix  netip.Prefix
	gateway netip.Addr
	last    netip.Addr // last usable address
	start   netip.Addr // where the walk began
	next    netip.Addr // the walk's next address; the zero Addr when it is over
	highest netip.Addr // the highest one that was held before the walk moved
	freed   *list.List // of netip.Addr, longest free first
	queued  map[netip.Addr]*list.Element
}

// Gateway returns the first host address of the prefix, which is the gateway's
// and never handed out.
func Gateway(prefix netip.Prefix) netip.Addr {
	return prefix.Masked().Addr().Next()
}

// newRange returns the range of a prefix, whose walk begins at its first pod address.
func newRange(prefix netip.Prefix) (*addressRange, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	prefix = prefix.Masked()
	r := &addressRange{
		prefix:  prefix,
		gateway: Gateway(prefix),
		last:    lastUsable(prefix),
		freed:   list.New(),
		queued:  map[netip.Addr]*list.Element{},
	}
	r.startAt(r.first())
	return r, nil
}

func checkPrefix(prefix netip.Prefix) error {
	addr := prefix.Addr()
	if !prefix.IsValid() || addr.Is4In6() {
		return fmt.Errorf("address range %v is not a plain IPv4 or IPv6 prefix: %w", prefix, errdefs.ErrInvalidArgument)
	}
	shortest, longest := shortest4, longest4
	if addr.Is6() {
		shortest, longest = shortest6, longest6
	}
	if prefix.Bits() < shortest || prefix.Bits() > longest {
		return fmt.Errorf("address range %v has a length of %d bits, allowed are %d to %d: %w",
			prefix, prefix.Bits(), shortest, longest, errdefs.ErrInvalidArgument)
	}
	if addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() || prefix.Masked().Addr().IsUnspecified() {
		return fmt.Errorf("address range %v is not of unicast addresses that can be routed: %w", prefix, errdefs.ErrInvalidArgument)
	}
	return nil
}

// lastUsable returns the last address of the prefix, less the broadcast address
// that IPv4 has.
func lastUsable(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for i := range raw {
		host := 8*(i+1) - prefix.Bits() // bits of this byte that are not the network's
		raw[i] |= byte(1<<min(8, max(0, host)) - 1)
	}
	last, _ := netip.AddrFromSlice(raw)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

func (r *addressRange) first() netip.Addr { return r.gateway.Next() }

// usable reports whether the address may be a pod's.
func (r *addressRange) usable(addr netip.Addr) bool {
	return r.prefix.Contains(addr) && r.gateway.Less(addr) && addr.Compare(r.last) <= 0
}

// total is the number of usable addresses, or the largest uint64 if it is larger.
func (r *addressRange) total() uint64 {
	host := r.last.BitLen() - r.prefix.Bits()
	if host > 63 {
		return math.MaxUint64
	}
	unusable := uint64(2) // network and gateway
	if r.last.Is4() {
		unusable++
	}
	return 1<<host - unusable
}

// startAt makes the walk begin at the address.
func (r *addressRange) startAt(addr netip.Addr) {
	r.start, r.next = addr, addr
}

// startAfter makes a walk that has not moved yet begin behind the address, if
// that is the highest so far.
func (r *addressRange) startAfter(addr netip.Addr) {
	if r.next != r.start || !r.usable(addr) || addr.Less(r.highest) {
		return
	}
	r.highest = addr
	r.startAt(r.following(addr))
}

// following is the usable address after the one given, around the end.
func (r *addressRange) following(addr netip.Addr) netip.Addr {
	if addr == r.last {
		return r.first()
	}
	return addr.Next()
}

// take returns an address that is free by the judgement of the caller's
// function too, or false when the range is full.
func (r *addressRange) take(free func(netip.Addr) bool) (netip.Addr, bool) {
	for r.next.IsValid() {
		addr := r.next
		r.next = r.following(addr)
		if r.next == r.start {
			r.next = netip.Addr{}
		}
		if r.queued[addr] == nil && free(addr) {
			return addr, true
		}
	}
	if e := r.freed.Front(); e != nil {
		addr := e.Value.(netip.Addr)
		r.dequeue(addr)
		return addr, true
	}
	return netip.Addr{}, false
}

// enqueue makes the address the one that is taken last.
func (r *addressRange) enqueue(addr netip.Addr) {
	if r.usable(addr) && r.queued[addr] == nil {
		r.queued[addr] = r.freed.PushBack(addr)
	}
}

// dequeue takes the address out of the queue, if it is there.
func (r *addressRange) dequeue(addr netip.Addr) {
	if e := r.queued[addr]; e != nil {
		r.freed.Remove(e)
		delete(r.queued, addr)
	}
}

// inherit queues what was freed in a former range and belongs to this one.
func (r *addressRange) inherit(old *addressRange) {
	for e := old.freed.Front(); e != nil; e = e.Next() {
		r.enqueue(e.Value.(netip.Addr))
	}
}
