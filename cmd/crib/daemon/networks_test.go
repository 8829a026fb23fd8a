package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/cmd/crib/config"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox/store"
)

// testConfig is a configuration whose directories are the test's own.
func testConfig(t *testing.T) config.Config {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Root, cfg.State = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	cfg.Network.CNI.ConfDir, cfg.Network.CNI.BinDirs = filepath.Join(dir, "net.d"), []string{filepath.Join(dir, "bin")}
	for _, d := range []string{cfg.State, cfg.Network.CNI.ConfDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// openTest opens the networks of a configuration until the test ends.
func openTest(t *testing.T, cfg config.Config) *networks {
	t.Helper()
	st, err := store.Open(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNetworks(cfg, st, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestWhichNetworksANewPodGets(t *testing.T) {
	nstest.Lab(t)
	for _, test := range []struct {
		primary   string
		conflists []string
		want      []string
	}{
		{"auto", nil, []string{driverBridge}},
		{"auto", []string{"one"}, []string{driverCNI}},
		{"builtin", nil, []string{driverBridge}},
		{"builtin", []string{"one", "two"}, []string{driverBridge, driverCNI}},
		{"one", []string{"one", "two"}, []string{driverCNI}},
		{"one", nil, []string{driverCNI}}, // not ready until it is there, and never another one
	} {
		t.Run(fmt.Sprintf("primary %s, conflists %v", test.primary, test.conflists), func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Network.Primary = test.primary
			for _, name := range test.conflists {
				text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "ptp"}]}`, name)
				if err := os.WriteFile(filepath.Join(cfg.Network.CNI.ConfDir, name+".conflist"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n := openTest(t, cfg)
			if got := n.choose(); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if test.primary == "one" && test.conflists == nil && n.status().Ready {
				t.Errorf("without its conflist the status is %+v", n.status())
			}
		})
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// kept returns the CIDRs on disk.
func (n *networks) kept(t *testing.T) []netip.Prefix {
	t.Helper()
	var fact cidrs
	if err := n.store.Fact(cidrFact, &fact); err != nil {
		t.Fatal(err)
	}
	return fact.PodCIDRs
}

func (n *networks) ranges() (list []netip.Prefix) {
	for _, r := range n.bridge.Ranges() {
		list = append(list, r.CIDR)
	}
	return list
}

func TestTheKubeletsCIDRsAreUsedAndKept(t *testing.T) {
	nstest.Lab(t)
	n := openTest(t, testConfig(t))
	for _, want := range [][]netip.Prefix{prefixes("10.244.1.0/24"), prefixes("10.244.2.0/24"), prefixes("10.244.2.0/24")} {
		if err := n.relay(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(n.ranges(), want) || !slices.Equal(n.kept(t), want) {
			t.Errorf("used: %v, kept: %v, want %v", n.ranges(), n.kept(t), want)
		}
	}
}

func TestCIDRsThatTheNetworkRefusesDoNotReplaceTheOldOnes(t *testing.T) {
	nstest.Lab(t)
	n := openTest(t, testConfig(t))
	good := prefixes("10.244.1.0/24")
	if err := n.relay(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if err := n.relay(t.Context(), prefixes("10.244.1.0/32")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a range without room: %v", err)
	}
	if !slices.Equal(n.ranges(), good) || !slices.Equal(n.kept(t), good) {
		t.Errorf("used: %v, kept: %v, want %v", n.ranges(), n.kept(t), good)
	}
}

func TestTheConfigurationsCIDRsWinOverTheKubelets(t *testing.T) {
	nstest.Lab(t)
	cfg := testConfig(t)
	cfg.Network.CIDRs = prefixes("10.85.0.0/24")
	n := openTest(t, cfg)
	if err := n.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.relay(t.Context(), prefixes("10.244.1.0/24")); err != nil {
		t.Errorf("the kubelet would repeat it for ever: %v", err)
	}
	if !slices.Equal(n.ranges(), cfg.Network.CIDRs) || len(n.kept(t)) > 0 {
		t.Errorf("used: %v, kept: %v", n.ranges(), n.kept(t))
	}
}

func TestResetForgetsTheKubeletsCIDRs(t *testing.T) {
	nstest.Lab(t)
	n := openTest(t, testConfig(t))
	if err := n.relay(t.Context(), prefixes("10.244.1.0/24")); err != nil {
		t.Fatal(err)
	}
	if err := n.bridge.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := n.reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.kept(t); len(got) > 0 {
		t.Errorf("the next cluster's pods would get %v", got)
	}
}
