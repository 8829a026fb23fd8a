package counters

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

func TestTheOtherEndsCountersAreOursSwapped(t *testing.T) {
	nstest.Lab(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here"}, PeerName: "there"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"here", "there"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	address, err := netlink.ParseAddr("10.9.9.1/24")
	if err == nil {
		err = netlink.AddrAdd(veth, address)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := read(t)["here"]
	// The kernel drops what is sent before it has noticed that there is a carrier.
	links := read(t)
	for over := time.Now().Add(10 * time.Second); links["here"].TxPackets < before.TxPackets+3 && time.Now().Before(over); links = read(t) {
		broadcast(t, "10.9.9.255:9", 3)
	}
	here, there := links["here"], links["there"]
	if here.TxPackets < before.TxPackets+3 || here.TxBytes < before.TxBytes+3*64 {
		t.Errorf("three packets were sent: %+v, then %+v", before, here)
	}
	if got := there.Swapped(); got.TxPackets < before.TxPackets+3 || got.Swapped() != there {
		t.Errorf("seen from there: %+v", there)
	}
	if _, ok := links["lo"]; !ok {
		t.Errorf("some are missing: %v", links)
	}
}

func read(t *testing.T) map[string]Counters {
	t.Helper()
	links, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return links
}

// broadcast sends packets, for which nobody has to answer first.
func broadcast(t *testing.T, to string, count int) {
	t.Helper()
	conn, err := net.Dial("udp4", to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range count {
		if _, err := conn.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMalformedMessagesAreLeftOut(t *testing.T) {
	for _, message := range [][]byte{nil, make([]byte, 16), make([]byte, 30), append(make([]byte, 16), 255, 255, 3, 0)} {
		if _, _, ok := decode(message); ok {
			t.Errorf("%v is taken", message)
		}
	}
}
