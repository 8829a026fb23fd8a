package bridge

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestABatchGoesOnAfterARefusalAndNamesTheFirst(t *testing.T) {
	nstest.Lab(t)
	gone := nl.NewIfInfomsg(unix.AF_UNSPEC)
	gone.Index = 4711
	var b batch
	b.add("first", unix.RTM_SETLINK, 0, gone)
	b.add("second", unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, addressMessage(1, netip.MustParsePrefix("192.0.2.1/32"))...)
	b.add("third", unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, addressMessage(1, netip.MustParsePrefix("192.0.2.1/32"))...)
	err := b.run()
	if !errors.Is(err, unix.ENODEV) || !strings.HasPrefix(err.Error(), "first: ") {
		t.Errorf("got %v", err)
	}
	if got := ip(t, network.Pod{}, "addr", "del", "192.0.2.1/32", "dev", "lo"); got != "" {
		t.Error(got)
	}
}

func TestARefusalHasTheKernelsWords(t *testing.T) {
	nstest.Lab(t)
	gateway := routeMessage(1, netip.MustParseAddr("192.0.2.9"))
	gateway[0].(*nl.RtMsg).Flags = 0 // not onlink, so the kernel looks for the gateway
	var b batch
	b.add("adding route", unix.RTM_NEWROUTE, unix.NLM_F_CREATE, gateway...)
	err := b.run()
	if err == nil || !strings.Contains(err.Error(), "Nexthop has invalid gateway") {
		t.Errorf("got %v", err)
	}
}

func TestAnEmptyBatchIsNoMessage(t *testing.T) {
	if err := new(batch).run(); err != nil {
		t.Error(err)
	}
}
