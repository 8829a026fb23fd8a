package bridge

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flows counts the flows that an address has a part in.
func flows(t *testing.T, addr string) int {
	t.Helper()
	n := 0
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		list, err := whole(func() ([]*netlink.ConntrackFlow, error) {
			return netlink.ConntrackTableList(netlink.ConntrackTable, family)
		})
		must(t, err)
		for _, f := range list {
			if strings.Contains(f.String(), addr+" ") {
				n++
			}
		}
	}
	return n
}

// talk leaves a flow in the kernel: a pod that sends to nobody.
func talk(t *testing.T, pod network.Pod, to string) {
	t.Helper()
	must(t, netns.Do(pod.Netns, func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	}))
}

// Ranges of one address and of two: with the third pod all are used again at once.
func TestAnAddressThatIsUsedAgainHasNoFlowsOfItsFormerPod(t *testing.T) {
	l := newLab(t, "10.9.0.0/30", "fd09::/126")
	one, _ := l.run("one")
	listen(t, one, ":80")
	must(t, reaches(network.Pod{}, "10.9.0.2:80")) // the host knows the neighbour
	talk(t, one, "10.9.0.1:9")
	talk(t, one, "[fd09::1]:9")
	eventually(t, "there are flows", func() bool { return flows(t, "10.9.0.2") > 0 && flows(t, "fd09::2") > 0 })
	l.detach(one)
	two, _ := l.run("two") // has 10.9.0.2 and fd09::3
	l.detach(two)
	three, atts := l.run("three")
	if got := atts[0].Addresses; !slices.Equal(got, prefixes("10.9.0.2/30", "fd09::2/126")) {
		t.Fatalf("the addresses are %v", got)
	}
	if n := flows(t, "10.9.0.2") + flows(t, "fd09::2"); n > 0 {
		t.Errorf("%d flows are left", n)
	}
	listen(t, three, ":80")
	start := time.Now()
	for _, addr := range []string{"10.9.0.2:80", "[fd09::2]:80"} {
		must(t, reaches(network.Pod{}, addr))
	}
	t.Logf("the host reaches the next pod after %v", time.Since(start))
}

func TestFlowsOfAFreedAddressAreForgotten(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	one, _ := l.run("one")
	two, _ := l.run("two")
	l.serve()
	talk(t, one, "10.9.0.1:9")
	talk(t, two, "10.9.0.1:9")
	eventually(t, "there are flows", func() bool { return flows(t, "10.9.0.2") > 0 && flows(t, "10.9.0.3") > 0 })
	l.detach(one)
	eventually(t, "the flows are forgotten", func() bool { return flows(t, "10.9.0.2") == 0 })
	if flows(t, "10.9.0.3") == 0 {
		t.Error("another pod's flows are gone, too")
	}
}
