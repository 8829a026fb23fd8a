package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// backlog is how many bytes of messages may wait.
	backlog = 4 << 20
	// here is the number of the host's own namespace.
	here = -1
)

// watchLinks listens for changes of links, addresses, routes and the sysctls of
// forwarding, on the host and in the pods' namespaces.
func (n *Network) watchLinks(ctx context.Context) error {
	file, err := openEvents()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer func() {
		if stop() {
			_ = file.Close()
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		messages, nsid, err := receive(file, buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			n.alarm.ring(everything())
		case err != nil:
			return fmt.Errorf("listening for changes of links: %w", err)
		}
		for _, m := range messages {
			if s := n.concerns(m, nsid); s.host || len(s.insides) > 0 {
				n.alarm.ring(s)
			}
		}
	}
}

// openEvents opens a socket of the groups that matter, of all namespaces that the
// kernel has given a number here, as it does to those of the pods' ends.
func openEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "netlink events")
	errs := []error{unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})}
	for _, group := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	} {
		errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group))
	}
	errs = append(errs, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1))
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, backlog) // a lost message is made up for
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for changes of links: %w", err), file.Close())
	}
	return file, nil
}

// receive waits for messages, and tells from which namespace they are.
func receive(file *os.File, buf []byte) (messages []syscall.NetlinkMessage, nsid int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, here, err
	}
	oob := make([]byte, 64)
	var n, oobn int
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), buf, oob, 0)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if err = errors.Join(err, recvErr); err != nil {
		return nil, here, err
	}
	messages, err = syscall.ParseNetlinkMessage(buf[:n])
	return messages, namespaceOf(oob[:oobn]), err
}

// namespaceOf returns the number of the namespace, or here.
func namespaceOf(oob []byte) int {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return here
	}
	for _, c := range list {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(c.Data)))
		}
	}
	return here
}

// concerns says what a message is a reason to look at. The start and the end of
// pods, of which there are many, are none.
func (n *Network) concerns(m syscall.NetlinkMessage, nsid int) scope {
	kind := m.Header.Type
	if nsid != here {
		if kind == unix.RTM_DELADDR || kind == unix.RTM_DELROUTE {
			return scope{insides: map[int]bool{nsid: true}}
		}
		return scope{}
	}
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return n.concernsLink(m)
	case unix.RTM_DELADDR:
		if len(m.Data) >= unix.SizeofIfAddrmsg {
			return scope{host: int(nl.DeserializeIfAddrmsg(m.Data).Index) == n.mem.bridge().index}
		}
	case unix.RTM_NEWNETCONF:
		return scope{host: n.concernsConf(m.Data)}
	}
	return scope{}
}

// concernsLink is concerns for a link of the host.
func (n *Network) concernsLink(m syscall.NetlinkMessage) scope {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return scope{}
	}
	l, err := netlink.LinkDeserialize(nil, m.Data)
	if err != nil {
		return scope{}
	}
	a := l.Attrs()
	if a.Name == n.cfg.Link {
		return scope{host: true}
	}
	if !isOurs(a.Name) || !n.mem.lives(a.Name) {
		return scope{}
	}
	if m.Header.Type == unix.RTM_DELLINK {
		return scope{host: true}
	}
	up, carrier := a.RawFlags&unix.IFF_UP != 0, a.RawFlags&unix.IFF_LOWER_UP != 0
	s := scope{host: !up || a.MasterIndex != n.mem.bridge().index || wrongPort(m.Data)}
	if up && !carrier && a.NetNsID >= 0 { // the other end is down
		s.insides = map[int]bool{a.NetNsID: true}
	}
	return s
}

// wrongPort reports whether the message says that a port does not send back to
// where a packet came from.
func wrongPort(data []byte) bool {
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_PROTINFO|unix.NLA_F_NESTED {
			return !parsePort(a.Value).hairpin
		}
	}
	return false
}

// concernsConf reports whether the sysctl that changed is of all links, of new
// ones, or of the bridge.
func (n *Network) concernsConf(data []byte) bool {
	const header, ifindex = 4, 1 // struct netconfmsg, aligned; NETCONFA_IFINDEX
	if len(data) < header {
		return false
	}
	attrs, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == ifindex && len(a.Value) >= 4 {
			index := int(int32(binary.NativeEndian.Uint32(a.Value)))
			return index < 0 || index == n.mem.bridge().index
		}
	}
	return false
}
