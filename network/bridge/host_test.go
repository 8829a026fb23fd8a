package bridge

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// hostSysctls are what the network changes on the host.
var hostSysctls = []string{
	"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
	"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
}

func TestResetGivesTheHostBack(t *testing.T) {
	l := newLab(t)
	before := map[string]string{}
	for _, path := range hostSysctls {
		must(t, setting{path, "0"}.write())
		before[path] = "0"
	}
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24", "fd09::/64")))
	for _, path := range hostSysctls {
		if got := sysctl(t, network.Pod{}, path); got != "1" {
			t.Errorf("%s=%s", path, got)
		}
	}
	pod, _ := l.run("one")
	l.reopen() // a former process may have changed them
	must(t, l.n.Reset(t.Context()))
	for path, value := range before {
		if got := sysctl(t, network.Pod{}, path); got != value {
			t.Errorf("%s=%s, was %s", path, got, value)
		}
	}
	if linkThere(t, "crib0") || linkThere(t, network.HostLinkName(pod.ID, "eth0")) {
		t.Error("links are left")
	}
	for _, path := range []string{l.cfg.Dir, l.cfg.Sysctls} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestTheFirstFormerValueIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sysctls.json")
	must(t, recordFormer(file, map[string]string{"a": "0"}))
	must(t, recordFormer(file, map[string]string{"a": "1", "b": "2"}))
	got, err := readFormer(file)
	must(t, err)
	if len(got) != 2 || got["a"] != "0" || got["b"] != "2" {
		t.Errorf("got %v", got)
	}
}

func TestADamagedFileOfSysctlsIsAnErrorThatNamesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sysctls.json")
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	if _, err := readFormer(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

func TestAForeignBridgeIsRefused(t *testing.T) {
	l := newLab(t)
	ip(t, network.Pod{}, "link", "add", "crib0", "type", "bridge")
	err := l.n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24"))
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "crib0") {
		t.Errorf("got %v", err)
	}
	if s := l.n.Status(); s.Ready || s.Reason != "BridgeBroken" {
		t.Errorf("status %+v", s)
	}
	pod := l.newPod("one")
	atts, err := l.n.Plan(pod, 0)
	must(t, err)
	if _, err := l.n.Attach(t.Context(), pod, atts, l.noSave); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("got %v", err)
	}
	must(t, l.n.Reset(t.Context()))
	if !linkThere(t, "crib0") {
		t.Error("Reset deleted a foreign bridge")
	}
	ip(t, network.Pod{}, "link", "del", "crib0")
}

func TestABridgeFromACrashRightAfterItsMakingIsTakenOver(t *testing.T) {
	l := newLab(t)
	must(t, l.n.createBridge(podMAC(prefixes("10.9.0.1/24")), 1500))
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24")))
	if got := ip(t, network.Pod{}, "link", "show", "crib0"); !strings.Contains(got, "alias crib network crib") || !strings.Contains(got, "UP") {
		t.Errorf("bridge: %s", got)
	}
}

func TestTheBridgesLinkAddressIsStable(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	l.run("one")
	for _, cidr := range []string{"10.9.0.0/24", "10.10.0.0/24"} {
		must(t, l.n.SetCIDRs(t.Context(), prefixes(cidr)))
		if got := ip(t, network.Pod{}, "link", "show", "crib0"); !strings.Contains(got, "link/ether 0a:58:0a:09:00:01") {
			t.Errorf("bridge: %s", got)
		}
	}
}

func TestWrongRangesChangeNothing(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	for _, wrong := range [][]netip.Prefix{prefixes("10.9.0.0/24", "10.10.0.0/24"), prefixes("10.9.0.0/31"), {netip.Prefix{}}} {
		if err := l.n.SetCIDRs(t.Context(), wrong); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if r := l.n.Ranges(); len(r) != 1 || r[0].CIDR.String() != "10.9.0.0/24" || r[0].Gateway.String() != "10.9.0.1" || r[0].Free != 253 {
		t.Errorf("ranges %+v", r)
	}
}

func TestTheHostKeepsItsRouteByAdvertisement(t *testing.T) {
	l := newLab(t)
	ip(t, network.Pod{}, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	t.Cleanup(func() { ip(t, network.Pod{}, "link", "del", "up0") })
	ip(t, network.Pod{}, "link", "set", "up0", "up")
	ip(t, network.Pod{}, "link", "set", "up1", "up")
	ip(t, network.Pod{}, "-6", "route", "add", "default", "via", "fe80::1", "dev", "up0", "proto", "ra", "onlink")
	ip(t, network.Pod{}, "-6", "route", "add", "default", "via", "fe80::1", "dev", "up1", "proto", "ra", "onlink", "metric", "2000")
	must(t, setting{"net/ipv6/conf/up1/accept_ra", "0"}.write())
	must(t, l.n.SetCIDRs(t.Context(), prefixes("fd09::/64")))
	if got := sysctl(t, network.Pod{}, "net/ipv6/conf/up0/accept_ra"); got != "2" {
		t.Errorf("accept_ra=%s on the uplink", got)
	}
	if got := sysctl(t, network.Pod{}, "net/ipv6/conf/up1/accept_ra"); got != "0" {
		t.Errorf("accept_ra=%s where a program handles advertisements", got)
	}
}

// withoutIPv6 hides IPv6 as a kernel without it does.
func withoutIPv6(t *testing.T) {
	must(t, unix.Mount("tmpfs", "/proc/sys/net/ipv6", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/proc/sys/net/ipv6", unix.MNT_DETACH)) })
}

func TestWithoutIPv6TheRestWorks(t *testing.T) {
	l := newLab(t)
	withoutIPv6(t)
	must(t, l.n.SetCIDRs(t.Context(), prefixes("fd09::/64", "10.9.0.0/24")))
	pod, atts := l.run("one")
	if len(atts[0].Addresses) != 1 || atts[0].Addresses[0].String() != "10.9.0.2/24" {
		t.Errorf("addresses %v", atts[0].Addresses)
	}
	listen(t, pod, ":80")
	if err := reaches(network.Pod{}, "10.9.0.2:80"); err != nil {
		t.Error(err)
	}
	if s := l.n.Status(); !s.Ready || !strings.Contains(s.Message, "fd09::/64") {
		t.Errorf("status %+v", s)
	}
	must(t, l.n.SetCIDRs(t.Context(), prefixes("fd09::/64")))
	if s := l.n.Status(); s.Ready || s.Reason != "IPv6Unavailable" {
		t.Errorf("status %+v", s)
	}
}

func TestBridgeAsksForListenersOnlyWherePodsHaveIPv6(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	for _, step := range []struct {
		cidrs []string
		want  string
	}{
		{[]string{"10.9.0.0/24"}, "mcast_snooping 0"},
		{[]string{"10.9.0.0/24", "fd09::/64"}, "mcast_querier 1"},
		{[]string{"10.9.0.0/24"}, "mcast_querier 0"},
	} {
		must(t, l.n.SetCIDRs(t.Context(), prefixes(step.cidrs...)))
		must(t, l.n.apply(t.Context()))
		if got := ip(t, network.Pod{}, "-d", "link", "show", "crib0"); !strings.Contains(got, step.want) {
			t.Errorf("%v: no %q in\n%s", step.cidrs, step.want, got)
		}
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	_, err := Open(Config{Name: "x", Log: slog.New(slog.DiscardHandler)}, nil)
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyNamesOfOurFormAreOurs(t *testing.T) {
	for name, want := range map[string]bool{
		network.HostLinkName("a", "eth0"): true,
		"crib0":                           false,
		"crib0123456789z":                 false,
		"crib0123456789":                  false,
		"veth01234567890":                 false,
	} {
		if isOurs(name) != want {
			t.Errorf("isOurs(%q) = %v", name, !want)
		}
	}
}
