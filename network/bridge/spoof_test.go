package bridge

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// sender makes the frames that a pod sends to another.
type sender struct {
	own, to   net.HardwareAddr
	addr, dst netip.Addr // IPv4
	six, dst6 netip.Addr
}

func ether(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := append(append([]byte{}, to...), from...)
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

// packet4 is a UDP packet with a header that the kernel takes.
func packet4(from, to netip.Addr, text string) []byte {
	udp := append([]byte{0, 9, 0, 9, 0, byte(8 + len(text)), 0, 0}, text...)
	head := []byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	head = append(append(head, from.AsSlice()...), to.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(head); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(head[i:]))
	}
	binary.BigEndian.PutUint16(head[10:], ^uint16(sum+sum>>16))
	return append(head, udp...)
}

func packet6(from, to netip.Addr, next byte, payload []byte) []byte {
	head := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), next, 255}
	return append(append(append(head, from.AsSlice()...), to.AsSlice()...), payload...)
}

// icmp6 is a message with a target, as those about neighbours have it.
func icmp6(kind byte, target netip.Addr, text string) []byte {
	return append(append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...), text...)
}

func arp(mac net.HardwareAddr, sender, target netip.Addr, text string) []byte {
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, 2}, mac...)
	p = append(append(p, sender.AsSlice()...), 0, 0, 0, 0, 0, 0)
	return append(append(p, target.AsSlice()...), text...)
}

// honest are frames that pass, by what they are.
func (s sender) honest() map[string][]byte {
	none, none6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	link := netip.MustParseAddr("fe80::858:aff:fe09:2")
	return map[string][]byte{
		"own IPv4":             ether(s.to, s.own, unix.ETH_P_IP, packet4(s.addr, s.dst, "own IPv4")),
		"own ARP":              ether(s.to, s.own, unix.ETH_P_ARP, arp(s.own, s.addr, s.dst, "own ARP")),
		"ARP probe":            ether(s.to, s.own, unix.ETH_P_ARP, arp(s.own, none, s.dst, "ARP probe")),
		"own IPv6":             ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 59, []byte("own IPv6"))),
		"own link-local":       ether(s.to, s.own, unix.ETH_P_IPV6, packet6(link, s.dst6, 59, []byte("own link-local"))),
		"own advertisement":    ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 58, icmp6(136, s.six, "own advertisement"))),
		"question for others":  ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 58, icmp6(135, s.dst6, "question for others"))),
		"duplicate detection6": ether(s.to, s.own, unix.ETH_P_IPV6, packet6(none6, s.dst6, 58, icmp6(135, s.six, "duplicate detection6"))),
	}
}

// forged are frames that do not pass.
func (s sender) forged() map[string][]byte {
	other := net.HardwareAddr{0x0a, 0x58, 0x0a, 0x09, 0, 99}
	gw, gw6, third, third6 := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1"), netip.MustParseAddr("10.9.0.77"), netip.MustParseAddr("fd09::77")
	tag := func(text string, frame []byte) []byte { // 802.1Q
		return append(append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 7), append(frame[12:], text...)...)
	}
	return map[string][]byte{
		"IPv4 of the gateway":       ether(s.to, s.own, unix.ETH_P_IP, packet4(gw, s.dst, "IPv4 of the gateway")),
		"IPv4 of another":           ether(s.to, s.own, unix.ETH_P_IP, packet4(third, s.dst, "IPv4 of another")),
		"MAC of another":            ether(s.to, other, unix.ETH_P_IP, packet4(s.addr, s.dst, "MAC of another")),
		"ARP for the gateway":       ether(s.to, s.own, unix.ETH_P_ARP, arp(s.own, gw, s.dst, "ARP for the gateway")),
		"ARP with another MAC":      ether(s.to, s.own, unix.ETH_P_ARP, arp(other, s.addr, s.dst, "ARP with another MAC")),
		"ARP from another MAC":      ether(s.to, other, unix.ETH_P_ARP, arp(s.own, s.addr, s.dst, "ARP from another MAC")),
		"IPv6 of the gateway":       ether(s.to, s.own, unix.ETH_P_IPV6, packet6(gw6, s.dst6, 59, []byte("IPv6 of the gateway"))),
		"IPv6 of another":           ether(s.to, s.own, unix.ETH_P_IPV6, packet6(third6, s.dst6, 59, []byte("IPv6 of another"))),
		"link-local of another":     ether(s.to, s.own, unix.ETH_P_IPV6, packet6(netip.MustParseAddr("fe80::1"), s.dst6, 59, []byte("link-local of another"))),
		"advertisement for gateway": ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 58, icmp6(136, gw6, "advertisement for gateway"))),
		"router advertisement":      ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 58, icmp6(134, s.six, "router advertisement"))),
		"redirect":                  ether(s.to, s.own, unix.ETH_P_IPV6, packet6(s.six, s.dst6, 58, icmp6(137, s.six, "redirect"))),
		"other protocol":            ether(s.to, s.own, 0x88b5, []byte("other protocol")),
		"with a VLAN's tag":         tag("with a VLAN's tag", ether(s.to, s.own, unix.ETH_P_IP, packet4(gw, s.dst, ""))),
	}
}

// tap opens a packet socket on eth0 of a pod, or crib0 of the host.
func tap(t *testing.T, pod network.Pod) int {
	t.Helper()
	fd := -1
	open := func() (err error) {
		name := "eth0"
		if pod.Netns == "" {
			name = "crib0"
		}
		index, err := indexOf(name)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}
	if pod.Netns == "" {
		must(t, open())
	} else {
		inside(t, pod, open)
	}
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	return fd
}

// until reads frames up to one that holds the text, and returns all as text.
func until(t *testing.T, fd int, last string) string {
	t.Helper()
	var seen strings.Builder
	buf := make([]byte, 2000)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		must(t, err)
		seen.Write(buf[:n])
		if strings.Contains(string(buf[:n]), last) {
			return seen.String()
		}
	}
}

func TestAPodCannotSendFromWhatIsNotItsOwn(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, atts := l.run("one")
	two, others := l.run("two")
	for name, victim := range map[string]struct {
		pod  network.Pod
		mac  string
		a, b string
	}{
		"to another pod": {two, others[0].MAC, "10.9.0.3", "fd09::3"},
		"to the host":    {network.Pod{}, podMAC(prefixes("10.9.0.1/24")).String(), "10.9.0.1", "fd09::1"},
	} {
		t.Run(name, func(t *testing.T) {
			own, err := net.ParseMAC(atts[0].MAC)
			must(t, err)
			to, err := net.ParseMAC(victim.mac)
			must(t, err)
			s := sender{
				own: own, to: to, addr: netip.MustParseAddr("10.9.0.2"), dst: netip.MustParseAddr(victim.a),
				six: netip.MustParseAddr("fd09::2"), dst6: netip.MustParseAddr(victim.b),
			}
			out, in := tap(t, pod), tap(t, victim.pod)
			end := ether(s.to, s.own, unix.ETH_P_IP, packet4(s.addr, s.dst, "that was all"))
			for _, frames := range []map[string][]byte{s.forged(), s.honest()} {
				for _, f := range frames {
					must(t, send(out, f))
				}
			}
			must(t, send(out, end))
			seen := until(t, in, "that was all")
			for name := range s.forged() {
				if strings.Contains(seen, name) {
					t.Errorf("%s came through", name)
				}
			}
			for name := range s.honest() {
				if !strings.Contains(seen, name) {
					t.Errorf("%s did not come through", name)
				}
			}
		})
	}
}

// send writes a frame to a bound packet socket.
func send(fd int, frame []byte) error {
	_, err := unix.Write(fd, frame)
	return err
}

func TestAPodWhoseLinkWasMadeAgainCanSend(t *testing.T) {
	r := newRepaired(t)
	ip(t, network.Pod{}, "link", "del", r.att.HostInterface)
	eventually(t, "the link is made again", func() bool { return r.kinds()[kindLink] > 0 })
	must(t, r.works())
}
