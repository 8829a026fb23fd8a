package bridge

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/if_bridge.h; the netlink library has none of it.
const (
	mdbSetEntry   = 1  // MDBA_SET_ENTRY
	mdbPermanent  = 1  // MDB_PERMANENT
	mdbEntryBytes = 28 // sizeof(struct br_mdb_entry)
)

// joinGroups tells the bridge that neighbour solicitations for the pod's IPv6
// addresses go to its port. The pod reports it, too, but a solicitation that comes
// before the report would be lost, and the next is a second later.
func (l link) joinGroups() error {
	if !has6(l.addrs) {
		return nil
	}
	port, err := indexOf(l.host)
	if err != nil {
		return fmt.Errorf("looking up link %s: %w", l.host, err)
	}
	var b batch
	for _, a := range l.addrs {
		if a.Addr().Is6() {
			b.add("joining the group of solicitations for "+a.Addr().String(), unix.RTM_NEWMDB,
				unix.NLM_F_CREATE|unix.NLM_F_REPLACE, portMessage(l.bridge.index), mdbEntry(port, solicitedNode(a.Addr())))
		}
	}
	return b.run()
}

// solicitedNode returns the multicast address of RFC 4291, section 2.7.1.
func solicitedNode(addr netip.Addr) netip.Addr {
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	own := addr.As16()
	copy(group[13:], own[13:])
	return netip.AddrFrom16(group)
}

// portMessage is struct br_port_msg.
type portMessage int

// Len implements nl.NetlinkRequestData.
func (portMessage) Len() int { return 8 }

// Serialize implements nl.NetlinkRequestData.
func (bridge portMessage) Serialize() []byte {
	b := make([]byte, 8)
	b[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[4:], uint32(bridge))
	return b
}

// mdbEntry is a struct br_mdb_entry for an IPv6 group.
func mdbEntry(port int, group netip.Addr) *nl.RtAttr {
	b := make([]byte, mdbEntryBytes)
	binary.NativeEndian.PutUint32(b, uint32(port))
	b[4] = mdbPermanent
	copy(b[8:], group.AsSlice())
	binary.BigEndian.PutUint16(b[24:], unix.ETH_P_IPV6)
	return nl.NewRtAttr(mdbSetEntry, b)
}
