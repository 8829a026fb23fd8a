package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
)

// model is the allocator said in the plainest way: small ranges, as the list of
// their free addresses in the order in which they must come.
type model struct {
	prefix  netip.Prefix
	usable  []netip.Addr
	free    []netip.Addr
	held    map[string]netip.Addr
	refused map[netip.Addr]bool
}

func newModel(prefix netip.Prefix) *model {
	m := &model{prefix: prefix, held: map[string]netip.Addr{}, refused: map[netip.Addr]bool{}}
	addr := prefix.Addr().Next().Next()
	for ; prefix.Contains(addr); addr = addr.Next() {
		m.free = append(m.free, addr)
	}
	if addr.Is4() {
		m.free = m.free[:len(m.free)-1]
	}
	m.usable = slices.Clone(m.free)
	return m
}

func (m *model) take(owner string) (netip.Addr, bool) {
	if addr, ok := m.held[owner]; ok {
		return addr, true
	}
	if len(m.free) == 0 {
		return netip.Addr{}, false
	}
	addr := m.free[0]
	m.free = m.free[1:]
	m.held[owner] = addr
	return addr, true
}

func (m *model) release(owner string) {
	if addr, ok := m.held[owner]; ok && !m.refused[addr] {
		m.free = append(m.free, addr)
	}
	delete(m.held, owner)
}

func (m *model) holder(addr netip.Addr) (string, bool) {
	for owner, held := range m.held {
		if held == addr {
			return owner, true
		}
	}
	return "", false
}

func (m *model) refuse(addr netip.Addr) {
	m.refused[addr] = true
	m.free = slices.DeleteFunc(m.free, func(a netip.Addr) bool { return a == addr })
}

// allow puts the address at the end, also one that was never handed out.
func (m *model) allow(addr netip.Addr) {
	if !m.refused[addr] {
		return
	}
	delete(m.refused, addr)
	if _, held := m.holder(addr); !held {
		m.free = append(m.free, addr)
	}
}

// pair is the allocator and the model of one range, driven together.
type pair struct {
	t *testing.T
	a *Allocator
	m *model
}

func newPair(t *testing.T, prefix netip.Prefix) *pair {
	p := &pair{t: t, a: New(), m: newModel(prefix)}
	if err := p.a.SetRanges([]netip.Prefix{prefix}); err != nil {
		t.Fatal(err)
	}
	return p
}

// step does the operation that two bytes say on both.
func (p *pair) step(op, arg byte) {
	owner := fmt.Sprint("pod", arg%16)
	addr := p.m.usable[int(arg)%len(p.m.usable)]
	switch op % 8 {
	case 0, 1, 2:
		p.take(owner)
	case 3, 4:
		p.a.Release(owner)
		p.m.release(owner)
	case 5:
		p.replace(owner)
	case 6:
		p.a.Refuse(addr)
		p.m.refuse(addr)
	case 7:
		p.a.Allow(addr)
		p.m.allow(addr)
	}
}

func (p *pair) take(owner string) {
	want, ok := p.m.take(owner)
	got, err := p.a.Take(owner)
	if !ok {
		if !errdefs.IsResourceExhausted(err) {
			p.t.Fatalf("Take(%s) of a full range = %v, %v", owner, got, err)
		}
		return
	}
	if err != nil || !slices.Equal(got, []netip.Prefix{netip.PrefixFrom(want, p.m.prefix.Bits())}) {
		p.t.Fatalf("Take(%s) = %v, %v, want %v", owner, got, err, want)
	}
}

func (p *pair) replace(owner string) {
	old, ok := p.m.held[owner]
	if !ok {
		return
	}
	p.m.refuse(old)
	delete(p.m.held, owner)
	want, ok := p.m.take(owner)
	if !ok {
		p.m.held[owner] = old
	}
	got, err := p.a.Replace(owner, old)
	if ok != (err == nil) || ok && got[0].Addr() != want {
		p.t.Fatalf("Replace(%s, %v) = %v, %v, want %v", owner, old, got, err, want)
	}
}

// check compares what both hold and how much is free.
func (p *pair) check() {
	if len(p.a.held) != len(p.m.held) {
		p.t.Fatalf("held: %v, want %v", p.a.held, p.m.held)
	}
	gateway, network := Gateway(p.m.prefix), p.m.prefix.Addr()
	for addr, owner := range p.a.held {
		if p.m.held[owner] != addr || addr == gateway || addr == network {
			p.t.Fatalf("%s holds %v, want %v", owner, addr, p.m.held[owner])
		}
	}
	if u := p.a.Usage()[0]; u.Free != uint64(len(p.m.free)) {
		p.t.Fatalf("%+v, want %d free", u, len(p.m.free))
	}
}

func (p *pair) run(ops []byte) {
	for i := 0; i+1 < len(ops); i += 2 {
		p.step(ops[i], ops[i+1])
		p.check()
	}
}

func modelRanges() []string {
	return []string{"10.0.0.0/30", "10.0.0.0/29", "10.0.0.0/28", "fd00::/126", "fd00::/125"}
}

func TestSequencesOfOperationsAgreeWithTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range modelRanges() {
		for range 300 {
			ops := make([]byte, 400)
			for i := range ops {
				ops[i] = byte(random.Uint32())
			}
			newPair(t, netip.MustParsePrefix(text)).run(ops)
		}
	}
}

func FuzzSequencesOfOperationsAgreeWithTheModel(f *testing.F) {
	f.Add(byte(1), []byte{0, 0, 0, 1, 3, 0, 0, 2, 5, 1, 7, 2})
	f.Fuzz(func(t *testing.T, which byte, ops []byte) {
		prefix := netip.MustParsePrefix(modelRanges()[int(which)%len(modelRanges())])
		newPair(t, prefix).run(ops[:min(len(ops), 2000)])
	})
}
