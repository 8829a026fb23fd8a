package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

// hostFinding is a line of `crib check`.
type hostFinding struct{ Part, Name, Verdict, Found, Remedy string }

// check runs `crib check` without a daemon, and tells whether it found the host fit.
func check(t *testing.T, config string) (findings []hostFinding, fit bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("version = 1\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(binEnv), "crib"), "check", "-o", "json", "--config", path)
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &findings); jsonErr != nil {
		t.Fatalf("%v, %v: %s", err, jsonErr, out)
	}
	return findings, err == nil
}

// found returns the finding of a name.
func found(t *testing.T, findings []hostFinding, name string) hostFinding {
	t.Helper()
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("nothing about %s in %+v", name, findings)
	return hostFinding{}
}

// TestCheckTriesTheNetworkAndLeavesNothing needs no daemon.
func TestCheckTriesTheNetworkAndLeavesNothing(t *testing.T) {
	nstest.Lab(t)
	findings, fit := check(t, "")
	if !fit {
		t.Errorf("the lab is not fit: %+v", findings)
	}
	for _, name := range []string{"pods' network, IPv4", "pods' network, IPv6", "overlay", "OCI runtime"} {
		if f := found(t, findings, name); f.Verdict != "ok" {
			t.Errorf("%+v", f)
		}
	}
}

// TestCheckTriesNothingInNamespacesOfOthers: what its child does would break a host.
func TestCheckTriesNothingInNamespacesOfOthers(t *testing.T) {
	nstest.Lab(t)
	out, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(binEnv), "crib"), "check", "--inside").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not ours to change") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCheckFailsWithoutAnOCIRuntime(t *testing.T) {
	nstest.Lab(t)
	findings, fit := check(t, "[engine]\noci_runtime = \"/nowhere/runc\"\n")
	if f := found(t, findings, "OCI runtime"); fit || f.Verdict != "missing" || !strings.Contains(f.Remedy, "engine.oci_runtime") {
		t.Errorf("fit %t, %+v", fit, f)
	}
}

func TestCheckNamesTheFirewallThatDropsWhatIsForwarded(t *testing.T) {
	nstest.Lab(t)
	rules := "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"
	if out, err := exec.CommandContext(t.Context(), "nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	undo(t, "nft", "delete table ip filter")
	findings, fit := check(t, "")
	if f := found(t, findings, "forward"); !fit || f.Verdict != "warning" || !strings.Contains(f.Found, "ip filter FORWARD") ||
		!strings.Contains(f.Remedy, "iptables -P FORWARD ACCEPT") {
		t.Errorf("fit %t, %+v", fit, f)
	}
}

func TestCheckNamesTheLinkInThePodsRanges(t *testing.T) {
	nstest.Lab(t)
	address := func(verb string) {
		if out, err := exec.Command("ip", "address", verb, "10.85.0.9/24", "dev", "lo").CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", verb, err, out)
		}
	}
	address("add")
	t.Cleanup(func() { address("del") })
	findings, fit := check(t, "[network]\ncidrs = [\"10.85.0.0/16\"]\n")
	if f := found(t, findings, "network.cidrs"); fit || f.Verdict != "missing" || !strings.Contains(f.Found, "of lo ") {
		t.Errorf("fit %t, %+v", fit, f)
	}
}
