package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
)

func withRanges(t *testing.T, ranges ...string) *Allocator {
	t.Helper()
	a := New()
	if err := a.SetRanges(prefixes(ranges...)); err != nil {
		t.Fatal(err)
	}
	return a
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func wantTake(t *testing.T, a *Allocator, owner string, want ...string) {
	t.Helper()
	got, err := a.Take(owner)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, prefixes(want...)) {
		t.Errorf("Take(%s) = %v, want %v", owner, got, want)
	}
}

func TestTakeBeginsBehindTheGatewayInOrderOfTheRanges(t *testing.T) {
	a := withRanges(t, "fd00::5/64", "10.1.2.7/24")
	wantTake(t, a, "a", "fd00::2/64", "10.1.2.2/24")
	wantTake(t, a, "b", "fd00::3/64", "10.1.2.3/24")
	wantTake(t, a, "a", "fd00::2/64", "10.1.2.2/24")
}

func TestTakeWithoutRangeIsUnavailable(t *testing.T) {
	if _, err := New().Take("a"); !errdefs.IsUnavailable(err) {
		t.Error(err)
	}
}

func TestFullRangeIsNamedAndEndsWithARelease(t *testing.T) {
	a := withRanges(t, "fd00::/64", "10.0.0.0/29")
	for i := range 5 {
		if _, err := a.Take(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Take("late")
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "10.0.0.0/29 is full, 5 of 5") {
		t.Fatal(err)
	}
	if used := a.Usage()[0].Used; used != 5 {
		t.Errorf("the failed Take keeps an address of the other range: %d used", used)
	}
	a.Release("3")
	wantTake(t, a, "late", "fd00::8/64", "10.0.0.5/29")
}

func TestAddressFreedLastIsTakenLast(t *testing.T) {
	a := withRanges(t, "10.0.0.0/29")
	wantTake(t, a, "a", "10.0.0.2/29")
	wantTake(t, a, "b", "10.0.0.3/29")
	a.Release("b")
	a.Release("a")
	a.Release("a")
	for i, want := range []string{"10.0.0.4/29", "10.0.0.5/29", "10.0.0.6/29", "10.0.0.3/29", "10.0.0.2/29"} {
		wantTake(t, a, fmt.Sprint(i), want)
	}
}

func TestWalkBeginsBehindTheHighestClaimedAddress(t *testing.T) {
	for _, claimFirst := range []bool{true, false} {
		a := New()
		claim := func() {
			for owner, addr := range map[string]string{"a": "10.0.0.3", "b": "10.0.0.5", "c": "10.0.0.2"} {
				if err := a.Claim(owner, addrs(addr)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if claimFirst {
			claim()
		}
		if err := a.SetRanges(prefixes("10.0.0.0/29")); err != nil {
			t.Fatal(err)
		}
		if !claimFirst {
			claim()
		}
		wantTake(t, a, "a", "10.0.0.3/29")
		wantTake(t, a, "d", "10.0.0.6/29")
		wantTake(t, a, "e", "10.0.0.4/29")
		if _, err := a.Take("f"); !errdefs.IsResourceExhausted(err) {
			t.Error(err)
		}
	}
}

func TestClaimOfAnothersAddressChangesNothing(t *testing.T) {
	a := withRanges(t, "10.0.0.0/24")
	wantTake(t, a, "a", "10.0.0.2/24")
	err := a.Claim("b", addrs("10.0.0.9", "10.0.0.2"))
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
	if err := a.Claim("b", addrs("10.0.0.1")); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "gateway") {
		t.Error(err)
	}
	if used := a.Usage()[0].Used; used != 1 {
		t.Errorf("%d used, want 1", used)
	}
}

func TestClaimOutsideTheRangesIsHeld(t *testing.T) {
	a := withRanges(t, "10.0.0.0/24")
	for range 2 {
		if err := a.Claim("old", addrs("192.0.2.9", "::ffff:192.0.2.10")); err != nil {
			t.Fatal(err)
		}
	}
	wantTake(t, a, "old", "192.0.2.9/32", "192.0.2.10/32")
	if err := a.Claim("b", addrs("192.0.2.10")); !errdefs.IsAlreadyExists(err) {
		t.Error(err)
	}
	a.Release("old")
	if err := a.Claim("b", addrs("192.0.2.10")); err != nil {
		t.Error(err)
	}
}

func TestReplaceRefusesTheForeignAddressAndKeepsTheRest(t *testing.T) {
	a := withRanges(t, "10.0.0.0/29", "fd00::/64")
	wantTake(t, a, "a", "10.0.0.2/29", "fd00::2/64")
	got, err := a.Replace("a", netip.MustParseAddr("10.0.0.2"))
	if err != nil || !slices.Equal(got, prefixes("10.0.0.3/29", "fd00::2/64")) {
		t.Fatal(got, err)
	}
	if u := a.Usage()[0]; u.Used != 1 || u.Refused != 1 || u.Free != 3 {
		t.Errorf("%+v", u)
	}
	if _, err := a.Replace("a", netip.MustParseAddr("10.0.0.2")); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}

func TestReplaceInAFullRangeKeepsWhatIsHeld(t *testing.T) {
	a := withRanges(t, "10.0.0.0/30")
	wantTake(t, a, "a", "10.0.0.2/30")
	if _, err := a.Replace("a", netip.MustParseAddr("10.0.0.2")); !errdefs.IsResourceExhausted(err) {
		t.Fatal(err)
	}
	wantTake(t, a, "a", "10.0.0.2/30")
	a.Release("a")
	if _, err := a.Take("b"); !errdefs.IsResourceExhausted(err) {
		t.Error("the refused address was handed out:", err)
	}
	a.Allow(netip.MustParseAddr("10.0.0.2"))
	wantTake(t, a, "b", "10.0.0.2/30")
}

func TestChangedRangeKeepsWhatIsHeldInTheOldOne(t *testing.T) {
	a := withRanges(t, "10.0.0.0/24")
	wantTake(t, a, "a", "10.0.0.2/24")
	if err := a.SetRanges(prefixes("10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	wantTake(t, a, "b", "10.0.1.2/24")
	wantTake(t, a, "a", "10.0.0.2/24")
	if err := a.Claim("c", addrs("10.0.0.2")); !errdefs.IsAlreadyExists(err) {
		t.Error(err)
	}
	a.Release("a")
	wantTake(t, a, "a", "10.0.1.3/24")
}

func TestRangeWhoseGatewayIsHeldIsRefused(t *testing.T) {
	a := withRanges(t, "10.0.0.0/23")
	if err := a.Claim("a", addrs("10.0.1.1")); err != nil {
		t.Fatal(err)
	}
	err := a.SetRanges(prefixes("10.0.1.0/24"))
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
	if got := a.Usage()[0].Prefix; got != netip.MustParsePrefix("10.0.0.0/23") {
		t.Error("the refused change left", got)
	}
}

func TestUnfitRangesAreRefused(t *testing.T) {
	for _, text := range []string{
		"10.0.0.0/31", "10.0.0.0/32", "fd00::/127", "fd00::/128", "10.0.0.0/7", "fd00::/32",
		"127.0.0.0/8", "224.0.0.0/8", "fe80::/64", "::ffff:10.0.0.0/120", "0.0.0.0/8",
	} {
		if err := New().SetRanges(prefixes(text)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := New().SetRanges(prefixes("10.0.0.0/24", "10.0.1.0/24")); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	if err := New().SetRanges([]netip.Prefix{{}}); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestUsageOfEachSize(t *testing.T) {
	want := map[string]uint64{
		"10.0.0.0/30": 1, "10.0.0.0/24": 253, "10.0.0.0/8": 1<<24 - 3,
		"fd00::/126": 2, "fd00::/112": 1<<16 - 2, "fd00::/64": 1<<64 - 1, "fd00::/48": 1<<64 - 1,
	}
	for text, free := range want {
		if got := withRanges(t, text).Usage()[0].Free; got != free {
			t.Errorf("%s: %d free, want %d", text, got, free)
		}
	}
}

func TestOwnersAtTheSameTimeNeverShare(t *testing.T) {
	a := withRanges(t, "10.0.0.0/26", "fd00::/64")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				owner := fmt.Sprint(i, "/", n%7)
				if _, err := a.Take(owner); err != nil {
					t.Error(err)
				}
				a.Usage()
				if n%3 == 0 {
					a.Release(owner)
				}
			}
		})
	}
	wg.Wait()
	seen := map[netip.Addr]bool{}
	for _, held := range a.owners {
		for _, p := range held {
			if seen[p.Addr()] {
				t.Error("twice:", p)
			}
			seen[p.Addr()] = true
		}
	}
}

func BenchmarkTakeAndRelease(b *testing.B) {
	for _, text := range []string{"10.0.0.0/24", "fd00::/64"} {
		b.Run(text, func(b *testing.B) {
			a := New()
			if err := a.SetRanges(prefixes(text)); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := a.Take("a"); err != nil {
					b.Fatal(err)
				}
				a.Release("a")
			}
		})
	}
}
