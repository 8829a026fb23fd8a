package nat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
)

// filled returns a table with networks and one pod of every kind of port.
func filled(t testing.TB) *Table {
	t.Helper()
	table := open(t)
	setNetworks(t, table)
	publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
	return table
}

// damages are what others may do to the table. Each is one call of nft.
func damages() map[string]string {
	return map[string]string{
		"nothing":              "list tables",
		"flush ruleset":        "flush ruleset",
		"delete table":         "delete table inet crib",
		"flush table":          "flush table inet crib",
		"foreign rule":         "insert rule inet crib postrouting accept",
		"foreign element":      "add element inet crib ports4 { tcp . 9 : 10.9.0.9 . 9 }",
		"element gone":         "delete element inet crib ports4 { tcp . 80 }",
		"set emptied":          "flush set inet crib pods4",
		"target gone":          "flush set inet crib targets6",
		"chain flushed":        "flush chain inet crib output",
		"chain policy":         "chain inet crib guard { policy drop; }",
		"table dormant":        "add table inet crib { flags dormant; }",
		"foreign chain":        "add chain inet crib mine",
		"foreign table beside": "add table inet crib_beside",
	}
}

func TestEnsureRepairsWhatOthersDid(t *testing.T) {
	table := filled(t)
	for name, command := range damages() {
		t.Run(name, func(t *testing.T) {
			nft(t, strings.Fields(command)...)
			must(t, table.Ensure(t.Context()))
			wantGolden(t, "ports")
			must(t, table.Healthy())
		})
	}
	nft(t, "flush", "ruleset")
}

func TestEnsureLeavesAGoodTableAlone(t *testing.T) {
	table := filled(t)
	before := nft(t, "-a", "list", "table", "inet", "crib")
	must(t, table.Ensure(t.Context()))
	if after := nft(t, "-a", "list", "table", "inet", "crib"); after != before {
		t.Error("handles changed: it was built anew")
	}
}

func TestPublishMendsWhatIsInItsWay(t *testing.T) {
	table := filled(t)
	more := []network.PortMapping{mapping(network.TCP, "", 9, 9)}
	for name, command := range damages() {
		t.Run(name, func(t *testing.T) {
			nft(t, strings.Fields(command)...)
			must(t, table.Reserve("pod2", Ports{Ports: more, Addrs: addrs("10.9.0.3")}))
			must(t, table.Publish(t.Context(), "pod2"))
			if got := nft(t, "get", "element", "inet", "crib", "ports4", "{ tcp . 9 }"); !strings.Contains(got, "10.9.0.3 . 9") {
				t.Error(got)
			}
			must(t, table.Ensure(t.Context()))
			must(t, table.Unpublish(t.Context(), "pod2"))
			wantGolden(t, "ports")
		})
	}
	nft(t, "flush", "ruleset")
}

func TestUnpublishOfWhatIsGoneIsFine(t *testing.T) {
	table := open(t)
	for name, command := range damages() {
		setNetworks(t, table)
		publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
		nft(t, strings.Fields(command)...)
		for range 2 {
			if err := table.Unpublish(t.Context(), "pod1"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		must(t, table.Ensure(t.Context()))
		wantGolden(t, "empty")
	}
	nft(t, "flush", "ruleset")
}

func TestPublishWithAnotherAddressMovesThePort(t *testing.T) {
	table := filled(t)
	publish(t, table, "pod1", everyKind(), "10.9.0.7", "fd09::7")
	if got := nft(t, "list", "table", "inet", "crib"); strings.Contains(got, "10.9.0.2") || !strings.Contains(got, "10.9.0.7 . 8080") {
		t.Error(got)
	}
	publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
	wantGolden(t, "ports")
}

func TestPublishWithoutReservedPortsIsNothing(t *testing.T) {
	table := open(t)
	must(t, table.Reserve("pod1", Ports{}))
	must(t, table.Publish(t.Context(), "pod1"))
	must(t, table.Unpublish(t.Context(), "pod1"))
}

func TestRestoreLeavesExactlyWhatRecordsSay(t *testing.T) {
	former := filled(t)
	publish(t, former, "gone", []network.PortMapping{mapping(network.TCP, "", 22, 22)}, "10.9.0.5")
	nft(t, "add", "element", "inet", "crib", "ports4", "{ tcp . 9 : 10.9.0.9 . 9 }")
	table := openAgain(t)
	setNetworks(t, table)
	if got := nft(t, "list", "table", "inet", "crib"); !strings.Contains(got, "tcp . 22") {
		t.Error("setting networks at start took away ports of pods that are not restored yet:", got)
	}
	must(t, table.Restore(t.Context(), map[string]Ports{"pod1": {Ports: everyKind(), Addrs: addrs("10.9.0.2", "fd09::2")}}))
	wantGolden(t, "ports")
	if err := table.Reserve("pod2", Ports{Ports: everyKind()[:1], Addrs: addrs("10.9.0.3")}); !errdefs.IsAlreadyExists(err) {
		t.Error("a restored port is not owned:", err)
	}
}

func TestRestoreOfAConflictNamesBothAndRestoresTheRest(t *testing.T) {
	table := open(t)
	setNetworks(t, table)
	err := table.Restore(t.Context(), map[string]Ports{
		"pod1": {Ports: everyKind(), Addrs: addrs("10.9.0.2", "fd09::2")},
		"pod2": {Ports: everyKind()[:1], Addrs: addrs("10.9.0.3")},
	})
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "pod1") || !strings.Contains(err.Error(), "pod2") {
		t.Error(err)
	}
	wantGolden(t, "ports")
}

func TestDeleteIsIdempotentAndEnsureMakesTheTableAgain(t *testing.T) {
	table := filled(t)
	for range 2 {
		must(t, table.Delete(t.Context()))
	}
	if got := nft(t, "list", "tables"); got != "" {
		t.Error(got)
	}
	must(t, table.Ensure(t.Context()))
	wantGolden(t, "ports")
}

// broken makes the kernel refuse the table until the function is called that it returns.
func broken(table *Table) (repair func()) {
	name := table.kernel.schema.table.Name
	table.kernel.schema.table.Name = strings.Repeat("x", 300) // the kernel's limit is 255
	return func() { table.kernel.schema.table.Name = name }
}

func TestTableThatCannotBeBuiltIsUnhealthyUntilItCan(t *testing.T) {
	table := filled(t)
	repair := broken(table)
	for range 2 {
		if err := table.Ensure(t.Context()); err == nil || table.Healthy() == nil {
			t.Error("no error:", err, table.Healthy())
		}
	}
	repair()
	must(t, table.Ensure(t.Context()))
	must(t, table.Healthy())
	wantGolden(t, "ports")
}

func TestFailedPublishIsUndoneByUnpublish(t *testing.T) {
	table := filled(t)
	repair := broken(table)
	ports := []network.PortMapping{mapping(network.TCP, "", 9, 9)}
	must(t, table.Reserve("pod2", Ports{Ports: ports, Addrs: addrs("10.9.0.3")}))
	if err := table.Publish(t.Context(), "pod2"); err == nil || !strings.Contains(err.Error(), "pod2") {
		t.Error(err)
	}
	if err := table.Unpublish(t.Context(), "pod2"); err == nil {
		t.Error("the kernel refuses and Unpublish does not say so")
	}
	if err := table.Reserve("pod3", Ports{Ports: ports, Addrs: addrs("10.9.0.4")}); !errdefs.IsAlreadyExists(err) {
		t.Error("the port was given away although it may still lead to pod2:", err)
	}
	repair()
	must(t, table.Unpublish(t.Context(), "pod2"))
	wantGolden(t, "ports")
	must(t, table.Reserve("pod3", Ports{Ports: ports, Addrs: addrs("10.9.0.4")}))
}

func TestFailedUnpublishIsDoneByTheNextOne(t *testing.T) {
	table := open(t)
	setNetworks(t, table)
	publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
	repair := broken(table)
	if err := table.Unpublish(t.Context(), "pod1"); err == nil {
		t.Error("the kernel refuses and Unpublish does not say so")
	}
	repair()
	must(t, table.Unpublish(t.Context(), "pod1"))
	wantGolden(t, "empty")
}

func TestPublishGivesUpItsTurnWhenItsContextEnds(t *testing.T) {
	table := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, table.speak(ctx, func() error {
		cancel()
		if err := table.Publish(ctx, "pod1"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return nil
	}))
	must(t, table.Unpublish(ctx, "pod1")) // a removal does not end with it
	wantGolden(t, "empty")
}

func TestNetworksThatAreNoPrefixesAreRefused(t *testing.T) {
	table := open(t)
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if err := table.SetNetworks(t.Context(), nil, []netip.Prefix{p}); !errdefs.IsInvalidArgument(err) {
			t.Error(p, err)
		}
	}
}

// many returns the records of n pods.
func many(n int) map[string]Ports {
	pods := map[string]Ports{}
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		ports := []network.PortMapping{mapping(network.TCP, "", uint16(10000+i), 80), mapping(network.UDP, "192.0.2.1", uint16(10000+i), 80)}
		pods[fmt.Sprint("pod", i)] = Ports{Ports: ports, Addrs: []netip.Addr{addr}}
	}
	return pods
}

// More elements than a message holds, and more bytes than the usual buffers.
func TestThousandsOfPortsAreOneTransaction(t *testing.T) {
	table := open(t)
	must(t, table.Restore(t.Context(), many(3000)))
	if found, err := table.Check(t.Context()); len(found) > 0 || err != nil {
		t.Error(found, err)
	}
}

func TestPodsAtTheSameTimeDoNotDisturbEachOther(t *testing.T) {
	table := filled(t)
	var wg sync.WaitGroup
	for i := range 8 {
		proto := network.TCP
		if i == 0 {
			proto = network.UDP // whose flows are walked through at each step
		}
		wg.Go(func() {
			pod, addr := fmt.Sprint("busy", i), netip.AddrFrom4([4]byte{10, 9, 1, byte(i)})
			for range 20 {
				err := errors.Join(
					table.Reserve(pod, Ports{Ports: []network.PortMapping{mapping(proto, "", uint16(1000+i), 80)}, Addrs: []netip.Addr{addr}}),
					table.Publish(t.Context(), pod),
					table.Ensure(t.Context()),
					table.Unpublish(t.Context(), pod))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantGolden(t, "ports")
}

func BenchmarkPublishAndUnpublish(b *testing.B) {
	for name, proto := range map[string]network.Protocol{"tcp": network.TCP, "udp": network.UDP} {
		b.Run(name, func(b *testing.B) {
			table := filled(b)
			for b.Loop() {
				publish(b, table, "pod2", []network.PortMapping{mapping(proto, "", 9000, 80)}, "10.9.0.3", "fd09::3")
				must(b, table.Unpublish(b.Context(), "pod2"))
			}
		})
	}
}

func BenchmarkEnsure(b *testing.B) {
	for _, pods := range []int{10, 1000} {
		b.Run(fmt.Sprint(pods, "pods"), func(b *testing.B) {
			table := open(b)
			must(b, table.Restore(b.Context(), many(pods)))
			for b.Loop() {
				must(b, table.Ensure(b.Context()))
			}
		})
	}
}

func BenchmarkRestore(b *testing.B) {
	table := open(b)
	pods := many(1000)
	for b.Loop() {
		must(b, table.Restore(b.Context(), pods))
	}
}
