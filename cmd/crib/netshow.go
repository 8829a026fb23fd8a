package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/look"
)

// page collects lines and the first error of writing them.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func writePodNetwork(w io.Writer, n admin.PodNetwork) error {
	p := &page{w: w}
	p.line("pod\t%s/%s", n.Namespace, n.Name)
	p.line("id\t%s", n.ID)
	p.line("state\t%s, for %s", n.State, age(n.CreatedAt))
	p.line("namespace\t%s", orDash(n.Netns))
	for _, port := range n.Ports {
		p.line("port\t%s", portText(port))
	}
	if n.Owed != "" {
		p.line("owed\t%s", oneLine(n.Owed))
	}
	for _, link := range n.Links {
		p.link(link)
	}
	if len(n.Timeline) > 0 {
		p.line("start\t")
	}
	for _, s := range n.Timeline {
		p.line("  %s\t%.2f ms\t%s", s.Name, s.Millis, bar(s, n.Timeline))
	}
	return p.err
}

// link shows a link by its record, and then both ends as the kernel has them.
func (p *page) link(link admin.PodLink) {
	p.line("")
	p.line("%s\tnetwork %s (%s), %s", link.Interface, link.Network, link.Driver, link.MAC)
	for _, a := range link.Addresses {
		p.line("  address\t%s", a)
	}
	for _, gw := range link.Gateways {
		p.line("  gateway\t%s", gw)
	}
	if link.Host != nil {
		p.end("host", *link.Host)
	}
	if link.Inside != nil {
		p.end("pod", link.Inside.Link)
		for _, r := range link.Inside.Routes {
			p.line("  route\t%s", r)
		}
		for _, n := range link.Inside.Neighbours {
			p.line("  neighbour\t%s", n)
		}
	}
	for _, text := range link.Errors {
		p.line("  missing\t%s", text)
	}
	p.line("")
}

func (p *page) end(where string, l look.Link) {
	state := "down"
	if l.Up {
		state = "up"
	}
	if l.Master != "" {
		state += ", port of " + l.Master
	}
	p.line("  %s\t%s, %s, MTU %d, %s", where, l.Name, l.MAC, l.MTU, state)
	p.line("    received\t%s", counted(l.Received))
	p.line("    sent\t%s", counted(l.Sent))
}

func counted(c look.Counters) string {
	return fmt.Sprintf("%d packets, %d bytes, %d dropped, %d errors", c.Packets, c.Bytes, c.Dropped, c.Errors)
}

func portText(p network.PortMapping) string {
	host := "*"
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
	}
	return fmt.Sprintf("%s %s:%d to %d", p.Protocol, host, p.HostPort, p.ContainerPort)
}

// barWidth is how many characters the whole of a start takes.
const barWidth = 40

// bar draws when a stage began and how long it took, as a part of the whole.
func bar(s admin.Stage, all []admin.Stage) string {
	whole := all[len(all)-1].Millis
	if whole <= 0 {
		return ""
	}
	begin := min(int(s.At/whole*barWidth), barWidth-1)
	length := max(min(int(s.Millis/whole*barWidth+0.5), barWidth-begin), 1)
	return strings.Repeat(" ", begin) + strings.Repeat("=", length)
}
