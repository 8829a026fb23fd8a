package look

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// RTNL waits for the kernel's one lock of links, changes nothing, and returns how
// long that took. It does not come back while somebody holds the lock.
func RTNL() (time.Duration, error) {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	nothing := nl.NewIfInfomsg(unix.AF_UNSPEC)
	nothing.Index = loopback
	req.AddData(nothing)
	start := time.Now()
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return 0, fmt.Errorf("waiting for the lock of links: %w", err)
	}
	return time.Since(start), nil
}
