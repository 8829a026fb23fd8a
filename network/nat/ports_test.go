package nat

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
)

func both() []string { return []string{"10.9.0.2", "fd09::2"} }

func reserve(b *book, pod string, addresses []string, ports ...network.PortMapping) error {
	return b.reserve(pod, Ports{Ports: ports, Addrs: addrs(addresses...)})
}

func TestPortOfAnotherPodIsRefusedByName(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then network.PortMapping
		conflict    bool
	}{
		{"same port", mapping(network.TCP, "", 80, 1), mapping(network.TCP, "", 80, 2), true},
		{"other protocol", mapping(network.TCP, "", 80, 1), mapping(network.UDP, "", 80, 1), false},
		{"other port", mapping(network.TCP, "", 80, 1), mapping(network.TCP, "", 81, 1), false},
		{"any, then one host IP", mapping(network.TCP, "", 80, 1), mapping(network.TCP, "192.0.2.1", 80, 1), true},
		{"one host IP, then any", mapping(network.TCP, "192.0.2.1", 80, 1), mapping(network.TCP, "0.0.0.0", 80, 1), true},
		{"two host IPs", mapping(network.TCP, "192.0.2.1", 80, 1), mapping(network.TCP, "192.0.2.3", 80, 1), false},
		{"families", mapping(network.TCP, "0.0.0.0", 80, 1), mapping(network.TCP, "::", 80, 1), false},
		{"mapped", mapping(network.TCP, "192.0.2.1", 80, 1), mapping(network.TCP, "::ffff:192.0.2.1", 80, 1), true},
		{"IPv6", mapping(network.TCP, "2001:db8::1", 80, 1), mapping(network.TCP, "", 80, 1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook(false)
			must(t, reserve(b, "pod1", both(), c.first))
			err := reserve(b, "pod2", both(), c.then)
			if errdefs.IsAlreadyExists(err) != c.conflict || !c.conflict && err != nil {
				t.Fatal(err)
			}
			if c.conflict && (!strings.Contains(err.Error(), "pod1") || !strings.Contains(err.Error(), ":80/tcp")) {
				t.Error(err)
			}
		})
	}
}

func TestReserveIsIdempotentAndReplaces(t *testing.T) {
	b := newBook(false)
	for range 2 {
		must(t, reserve(b, "pod1", both(), mapping(network.TCP, "", 80, 8080)))
	}
	must(t, reserve(b, "pod1", both(), mapping(network.TCP, "", 81, 8080)))
	must(t, reserve(b, "pod2", both(), mapping(network.TCP, "", 80, 8080)))
	if err := reserve(b, "pod1", both(), mapping(network.TCP, "", 82, 1), mapping(network.TCP, "", 80, 1)); !errdefs.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := reserve(b, "pod3", both(), mapping(network.TCP, "", 81, 1)); !errdefs.IsAlreadyExists(err) {
		t.Error("a refused call took away what the pod had:", err)
	}
	must(t, reserve(b, "pod3", both(), mapping(network.TCP, "", 82, 1)))
	b.release("pod1")
	b.release("pod2")
	b.release("pod3")
	if len(b.owners) != 0 || len(b.pods) != 0 {
		t.Error("left:", b.owners, b.pods)
	}
}

func TestMappingsThatCannotBeAreRefused(t *testing.T) {
	for name, ports := range map[string][]network.PortMapping{
		"protocol":       {mapping("icmp", "", 80, 80)},
		"host port":      {mapping(network.TCP, "", 0, 80)},
		"container port": {mapping(network.TCP, "", 80, 0)},
		"twice":          {mapping(network.TCP, "", 80, 80), mapping(network.TCP, "", 80, 81)},
	} {
		if err := reserve(newBook(false), "pod1", both(), ports...); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := reserve(newBook(false), "pod1", nil, mapping(network.TCP, "", 80, 80)); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestHostIPOfAFamilyThatThePodLacksIsLeftOut(t *testing.T) {
	b := newBook(false)
	must(t, reserve(b, "pod1", []string{"10.9.0.2"}, mapping(network.TCP, "::", 80, 80), mapping(network.TCP, "", 81, 81)))
	if binds := b.pods["pod1"].binds; len(binds) != 1 || binds[0].port != 81 {
		t.Error(binds)
	}
}

func TestIntervalsHoldWhatThePrefixesHold(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var all []netip.Prefix
		for range random.IntN(8) {
			addr := netip.AddrFrom4([4]byte{byte(random.IntN(2)) * 255, byte(random.IntN(2)) * 255, byte(random.IntN(4)) * 64, byte(random.Uint32())})
			all = append(all, netip.PrefixFrom(addr, 8+random.IntN(25)).Masked())
		}
		got := intervals("set", all)
		checkIntervals(t, got)
		for range 50 {
			addr := netip.AddrFrom4([4]byte{byte(random.IntN(2)) * 255, byte(random.IntN(2)) * 255, byte(random.IntN(4)) * 64, byte(random.Uint32())})
			want := false
			for _, p := range all {
				want = want || p.Contains(addr)
			}
			if holds(got, addr) != want {
				t.Fatalf("%v in %v: want %v", addr, all, want)
			}
		}
	}
}

// checkIntervals fails on what the kernel would refuse.
func checkIntervals(t *testing.T, all []element) {
	t.Helper()
	for i, e := range all {
		if e.end != (i%2 == 1) || i > 0 && e.key < all[i-1].key {
			t.Fatalf("not a list of intervals: %v", all)
		}
	}
}

func holds(all []element, addr netip.Addr) bool {
	in := false
	for _, e := range all {
		if e.key <= string(addr.AsSlice()) {
			in = !e.end
		}
	}
	return in
}
