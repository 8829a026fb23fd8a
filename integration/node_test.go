package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

// conflists writes two networks of the real plugins and returns a configuration
// that uses them, and the directory that they keep their addresses in.
func conflists(t *testing.T, primary string) (config, data string) {
	t.Helper()
	plugins, err := filepath.Abs("../network/cni/testdata/plugins")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin, conf, data := filepath.Join(dir, "bin"), filepath.Join(dir, "net.d"), filepath.Join(dir, "data")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", plugins, "-o", bin+"/", "tool").CombinedOutput(); err != nil {
		t.Fatalf("build the plugins: %v\n%s", err, out)
	}
	if err := os.Mkdir(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]string{
		"10-one.conflist": `{"cniVersion": "1.0.0", "name": "one", "plugins": [{"type": "bridge", "bridge": "one0", "isGateway": true,
			"ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.91.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
			{"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}]}`,
		"20-two.conflist": `{"cniVersion": "1.0.0", "name": "two", "plugins": [{"type": "ptp",
			"ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.92.0.0/24"}]]}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(strings.ReplaceAll(list, "DATA", data)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf(`
[network]
primary = %q
cidrs = ["10.85.0.0/24"]
[network.cni]
conf_dir = %q
bin_dirs = [%q]
`, primary, conf, bin), data
}

// links returns the IPv4 address of each link in a pod, by the link's name.
func (c *crib) links(id string) map[string]string {
	c.t.Helper()
	var list []struct {
		IfName   string
		AddrInfo []struct{ Family, Local string } `json:"addr_info"`
	}
	out := c.host("ip", "-n", filepath.Base(lab.Netns(id)), "-j", "addr")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		c.t.Fatal(err)
	}
	links := map[string]string{}
	for _, l := range list {
		for _, a := range l.AddrInfo {
			if a.Family == "inet" && l.IfName != "lo" {
				links[l.IfName] = a.Local
			}
		}
	}
	return links
}

func TestConflistsAndWhichOfThemAPodGets(t *testing.T) {
	for primary, want := range map[string]string{
		"builtin": "map[eth0:10.85.0.2 eth1:10.91.0.2 eth2:10.92.0.2]",
		"auto":    "map[eth0:10.91.0.2 eth1:10.92.0.2]",
		"two":     "map[eth0:10.92.0.2]",
	} {
		t.Run("network.primary = "+primary, func(t *testing.T) {
			config, data := conflists(t, primary)
			c := start(t, config)
			defer exec.Command("ip", "link", "del", "one0").Run() //nolint:errcheck // the plugin's bridge stays by design
			id, ips := c.pod(c.Pod("a"))
			if got := fmt.Sprint(c.links(id)); got != want {
				t.Errorf("the pod has %s, want %s", got, want)
			}
			if first := strings.TrimPrefix(strings.Fields(want)[0], "map[eth0:"); ips[0].String() != strings.TrimSuffix(first, "]") {
				t.Errorf("its address for the kubelet is %v", ips)
			}
			c.listen(lab.Netns(id), 80, "a")
			c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "a")

			// Restarted, with its conflists gone, it still can take the pod down.
			if err := errors.Join(c.Kill(), os.RemoveAll(filepath.Join(filepath.Dir(data), "net.d")), c.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "a")
			if err := c.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(data + "/*/10.*"); len(left) > 0 {
				t.Errorf("addresses still taken: %v", left)
			}
		})
	}
}

func TestResetGivesTheHostBack(t *testing.T) {
	sysctl := func(name string) string {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	names := []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/all/rp_filter"}
	before := map[string]string{}
	for _, name := range names {
		before[name] = sysctl(name)
	}
	t.Run("with pods that run", func(t *testing.T) {
		c := start(t, defaults) // whose leak check and Stop see to links, mounts, rules and files
		if sysctl("ipv4/ip_forward") != "1" || sysctl("ipv6/conf/all/forwarding") != "1" {
			t.Error("crib does not forward")
		}
		c.pod(c.Pod("a"))
		if out, err := c.Command(t.Context(), "reset").CombinedOutput(); err == nil || !strings.Contains(string(out), "another crib") {
			t.Errorf("reset beside the daemon: %s, %v", out, err)
		}
		if err := c.Terminate(); err != nil {
			t.Fatal(err)
		}
		c.host(filepath.Join(c.Bin, "crib"), c.Command(t.Context(), "reset").Args[1:]...)
		if got := c.host("ip", "-br", "link"); strings.Contains(got, "crib") {
			t.Errorf("links: %s", got)
		}
		if got := c.host("nft", "list", "tables"); got != "" {
			t.Errorf("tables: %s", got)
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range names {
		if after := sysctl(name); after != before[name] {
			t.Errorf("%s was %s and is %s", name, before[name], after)
		}
	}
}

func TestOneDaemonPerRoot(t *testing.T) {
	c := start(t, defaults)
	out, err := c.Command(t.Context(), "serve").CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("another crib (PID %d)", c.PID())) {
		t.Errorf("a second daemon: %s, %v", out, err)
	}
}

func TestSystemdIsToldWhenCribIsReady(t *testing.T) {
	nstest.Lab(t)
	path := filepath.Join(t.TempDir(), "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notify.Close() }()
	startWith(t, lab.Options{Config: defaults, Env: []string{"NOTIFY_SOCKET=" + path}})
	if err := notify.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := notify.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("told %q, %v", buf[:n], err)
	}
}

func TestSocketsAreRoots(t *testing.T) {
	start(t, defaults)
	for path, want := range map[string]os.FileMode{lab.Socket: 0o660, lab.State + "/admin.sock": 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestTheOperatorsCommands(t *testing.T) {
	c := start(t, defaults)
	id, _ := c.pod(c.Pod("a"))
	for _, check := range []struct {
		args []string
		want []string
	}{
		{[]string{"pods"}, []string{"default/a", "Ready", "10.85.0.2,fd85::2", id[:12]}},
		{[]string{"pods", "-o", "json"}, []string{id, `"timeline"`, `"10.85.0.2/24"`}},
		{[]string{"net"}, []string{"crib", "bridge", "10.85.0.0/24", "10.85.0.1", "252"}},
		{[]string{"config", "dump"}, []string{c.Dir + "/config.toml:", `"10.85.0.0/24"`, "--state"}},
		{[]string{"config", "check"}, []string{"good"}},
	} {
		out, err := c.Command(t.Context(), check.args...).CombinedOutput()
		for _, want := range check.want {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("crib %s: %v, no %q in\n%s", strings.Join(check.args, " "), err, want, out)
			}
		}
	}
}
