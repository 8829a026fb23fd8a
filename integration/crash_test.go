package integration

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// TestKillWithPodsUpAndPodsBeingStarted kills the daemon in the middle of twenty
// starts, at a different moment each time.
func TestKillWithPodsUpAndPodsBeingStarted(t *testing.T) {
	for _, after := range []int{1, 5, 12} {
		t.Run(fmt.Sprintf("when %d of 20 are started", after), func(t *testing.T) { killDuringStarts(t, after) })
	}
}

func killDuringStarts(t *testing.T, after int) {
	c := start(t, defaults)
	up := map[string][]netip.Addr{}
	for i := range 20 {
		cfg := c.Pod(fmt.Sprint("up", i))
		cfg.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: int32(8000 + i)}}
		id, ips := c.pod(cfg)
		up[id] = ips
		c.listen(lab.Netns(id), 80, id)
	}

	started := startAndKill(c, after)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	for id, ips := range up {
		now, err := c.IPs(t.Context(), id)
		if err != nil || !slices.Equal(now, ips) {
			t.Errorf("pod %s had %v and has %v, %v", id, ips, now, err)
		}
		c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), id)
	}
	for port := range 20 {
		if _, err := lab.Ask(t.Context(), lab.Host, netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", 8000+port))); err != nil {
			t.Errorf("host port %d: %v", 8000+port, err)
		}
	}
	c.consistent()
	for id := range started {
		if state := c.status(id).State; state != runtime.PodSandboxState_SANDBOX_READY {
			t.Errorf("pod %s, whose start was answered, is %s", id, state)
		}
	}
	for i := range 20 { // the kubelet's retries
		c.pod(c.Pod(fmt.Sprint("new", i)))
	}
	c.consistent()
}

// startAndKill starts twenty pods at once, kills the daemon when some of them are
// answered, and returns those.
func startAndKill(c *crib, after int) map[string]bool {
	var mu sync.Mutex
	started := map[string]bool{}
	kill := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id, err := c.Run(c.t.Context(), c.Pod(fmt.Sprint("new", i)))
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			started[id] = true
			if len(started) == after {
				close(kill)
			}
		})
	}
	<-kill
	if err := c.Kill(); err != nil {
		c.t.Fatal(err)
	}
	wg.Wait()
	return maps.Clone(started)
}

// consistent checks that what exists is that of the pods which are listed, and
// that no address is in two of them.
func (c *crib) consistent() {
	c.t.Helper()
	list, err := c.ListPodSandbox(c.t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	owners := map[netip.Addr]string{}
	pins := map[string]bool{}
	for _, pod := range list.Items {
		ips, err := c.IPs(c.t.Context(), pod.Id)
		if err != nil || len(ips) != 2 {
			c.t.Errorf("pod %s has %v, %v", pod.Metadata.Name, ips, err)
		}
		for _, ip := range ips {
			if other := owners[ip]; other != "" {
				c.t.Errorf("%s is of %s and of %s", ip, pod.Metadata.Name, other)
			}
			owners[ip] = pod.Metadata.Name
		}
		pins[lab.Netns(pod.Id)] = true
	}
	c.names("/run/netns", len(pins))
	c.names(lab.State+"/pods", len(pins))
	c.names(c.Dir+"/root/pods", len(pins))
	c.names(lab.State+"/networks/crib", 2*len(pins)+1) // and the lock
	// The kernel removes the links of a namespace in the background.
	links := 0
	if !c.eventually(func() bool {
		links = strings.Count(c.host("ip", "-o", "link", "show", "type", "veth"), "\n")
		return links == len(pins)
	}) {
		c.t.Errorf("%d veths for %d pods", links, len(pins))
	}
}

// eventually waits up to ten seconds for a condition.
func (c *crib) eventually(condition func() bool) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		if condition() {
			return true
		}
		<-tick.C
	}
	return false
}

// names checks how many names a directory has, but for host-local's last_reserved_ip.
func (c *crib) names(dir string, want int) {
	c.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "last_reserved_ip") {
			names = append(names, entry.Name())
		}
	}
	if len(names) != want {
		c.t.Errorf("%s has %d names, want %d: %v", dir, len(names), want, names)
	}
}

func TestTerminateLeavesPodsAlone(t *testing.T) {
	c := start(t, defaults)
	id, ips := c.pod(c.Pod("a"))
	c.listen(lab.Netns(id), 80, "a")
	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
	c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "a")
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "a")
	if state := c.status(id).State; state != runtime.PodSandboxState_SANDBOX_READY {
		t.Errorf("after a restart the pod is %s", state)
	}
}

func TestADamagedRecordHarmsNoOtherPod(t *testing.T) {
	c := start(t, defaults)
	good, _ := c.pod(c.Pod("good"))
	bad, _ := c.pod(c.Pod("bad"))
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Dir+"/root/pods/"+bad+"/pod.json", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := c.status(good).State; state != runtime.PodSandboxState_SANDBOX_READY {
		t.Errorf("the other pod is %s", state)
	}
	c.consistent()
	if _, err := os.Stat(lab.Netns(bad)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged pod's namespace is still there: %v", err)
	}
}
