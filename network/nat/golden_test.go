package nat

import (
	"context"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

var update = flag.Bool("update", false, "write the golden files anew") //nolint:gochecknoglobals // flags are

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

// open returns a table that is deleted when the test ends.
func open(t testing.TB) *Table {
	t.Helper()
	nstest.Lab(t)
	return openAgain(t)
}

// openAgain opens the table as the next process would.
func openAgain(t testing.TB) *Table {
	t.Helper()
	table, err := Open(Config{Bridge: "crib0"})
	must(t, err)
	t.Cleanup(func() {
		must(t, table.Delete(context.Background()))
		must(t, table.Close())
	})
	return table
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nft runs the binary, which the code under test does not need.
func nft(t testing.TB, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft to look with:", err)
	}
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func wantGolden(t *testing.T, name string) {
	t.Helper()
	got := sortElements(nft(t, "list", "table", "inet", "crib"))
	file := filepath.Join("testdata", name+".golden")
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs (-update writes it):\n%s", file, got)
	}
}

// sortElements orders the elements of sets, which the kernel hashes.
func sortElements(list string) string {
	elements := regexp.MustCompile(`(?s)elements = \{ (.*?) \}`)
	space := regexp.MustCompile(`,\s+`)
	return elements.ReplaceAllStringFunc(list, func(text string) string {
		all := space.Split(elements.FindStringSubmatch(text)[1], -1)
		slices.Sort(all)
		return "elements = { " + strings.Join(all, ", ") + " }"
	})
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

// mapping returns one host port. An empty host stands for every address.
func mapping(proto network.Protocol, host string, hostPort, containerPort uint16) network.PortMapping {
	m := network.PortMapping{Protocol: proto, HostPort: hostPort, ContainerPort: containerPort}
	if host != "" {
		m.HostIP = netip.MustParseAddr(host)
	}
	return m
}

func publish(t testing.TB, table *Table, pod string, ports []network.PortMapping, addresses ...string) {
	t.Helper()
	must(t, table.Reserve(pod, Ports{Ports: ports, Addrs: addrs(addresses...)}))
	must(t, table.Publish(t.Context(), pod))
}

func setNetworks(t testing.TB, table *Table) {
	t.Helper()
	must(t, table.SetNetworks(t.Context(), prefixes("10.9.0.0/24", "fd09::/64"), prefixes("10.8.0.0/14", "10.9.0.0/16", "172.16.0.0/13", "172.24.0.0/13")))
}

func everyKind() []network.PortMapping {
	return []network.PortMapping{
		mapping(network.TCP, "", 80, 8080),
		mapping(network.UDP, "0.0.0.0", 53, 5353),
		mapping(network.SCTP, "::", 9999, 9999),
		mapping(network.TCP, "192.0.2.1", 443, 8443),
		mapping(network.UDP, "2001:db8::1", 443, 8443),
	}
}

func TestTableOfNoPods(t *testing.T) {
	table := open(t)
	must(t, table.Restore(t.Context(), nil))
	setNetworks(t, table)
	wantGolden(t, "empty")
}

func TestTableOfEveryKindOfPort(t *testing.T) {
	table := open(t)
	setNetworks(t, table)
	publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
	wantGolden(t, "ports")
	if found, err := table.Check(t.Context()); len(found) > 0 || err != nil {
		t.Error("what was written is not what is read:", found, err)
	}
}

func TestUnpublishLeavesNothing(t *testing.T) {
	table := open(t)
	setNetworks(t, table)
	publish(t, table, "pod1", everyKind(), "10.9.0.2", "fd09::2")
	for range 2 {
		must(t, table.Unpublish(t.Context(), "pod1"))
	}
	wantGolden(t, "empty")
	if len(table.book.owners) != 0 {
		t.Error("ports are still owned:", table.book.owners)
	}
}

func TestOpenLeavesNoTable(t *testing.T) {
	nstest.Lab(t)
	table, err := Open(Config{})
	must(t, err)
	must(t, table.Close())
	if got := nft(t, "list", "tables"); strings.Contains(got, "crib") {
		t.Error(got)
	}
}
