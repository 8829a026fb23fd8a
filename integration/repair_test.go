package integration

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network"
)

// repaired returns how often the daemon says that it repaired each kind of thing.
func (c *crib) repaired() map[string]int {
	c.t.Helper()
	args := c.Command(c.t.Context(), "net", "-o", "json").Args
	var networks []struct{ Repaired map[string]int }
	if err := json.Unmarshal([]byte(c.host(args[0], args[1:]...)), &networks); err != nil {
		c.t.Fatal(err)
	}
	return networks[0].Repaired
}

func TestWhatOthersBreakOfTheNetworkIsMended(t *testing.T) {
	c := start(t, defaults)
	cfg := c.Pod("one")
	cfg.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: 8080}}
	one, ips := c.pod(cfg)
	two, _ := c.pod(c.Pod("two"))
	c.listen(lab.Netns(one), 80, "one")
	flows := func() bool {
		for _, q := range []struct{ from, to string }{
			{lab.Host, ips[0].String() + ":80"}, {lab.Host, "127.0.0.1:8080"},
			{lab.Netns(two), ips[0].String() + ":80"}, {lab.Netns(two), fmt.Sprintf("[%s]:80", ips[1])},
		} {
			if got, err := lab.Ask(t.Context(), q.from, netip.MustParseAddrPort(q.to)); err != nil || got != "one" {
				return false
			}
		}
		return true
	}
	link := network.HostLinkName(one, "eth0")
	for _, damage := range []struct {
		kind string
		args []string
	}{
		{"table", []string{"nft", "flush", "ruleset"}},
		{"bridge", []string{"ip", "link", "del", "crib0"}},
		{"link", []string{"ip", "link", "del", link}},
		{"pod", []string{"nsenter", "--net=" + lab.Netns(one), "ip", "addr", "flush", "dev", "eth0"}},
		{"sysctl", []string{"sysctl", "-qw", "net.ipv4.ip_forward=0"}},
	} {
		before := c.repaired()[damage.kind]
		c.host(damage.args[0], damage.args[1:]...)
		if !c.eventually(func() bool { return c.repaired()[damage.kind] > before && flows() }) {
			t.Errorf("%q is not mended: %v", damage.args, c.repaired())
		}
	}
}

func TestAPinIsMadeAgainWhileAContainerLives(t *testing.T) {
	c := startWithImage(t)
	cfg := c.Pod("one")
	id, _ := c.pod(cfg)
	c.launch(id, cfg, c.Container("main", "sleep", "1000"))
	empty, _ := c.pod(c.Pod("empty"))
	for _, pod := range []string{id, empty} {
		if err := unix.Unmount(lab.Netns(pod), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	if !c.eventually(func() bool { return c.status(empty).State == runtime.PodSandboxState_SANDBOX_NOTREADY }) {
		t.Error("a pod whose namespace is gone is ready")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(lab.Netns(id), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		t.Errorf("the pin is not there again: %v", err)
	}
	if state := c.status(id).State; state != runtime.PodSandboxState_SANDBOX_READY {
		t.Errorf("the pod with a container is %s", state)
	}
	if _, err := os.Stat(lab.Netns(id)); err != nil {
		t.Error(err)
	}
}
