package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheWorstFindingCounts(t *testing.T) {
	one := func(v Verdict) Finding { return Finding{Verdict: v} }
	for _, test := range []struct {
		findings []Finding
		want     Verdict
	}{
		{nil, Good},
		{[]Finding{one(Good), one(Warning), one(Good)}, Warning},
		{[]Finding{one(Missing), one(Warning)}, Missing},
	} {
		if got := Worst(test.findings); got != test.want {
			t.Errorf("%v: %s, want %s", test.findings, got, test.want)
		}
	}
}

// TestModulesAreKnownByWhatTheKernelListsThem has files as depmod writes them.
func TestModulesAreKnownByWhatTheKernelListsThem(t *testing.T) {
	list := filepath.Join(t.TempDir(), "modules.dep")
	text := "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\nkernel/net/netfilter/nft-ct.ko\n"
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	known := listed(list, filepath.Join(t.TempDir(), "missing"))
	for _, name := range []string{"br_netfilter", "nft_ct"} {
		if !known[name] {
			t.Errorf("%s is not known of %v", name, known)
		}
	}
}

func TestADiskIsLookedAtThoughItsDirectoryIsNotThereYet(t *testing.T) {
	f := disk("root", filepath.Join(t.TempDir(), "not", "yet"))
	if !strings.Contains(f.Found, "GiB free") {
		t.Errorf("got %+v", f)
	}
}

func TestWhatIsMissingIsNamedWithTheRemedy(t *testing.T) {
	for _, f := range append(programs([]string{"/nowhere/crib-shim"}), ociRuntime(t.Context(), "no-such-runtime")) {
		if f.Verdict != Missing || f.Remedy == "" || !strings.Contains(f.Found, "/nowhere/crib-shim") && !strings.Contains(f.Found, "no-such-runtime") {
			t.Errorf("got %+v", f)
		}
	}
}

func TestRemediesFitTheFirewall(t *testing.T) {
	for chain, want := range map[string]string{
		"ip filter FORWARD":             "iptables -P FORWARD",
		"ip6 filter FORWARD":            "ip6tables -P FORWARD",
		"inet firewalld filter_FORWARD": "firewall-cmd",
		"inet mine guard":               "nft list chain inet mine guard",
	} {
		if got := remedy(chain); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", chain, got)
		}
	}
}
