package main

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crib-runtime/crib/cmd/crib/admin"
)

// mapRow is how many addresses a line of the picture has.
const mapRow = 64

// space is a range, and who has which address of it.
type space struct {
	Network string       `json:"network"`
	CIDR    netip.Prefix `json:"cidr"`
	Gateway netip.Addr   `json:"gateway"`
	Used    uint64       `json:"used"`
	Free    uint64       `json:"free"`
	Pods    []holding    `json:"pods"` // in the order of the addresses
}

// holding is an address of a pod.
type holding struct {
	Address netip.Addr `json:"address"`
	Pod     string     `json:"pod"`
	State   string     `json:"state"`
}

func newNetMap(f *flags) *cobra.Command {
	return question[[]space]{
		use:   "map",
		short: "Draw the address space: which addresses are the gateways', the pods' and free",
		ask:   askSpaces,
		write: writeMap,
		watch: true,
	}.command(f)
}

func askSpaces(ctx context.Context, client admin.Client, _ []string) ([]space, error) {
	networks, err := client.Networks(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := client.Pods(ctx)
	spaces := []space{}
	for _, n := range networks {
		for _, r := range n.Ranges {
			spaces = append(spaces, space{n.Name, r.CIDR, r.Gateway, r.Used, r.Free, holdings(pods, r.CIDR)})
		}
	}
	return spaces, err
}

// holdings returns the pods' addresses in a range.
func holdings(pods []admin.Pod, cidr netip.Prefix) []holding {
	found := []holding{}
	for _, pod := range pods {
		var addrs []netip.Prefix
		for _, a := range pod.Attachments {
			addrs = append(addrs, a.Addresses...)
		}
		for _, p := range addrs {
			if cidr.Contains(p.Addr()) {
				found = append(found, holding{p.Addr(), pod.Namespace + "/" + pod.Name, pod.State})
			}
		}
	}
	slices.SortFunc(found, func(a, b holding) int { return a.Address.Compare(b.Address) })
	return found
}

func writeMap(w io.Writer, spaces []space) error {
	p := &page{w: w}
	for i, s := range spaces {
		if i > 0 {
			p.line("")
		}
		p.line("%s of network %s: %d used, %d free", s.CIDR, s.Network, s.Used, s.Free)
		s.draw(p)
	}
	p.line("")
	p.line("G gateway   # pod   x pod that is not ready   . free   - nobody's")
	return p.err
}

// draw draws the lines in which somebody has an address, and counts the others.
func (s space) draw(p *page) {
	marks := map[netip.Addr]byte{s.Gateway: 'G'}
	lines := []netip.Addr{s.lineOf(s.Gateway)}
	for _, h := range s.Pods {
		marks[h.Address] = '#'
		if h.State != "Ready" {
			marks[h.Address] = 'x'
		}
		if line := s.lineOf(h.Address); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, netip.Addr.Compare)
	next := s.CIDR.Masked().Addr()
	for _, line := range lines {
		if line != next {
			p.line("  ...")
		}
		next = s.drawLine(p, line, marks)
	}
	if s.CIDR.Contains(next) {
		p.line("  ... free up to the end of %s", s.CIDR)
	}
}

// drawLine draws one line and returns the address after it.
func (s space) drawLine(p *page, line netip.Addr, marks map[netip.Addr]byte) netip.Addr {
	var cells strings.Builder
	at := line
	for range mapRow {
		if !s.CIDR.Contains(at) {
			break
		}
		mark, ok := marks[at]
		switch {
		case ok:
			cells.WriteByte(mark)
		case at == s.CIDR.Masked().Addr(), at.Is4() && !s.CIDR.Contains(at.Next()):
			cells.WriteByte('-')
		default:
			cells.WriteByte('.')
		}
		at = at.Next()
	}
	p.line("  %s\t%s", line, cells.String())
	return at
}

// lineOf returns the first address of the line that an address is in.
func (s space) lineOf(addr netip.Addr) netip.Addr {
	bits := addr.BitLen() - 6 // 64 addresses a line
	line := netip.PrefixFrom(addr, max(bits, s.CIDR.Bits())).Masked().Addr()
	if first := s.CIDR.Masked().Addr(); line.Less(first) {
		return first
	}
	return line
}
