package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
)

// Host is the netns path that stands for the lab's own network.
const Host = ""

// Netns returns the path of a pod's network namespace.
func Netns(podID string) string {
	return filepath.Join("/run/netns", network.NetnsName(podID))
}

// in runs a function in a network namespace; [Host] is the one we are in.
func in(ns string, fn func() error) error {
	if ns == Host {
		return fn()
	}
	return netns.Do(ns, fn)
}

// Server answers every connection with its name.
type Server struct {
	l    net.Listener
	done chan struct{}
}

// Listen starts a server in a network namespace, on all addresses of it.
func Listen(ns string, port uint16, name string) (*Server, error) {
	s := &Server{done: make(chan struct{})}
	err := in(ns, func() (err error) {
		s.l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		for {
			conn, err := s.l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, name)
			_ = conn.Close()
		}
	}()
	return s, nil
}

// Close ends the server.
func (s *Server) Close() error {
	err := s.l.Close()
	<-s.done
	return err
}

// askTime bounds a question or a ping. What is refused by being dropped takes all of it.
const askTime = 2 * time.Second

// Ask connects from a network namespace and returns what the server says.
func Ask(ctx context.Context, ns string, to netip.AddrPort) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var conn net.Conn
	err = in(ns, func() (err error) {
		// The dialer would start goroutines for two families, on other threads;
		// for one literal address it does not.
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(askTime)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}

// Ping sends one echo request from a network namespace and returns the time until
// its answer.
func Ping(ns string, to netip.Addr) (took time.Duration, err error) {
	protocol, listen := 1, "0.0.0.0"
	msg := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte("crib")}}
	reply := icmp.Type(ipv4.ICMPTypeEchoReply)
	kind := "ip4:icmp"
	if to.Is6() {
		protocol, listen, kind = 58, "::", "ip6:ipv6-icmp"
		msg.Type, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn *icmp.PacketConn
	if err := in(ns, func() (err error) { conn, err = icmp.ListenPacket(kind, listen); return err }); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request, err := msg.Marshal(nil)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err = conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return 0, err
	}
	err = await(conn, protocol, reply, to)
	return time.Since(start), err
}

// await reads until the reply has come. The socket sees those to other pings, too.
func await(conn *icmp.PacketConn, protocol int, reply icmp.Type, from netip.Addr) error {
	if err := conn.SetReadDeadline(time.Now().Add(askTime)); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, peer, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		got, err := icmp.ParseMessage(protocol, buf[:n])
		if err == nil && got.Type == reply && peer.String() == from.String() {
			return nil
		}
	}
}
