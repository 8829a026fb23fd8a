package integration

import (
	"os/exec"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network"
)

// undo runs a command when the test ends.
func undo(t *testing.T, name string, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v: %s", name, args, err, out)
		}
	})
}

// tell runs a command of crib and returns what it prints, and whether it succeeded.
func (c *crib) tell(args ...string) (string, bool) {
	c.t.Helper()
	cmd := c.Command(c.t.Context(), args...)
	if args[0] == "__complete" { // what is completed comes last
		cmd.Args = append(cmd.Args[:1], args...)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// tells checks that a command succeeds, or not, and prints all of some texts.
func (c *crib) tells(args string, succeeds bool, texts ...string) {
	c.t.Helper()
	out, ok := c.tell(strings.Fields(args)...)
	for _, text := range texts {
		if !strings.Contains(out, text) {
			c.t.Errorf("crib %s lacks %q", args, text)
		}
	}
	if ok != succeeds {
		c.t.Errorf("crib %s succeeds: %t, want %t", args, ok, succeeds)
	}
	if c.t.Failed() {
		c.t.Logf("crib %s:\n%s", args, out)
	}
}

func TestNetShowsAPodsLinksAsTheKernelHasThem(t *testing.T) {
	c := start(t, defaults)
	pod := c.Pod("a")
	pod.PortMappings = []*runtime.PortMapping{{HostPort: 18080, ContainerPort: 80}}
	id, ips := c.pod(pod)
	host := network.HostLinkName(id, "eth0")
	c.tells("net show default/a", true, id, ips[0].String()+"/24", ips[1].String(), host+", ", "port of crib0",
		"default via 10.85.0.1 dev eth0", "default via fd85::1 dev eth0", "tcp *:18080 to 80", "namespaces ", "====")
	c.tells("net show "+id[:8]+" -o yaml", true, "hostInterface: "+host, "netns: "+lab.Netns(id))
	c.tells("net show nobody", false, `pod "nobody" is not known`)
	c.tells("net map", true, "10.85.0.0/24 of network crib: 1 used", "-G#...", "fd85::/64")
	c.tells("net", true, "crib0", "inet crib", "10.85.0.0/24")
	flags := strings.Join(c.Command(t.Context()).Args[1:], " ")
	c.tells("__complete net show "+flags+" def", true, "default/a")
}

// TestNetCheckNamesWhatIsOthers has a chain that is not ours to mend.
func TestNetCheckNamesWhatIsOthers(t *testing.T) {
	c := start(t, defaults)
	c.pod(c.Pod("a"))
	c.tells("net check", true, "all is as the records say")
	c.host("nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }")
	undo(t, "nft", "delete table ip filter")
	c.tells("net check", false, "firewall", "ip filter FORWARD")
	c.tells("net trace default/a 192.0.2.1", true, "10.85.0.1") // as far as it goes
}

func TestNetCheckRepairsOnDemand(t *testing.T) {
	c := start(t, defaults)
	id, ips := c.pod(c.Pod("a"))
	c.listen(lab.Netns(id), 80, "a")
	c.host("ip", "link", "set", network.HostLinkName(id, "eth0"), "down")
	c.host("ip", "link", "set", "crib0", "down")
	c.tells("net check --repair", true, "all is as the records say")
	c.answers(lab.Host, ips[0].String()+":80", "a")
	c.host("ip", "link", "delete", network.HostLinkName(id, "eth0"))
	c.tells("net check --repair", true, "all is as the records say")
	c.answers(lab.Host, ips[0].String()+":80", "a")
}

func TestNetTraceFollowsAPacket(t *testing.T) {
	c := start(t, defaults)
	pod := c.Pod("a")
	pod.PortMappings = []*runtime.PortMapping{{HostPort: 18080, ContainerPort: 80}}
	a, ips := c.pod(pod)
	b, _ := c.pod(c.Pod("b"))
	c.listen(lab.Netns(a), 80, "a")
	c.answers(lab.Netns(b), ips[0].String()+":80", "a")
	c.tells("net trace default/b "+ips[0].String()+":80", true, "route 10.85.0.0/24 dev eth0", "pod default/a has "+ips[0].String(), network.HostLinkName(a, "eth0"))
	c.tells("net trace default/b 10.85.0.1:18080", true, "host port tcp 18080 leads to pod default/a port 80")
	c.tells("net trace default/b 192.0.2.1", true, "default via 10.85.0.1", "STOPS: asking for the route to 192.0.2.1") // the lab has no way out
	c.host("ip", "route", "add", "192.0.2.0/24", "dev", "lo")
	undo(t, "ip", "route", "del", "192.0.2.0/24", "dev", "lo")
	c.tells("net trace default/b 192.0.2.1", true, "route 192.0.2.0/24 dev lo", "masqueraded")
	c.tells("net trace default/b here", false, "want an address")
}
