package counters

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Counters are what went over a link since it was made.
type Counters struct {
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Swapped returns the counters as the other end of the link sees them.
func (c Counters) Swapped() Counters {
	return Counters{
		RxBytes: c.TxBytes, RxPackets: c.TxPackets, RxErrors: c.TxErrors, RxDropped: c.TxDropped,
		TxBytes: c.RxBytes, TxPackets: c.RxPackets, TxErrors: c.RxErrors, TxDropped: c.RxDropped,
	}
}

// Read returns the counters of all links of the calling thread's network namespace
// by their names.
func Read() (map[string]Counters, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	links := map[string]Counters{}
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(message []byte) bool {
		if name, c, ok := decode(message); ok {
			links[name] = c
		}
		return true
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("reading the counters of links: %w", err)
	}
	return links, nil
}

// decode finds the name and the counters in one message of a dump.
func decode(message []byte) (name string, c Counters, ok bool) {
	if len(message) < unix.SizeofIfInfomsg {
		return "", c, false
	}
	for rest := message[unix.SizeofIfInfomsg:]; len(rest) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofRtAttr || size > len(rest) {
			break
		}
		value := rest[unix.SizeofRtAttr:size]
		switch binary.NativeEndian.Uint16(rest[2:]) {
		case unix.IFLA_IFNAME:
			name = unix.ByteSliceToString(value)
		case unix.IFLA_STATS64:
			c, ok = countersOf(value)
		}
		rest = rest[min(len(rest), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return name, c, ok && name != ""
}

// countersOf decodes the first fields of struct rtnl_link_stats64.
func countersOf(b []byte) (Counters, bool) {
	const fields = 8
	if len(b) < 8*fields {
		return Counters{}, false
	}
	at := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	return Counters{
		RxPackets: at(0), TxPackets: at(1), RxBytes: at(2), TxBytes: at(3),
		RxErrors: at(4), TxErrors: at(5), RxDropped: at(6), TxDropped: at(7),
	}, true
}
