package nat

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

// guarded returns a table that checks sources, with one pod.
func guarded(t *testing.T, cfg Config) *Table {
	t.Helper()
	nstest.Lab(t)
	table := reopen(t, cfg)
	must(t, table.Restore(t.Context(), nil))
	must(t, table.Reserve("pod1", somebody()))
	must(t, table.Publish(t.Context(), "pod1"))
	return table
}

// somebody is a pod with both families.
func somebody() Ports {
	return Ports{
		Addrs: addrs("10.9.0.2", "fd09::2"), Link: "crib01234567890",
		MAC: net.HardwareAddr{0x0a, 0x58, 0x0a, 0x09, 0, 2},
	}
}

func reopen(t *testing.T, cfg Config) *Table {
	t.Helper()
	table, err := Open(cfg)
	must(t, err)
	t.Cleanup(func() {
		must(t, table.Delete(t.Context()))
		must(t, table.Close())
	})
	return table
}

func TestTableOfSources(t *testing.T) {
	table := guarded(t, Config{AntiSpoofing: true})
	got := sortElements(nft(t, "list", "table", "bridge", "crib"))
	file := filepath.Join("testdata", "sources.golden")
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs (-update writes it):\n%s", file, got)
	}
	if found, err := table.Check(t.Context()); len(found) > 0 || err != nil {
		t.Error(found, err)
	}
	must(t, table.Unpublish(t.Context(), "pod1"))
	if got := nft(t, "list", "table", "bridge", "crib"); strings.Contains(got, "elements") {
		t.Error("elements are left:", got)
	}
}

func TestSourcesThatOthersChangeAreFoundAndMended(t *testing.T) {
	table := guarded(t, Config{AntiSpoofing: true})
	for command, want := range map[string]string{
		"delete table bridge crib":        "the table or a chain is gone",
		"flush set bridge crib sources4":  "missing: { crib01234567890 . 0a:58:0a:09:00:02 . 0.0.0.0 }, { crib01234567890 . 0a:58:0a:09:00:02 . 10.9.0.2 }",
		"flush chain bridge crib sources": "the chains have other rules",
	} {
		nft(t, strings.Fields(command)...)
		found, err := table.Check(t.Context())
		must(t, err)
		if len(found) == 0 || !strings.HasPrefix(found[0].Text, want) {
			t.Errorf("%s: %v", command, found)
		}
		must(t, table.Ensure(t.Context()))
		if found, err := table.Check(t.Context()); len(found) > 0 || err != nil {
			t.Error(command, found, err)
		}
	}
}

func TestSourcesAreNotCheckedWhereItIsTurnedOff(t *testing.T) {
	guarded(t, Config{AntiSpoofing: true}) // by an earlier process
	table := reopen(t, Config{})
	must(t, table.Restore(t.Context(), map[string]Ports{"pod1": somebody()}))
	if got := nft(t, "list", "tables"); strings.Contains(got, "bridge") {
		t.Error(got)
	}
}

func TestLinkLocalAddressIsTheKernels(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0x58, 0x0a, 0x09, 0x00, 0x02}
	if got, want := linkLocal(mac), netip.MustParseAddr("fe80::858:aff:fe09:2"); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
