package nat

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The lab: the test's own namespace is the node, with the bridge crib0
// (10.9.0.1, fd09::1) and an uplink (192.0.2.1, 2001:db8::1) to another host
// (192.0.2.2, 2001:db8::2), which routes what it does not know to the node.
const (
	node4, node6       = "192.0.2.1", "2001:db8::1"
	outside4, outside6 = "192.0.2.2", "2001:db8::2"
	gateway4, gateway6 = "10.9.0.1", "fd09::1"
)

// host is a namespace with one link to the node. The zero host is the node.
type host struct{ path string }

type lab struct {
	t       *testing.T
	table   *Table
	outside host
	pod1    host // 10.9.0.2, fd09::2
	pod2    host // 10.9.0.3, fd09::3
}

func newLab(t *testing.T) *lab {
	t.Helper()
	nstest.Lab(t)
	l := &lab{t: t}
	sysctl(t, "net/ipv4/ip_forward", "1")
	sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	snooping := false // there is no querier
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
	bridge.Name = "crib0"
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { must(t, netlink.LinkDel(bridge)) })
	setUp(t, bridge.Name, gateway4+"/24", gateway6+"/64")
	sysctl(t, "net/ipv4/conf/crib0/route_localnet", "1")
	l.outside = newHost(t, "out", "", outside4+"/24", outside6+"/64")
	setUp(t, "vout", node4+"/24", node6+"/64")
	l.outside.defaultRoutes(t, node4, node6)
	l.pod1 = newHost(t, "pod1", "crib0", "10.9.0.2/24", "fd09::2/64")
	l.pod2 = newHost(t, "pod2", "crib0", "10.9.0.3/24", "fd09::3/64")
	for _, pod := range []host{l.pod1, l.pod2} {
		pod.defaultRoutes(t, gateway4, gateway6)
	}
	l.table = openAgain(t)
	setNetworks(t, l.table)
	return l
}

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	path := filepath.Join("/proc/sys", name)
	before, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(value), 0o644))
	t.Cleanup(func() { _ = os.WriteFile(path, before, 0o644) }) // of a link: it may be gone
}

// newHost makes a namespace whose eth0 is linked to v<name> on the node.
func newHost(t *testing.T, name, bridge string, addresses ...string) host {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	pins, err := netns.Create(t.Context(), netns.Spec{Net: path})
	must(t, err)
	t.Cleanup(func() { must(t, netns.Remove(pins)) })
	fd, err := os.Open(path)
	must(t, err)
	defer func() { _ = fd.Close() }()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0", PeerNamespace: netlink.NsFd(int(fd.Fd()))}
	veth.Name = "v" + name
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { must(t, netlink.LinkDel(veth)) })
	if bridge != "" {
		master, err := netlink.LinkByName(bridge)
		must(t, err)
		must(t, netlink.LinkSetMaster(veth, master))
		must(t, netlink.LinkSetHairpin(veth, true)) // with br_netfilter a pod's packets to itself stay in the bridge
	}
	must(t, netlink.LinkSetUp(veth))
	h := host{path}
	h.do(t, func() error { setUp(t, "eth0", addresses...); return nil })
	return h
}

// do runs fn in the host's namespace.
func (h host) do(t *testing.T, fn func() error) {
	t.Helper()
	if h.path == "" {
		must(t, fn())
		return
	}
	must(t, netns.Do(h.path, fn))
}

func setUp(t *testing.T, link string, addresses ...string) {
	l, err := netlink.LinkByName(link)
	must(t, err)
	sysctl(t, "net/ipv6/conf/"+link+"/accept_dad", "0") // else the first neighbour solicitations wait
	for _, text := range addresses {
		addr, err := netlink.ParseAddr(text)
		must(t, err)
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		must(t, netlink.AddrAdd(l, addr))
	}
	must(t, netlink.LinkSetUp(l))
}

func (h host) defaultRoutes(t *testing.T, gateways ...string) {
	h.do(t, func() error {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		for _, gw := range gateways {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gw), Flags: int(netlink.FLAG_ONLINK)}
			if err := netlink.RouteAdd(route); err != nil {
				return err
			}
		}
		return nil
	})
}

// serveTCP answers each connection with the name and the address it comes from.
func (h host) serveTCP(t *testing.T, name, addr string) {
	t.Helper()
	var l net.Listener
	h.do(t, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from := netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap()
			_, _ = fmt.Fprintf(c, "%s %s", name, from)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

// serveUDP answers each packet with it, the name and the address it comes from.
func (h host) serveUDP(t *testing.T, name, addr string) {
	t.Helper()
	var c net.PacketConn
	h.do(t, func() (err error) {
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			addr := netip.MustParseAddrPort(from.String()).Addr().Unmap()
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s %s", buf[:n], name, addr), from)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
}

// ask connects and returns the answer, or the error in words.
func (h host) ask(t *testing.T, addr string) string {
	t.Helper()
	answer := ""
	h.do(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		c, err := (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, "tcp", addr)
		if err != nil {
			answer = err.Error()
			return nil
		}
		defer func() { _ = c.Close() }()
		data, err := io.ReadAll(c)
		if err != nil {
			answer = err.Error()
			return nil
		}
		answer = string(data)
		return nil
	})
	return answer
}

// client is a UDP client that keeps its port, as of one long flow.
type client struct {
	net.Conn
	asked int
}

func (h host) dialUDP(t *testing.T, addr string) *client {
	t.Helper()
	var c net.Conn
	h.do(t, func() (err error) {
		c, err = net.Dial("udp", addr)
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return &client{Conn: c}
}

// ask sends until an answer comes, at most ten times, and passes over answers to
// earlier questions.
func (c *client) ask(t *testing.T) string {
	t.Helper()
	c.asked++
	question := fmt.Sprint(c.asked)
	buf := make([]byte, 100)
	var err error
	for range 10 {
		_, _ = c.Write([]byte(question)) // may report that the last one was refused
		must(t, c.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
		for err = nil; err == nil; {
			var n int
			n, err = c.Read(buf)
			if answer, ok := strings.CutPrefix(string(buf[:n]), question+" "); ok {
				return answer
			}
		}
	}
	return err.Error()
}

func wantAnswer(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func wantRefused(t *testing.T, what, got string) {
	t.Helper()
	if !strings.Contains(got, "refused") {
		t.Errorf("%s: %q, want it refused", what, got)
	}
}
