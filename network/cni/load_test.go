package cni_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/cni"
)

// named fails unless these are the loaded networks.
func named(t *testing.T, networks *cni.Networks, want ...string) {
	t.Helper()
	if got := networks.Names(); !slices.Equal(got, want) {
		t.Errorf("networks %v; want %v", got, want)
	}
}

func TestNamesAreInTheOrderOfTheFiles(t *testing.T) {
	n := newNode(t)
	n.write("20-a.conflist", spy("a", "spy"))
	n.write("10-b.conf", `{"cniVersion": "0.4.0", "name": "b", "type": "spy"}`)
	n.write("30-c.json", `{"name": "c", "type": "spy"}`)
	n.write("05-d.conflist.bak", "not for us")
	named(t, n.open(), "b", "a", "c")
}

func TestPlanFailsClearlyWithoutNetworks(t *testing.T) {
	n := newNode(t)
	n.must(os.Remove(n.conf))
	networks := n.open()
	_, err := networks.Plan(network.Pod{}, 0)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "cni config uninitialized: no network in "+n.conf) {
		t.Errorf("error: %v", err)
	}
	status := networks.Status()
	if status.Ready || status.Reason != "NetworkPluginNotReady" || !strings.Contains(status.Message, "install a CNI add-on") {
		t.Errorf("status: %+v", status)
	}
}

func TestPlanNumbersInterfacesFromFirst(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	n.write("20-b.conflist", spy("b", "spy"))
	n.script("spy", "")
	planned, err := n.open().Plan(network.Pod{ID: "p"}, 1)
	n.must(err)
	if len(planned) != 2 || planned[0].Interface != "eth1" || planned[1].Interface != "eth2" || planned[1].Driver != "cni" {
		t.Errorf("planned: %+v", planned)
	}
}

func TestPlanFailsWhileAPluginIsMissing(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	_, err := n.open().Plan(network.Pod{ID: "p"}, 0)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "find plugin spy") {
		t.Errorf("error: %v", err)
	}
}

func TestPlanRefusesAnImpossibleBandwidth(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	for _, value := range []string{"much", "1", "2P"} {
		pod := network.Pod{Annotations: map[string]string{"kubernetes.io/egress-bandwidth": value}}
		if _, err := n.open().Plan(pod, 0); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: error %v", value, err)
		}
	}
}

func TestHalfWrittenFileKeepsTheLastGoodSet(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	n.write("20-b.conflist", spy("b", "spy"))
	networks := n.open()
	n.write("10-a.conflist", spy("c", "spy")[:30])
	networks.Scan()
	named(t, networks, "a", "b")
	status := networks.Status()
	if !status.Ready || !strings.Contains(status.Message, "10-a.conflist") {
		t.Errorf("status: %+v; want ready, with the file's name", status)
	}
	n.write("10-a.conflist", spy("c", "spy"))
	networks.Scan()
	named(t, networks, "c", "b")
	if status := networks.Status(); status.Message != "" {
		t.Errorf("status: %+v", status)
	}
}

func TestVanishedDirectoryKeepsTheLastGoodSet(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	networks := n.open()
	n.must(os.RemoveAll(n.conf))
	networks.Scan()
	named(t, networks, "a")
	n.must(os.Mkdir(n.conf, 0o755))
	networks.Scan()
	named(t, networks)
}

func TestBadFileHoldsBackAllOthersAtFirst(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", "{")
	n.write("20-b.conflist", spy("b", "spy"))
	networks := n.open()
	named(t, networks)
	if m := networks.Status().Message; !strings.Contains(m, "10-a.conflist") || !strings.Contains(m, "correct or remove") {
		t.Errorf("message: %s", m)
	}
	named(t, n.open(func(c *cni.Config) { c.Only = "b" }), "b")
}

func TestOnlyOneNetworkIsUsed(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	n.write("20-b.conflist", spy("b", "spy"))
	named(t, n.open(func(c *cni.Config) { c.Only = "b" }), "b")
	other := n.open(func(c *cni.Config) { c.Only = "z" })
	named(t, other)
	if m := other.Status().Message; !strings.Contains(m, `no file in `+n.conf+` has a network named "z"`) {
		t.Errorf("message: %s", m)
	}
}

func TestPluginsInTheNetworksFolderAreRecorded(t *testing.T) {
	n := newNode(t)
	n.script("first", answer)
	n.script("second", answer)
	n.write("10-a.conflist", spy("a", "first"))
	n.must(os.Mkdir(filepath.Join(n.conf, "a"), 0o755))
	n.write("a/second.conf", `{"type": "second"}`)
	networks, pod := n.open(), n.pod("p")
	attached := n.attach(networks, pod)
	n.must(os.RemoveAll(n.conf))
	n.must(networks.Detach(t.Context(), pod, attached))
	want := []string{"first ADD eth0", "second ADD eth0", "second DEL eth0", "first DEL eth0"}
	if got := n.calls(); !slices.Equal(got, want) {
		t.Errorf("calls: %v", got)
	}
}

func TestStatusTellsWhatPluginsReport(t *testing.T) {
	n := newNode(t)
	n.script("spy", "[ $CNI_COMMAND != STATUS ] || [ -e "+n.data+` ] || { echo '{"code": 50, "msg": "no lease"}'; exit 1; }`)
	n.write("10-a.conflist", spy("a", "spy"))
	networks := n.open()
	networks.Poll(t.Context())
	if s := networks.Status(); s.Ready || s.Message != "network a: plugin reports that it is not ready: no lease" {
		t.Errorf("status: %+v", s)
	}
	n.must(os.Mkdir(n.data, 0o755))
	networks.Poll(t.Context())
	if s := networks.Status(); !s.Ready {
		t.Errorf("status: %+v", s)
	}
	n.must(os.Remove(filepath.Join(n.bin, "spy")))
	networks.Poll(t.Context())
	if s := networks.Status(); s.Ready || !strings.Contains(s.Message, "find plugin spy") {
		t.Errorf("status: %+v", s)
	}
}

// serve runs Serve until the test ends.
func serve(t *testing.T, networks *cni.Networks) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- networks.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestServeFollowsTheDirectory(t *testing.T) {
	n := newNode(t)
	n.write("10-a.conflist", spy("a", "spy"))
	networks := n.open()
	serve(t, networks)
	steps := []struct {
		does string
		do   func() error
		want []string
	}{
		{"file added", func() error { n.write("20-b.conflist", spy("b", "spy")); return nil }, []string{"a", "b"}},
		{"file renamed", func() error {
			return os.Rename(filepath.Join(n.conf, "20-b.conflist"), filepath.Join(n.conf, "05-b.conflist"))
		}, []string{"b", "a"}},
		{"directory replaced by rename", func() error {
			next := n.conf + ".next"
			return errors.Join(os.Mkdir(next, 0o755),
				os.WriteFile(filepath.Join(next, "c.conflist"), []byte(spy("c", "spy")), 0o644),
				os.Rename(n.conf, n.conf+".old"), os.Rename(next, n.conf))
		}, []string{"c"}},
		{"directory removed and another one put there", func() error {
			next := n.conf + ".next"
			return errors.Join(os.RemoveAll(n.conf), os.Mkdir(next, 0o755),
				os.WriteFile(filepath.Join(next, "e.conflist"), []byte(spy("e", "spy")), 0o644), os.Rename(next, n.conf))
		}, []string{"e"}},
		{"file changed in the new directory", func() error { n.write("e.conflist", spy("d", "spy")); return nil }, []string{"d"}},
	}
	for _, step := range steps {
		swapped := networks.Swapped()
		n.must(step.do())
		<-swapped
		if got := networks.Names(); !slices.Equal(got, step.want) {
			t.Fatalf("%s: networks %v; want %v", step.does, got, step.want)
		}
	}
}

func TestQuantityReadsKubernetesNotation(t *testing.T) {
	for text, want := range map[string]uint64{
		"10": 10, "10M": 10_000_000, "1.5k": 1500, "1Ki": 1024, "0.5Gi": 1 << 29, "2e6": 2_000_000, "2E6": 2_000_000,
		"1E": 1e18, "1500m": 2, "1T": 1e12, "1e-3": 1,
	} {
		if got, err := cni.Quantity(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "M", "10 M", "10X", "1/2", "0x10", "1_000", "-1", "1e999999999", "1ki", "100E", "iK", "1i", "."} {
		if got, err := cni.Quantity(text); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %d, %v; want ErrInvalidArgument", text, got, err)
		}
	}
}
