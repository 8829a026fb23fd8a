package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/network"
)

// podAt is a pod with one address.
func podAt(name, state, address string) admin.Pod {
	return admin.Pod{Namespace: "default", Name: name, State: state, Attachments: []network.Attachment{
		{Addresses: []netip.Prefix{netip.MustParsePrefix(address)}},
	}}
}

func TestTheMapShowsWhoHasWhatAndLeavesOutWhatIsFree(t *testing.T) {
	pods := []admin.Pod{podAt("b", "NotReady", "10.0.0.5/24"), podAt("a", "Ready", "10.0.0.2/24"), podAt("c", "Ready", "10.0.0.200/24"), podAt("d", "Ready", "10.1.0.2/24")}
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	s := space{Network: "crib", CIDR: cidr, Gateway: netip.MustParseAddr("10.0.0.1"), Used: 3, Free: 250, Pods: holdings(pods, cidr)}
	var out strings.Builder
	if err := writeMap(&out, []space{s}); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"10.0.0.0/24 of network crib: 3 used, 250 free",
		"  10.0.0.0\t-G#..x" + strings.Repeat(".", 58),
		"  ...",
		"  10.0.0.192\t" + strings.Repeat(".", 8) + "#" + strings.Repeat(".", 54) + "-",
	}, "\n")
	if !strings.HasPrefix(out.String(), want+"\n\n") {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTheMapOfAHugeRangeIsAFewLines(t *testing.T) {
	cidr := netip.MustParsePrefix("fd00::/64")
	s := space{CIDR: cidr, Gateway: netip.MustParseAddr("fd00::1"), Pods: holdings([]admin.Pod{podAt("a", "Ready", "fd00::2/64")}, cidr)}
	var out strings.Builder
	if err := writeMap(&out, []space{s}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 5 || !strings.Contains(out.String(), "-G#..") || !strings.Contains(out.String(), "free up to the end") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
}

func TestTheMapOfASmallRangeEndsWithIt(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.8/30")
	s := space{CIDR: cidr, Gateway: netip.MustParseAddr("10.0.0.9"), Pods: []holding{}}
	var out strings.Builder
	if err := writeMap(&out, []space{s}); err != nil || !strings.Contains(out.String(), "  10.0.0.8\t-G.-\n\n") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestBarsShowWhatRunsBesideWhat(t *testing.T) {
	all := []admin.Stage{{Name: "files", At: 1, Millis: 1}, {Name: "network", At: 1, Millis: 2}, {Name: "total", Millis: 4}}
	for i, want := range []string{
		strings.Repeat(" ", 10) + strings.Repeat("=", 10), strings.Repeat(" ", 10) + strings.Repeat("=", 20), strings.Repeat("=", 40),
	} {
		if got := bar(all[i], all); got != want {
			t.Errorf("%s: %q, want %q", all[i].Name, got, want)
		}
	}
}
