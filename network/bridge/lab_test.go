package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/nat"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/vishvananda/netlink"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

// lab is a node with the network under test.
type lab struct {
	t     testing.TB
	dir   string
	cfg   Config
	table *nat.Table
	n     *Network
}

// newLab makes a node whose network has these ranges, and takes it down at the end.
func newLab(t testing.TB, cidrs ...string) *lab {
	t.Helper()
	nstest.Lab(t)
	dir := t.TempDir()
	l := &lab{t: t, dir: dir, cfg: Config{
		Name: "crib", Link: "crib0", Dir: filepath.Join(dir, "networks", "crib"),
		Sysctls: filepath.Join(dir, "sysctls.json"), Log: slog.New(slog.NewTextHandler(logTo{t}, nil)),
	}}
	var err error
	l.table, err = nat.Open(nat.Config{Bridge: "crib0", AntiSpoofing: true, LetThrough: true, Log: l.cfg.Log})
	must(t, err)
	l.n, err = Open(l.cfg, l.table)
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, l.n.Reset(ctx))
		must(t, l.table.Delete(ctx))
		must(t, l.table.Close())
	})
	must(t, l.n.Restore(t.Context(), nil))
	must(t, l.n.SetCIDRs(t.Context(), prefixes(cidrs...)))
	return l
}

// logTo writes the log to a test's.
type logTo struct{ t testing.TB }

func (l logTo) Write(line []byte) (int, error) {
	if _, bench := l.t.(*testing.B); !bench {
		l.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// reopen is a restart of the daemon: only the kernel and the files stay.
func (l *lab) reopen(held ...network.Held) {
	l.t.Helper()
	must(l.t, l.table.Close())
	var err error
	l.table, err = nat.Open(nat.Config{Bridge: "crib0", AntiSpoofing: true, LetThrough: true, Log: l.cfg.Log})
	must(l.t, err)
	cidrs, _ := l.n.mem.ranges()
	l.n, err = Open(l.cfg, l.table)
	must(l.t, err)
	must(l.t, l.n.SetCIDRs(l.t.Context(), cidrs))
	must(l.t, l.n.Restore(l.t.Context(), held))
}

// newPod makes a pod's namespace, and detaches the pod at the end.
func (l *lab) newPod(name string, ports ...network.PortMapping) network.Pod {
	l.t.Helper()
	sum := sha256.Sum256([]byte(name))
	pod := network.Pod{
		ID: hex.EncodeToString(sum[:]), Namespace: "default", Name: name,
		Netns: filepath.Join(l.dir, name), Ports: ports,
	}
	pins, err := netns.Create(l.t.Context(), netns.Spec{Net: pod.Netns})
	must(l.t, err)
	l.t.Cleanup(func() {
		l.detach(pod)
		must(l.t, netns.Remove(pins))
	})
	return pod
}

// detach detaches a pod by the attachment that a record would name.
func (l *lab) detach(pod network.Pod) {
	l.t.Helper()
	att := network.Attachment{Driver: Driver, Network: "crib", Interface: "eth0", Addresses: l.n.mem.all()[pod.ID].addrs}
	must(l.t, l.n.Detach(l.t.Context(), pod, []network.Attachment{att}))
}

// noSave is for attachments that are not to change.
func (l *lab) noSave([]network.Attachment) error {
	l.t.Error("Save was called")
	return nil
}

// attach plans and attaches a pod.
func (l *lab) attach(pod network.Pod) []network.Attachment {
	l.t.Helper()
	atts, err := l.n.Plan(pod, 0)
	must(l.t, err)
	atts, err = l.n.Attach(l.t.Context(), pod, atts, l.noSave)
	must(l.t, err)
	return atts
}

// run makes a pod that is attached.
func (l *lab) run(name string, ports ...network.PortMapping) (network.Pod, []network.Attachment) {
	l.t.Helper()
	pod := l.newPod(name, ports...)
	return pod, l.attach(pod)
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prefixes parses.
func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// inside runs fn in a pod's namespace.
func inside(t testing.TB, pod network.Pod, fn func() error) {
	t.Helper()
	must(t, netns.Do(pod.Netns, fn))
}

// listen answers connections to the address in a pod, or on the host with a zero pod.
func listen(t testing.TB, pod network.Pod, addr string) {
	t.Helper()
	open := func() error {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	}
	if pod.Netns == "" {
		must(t, open())
		return
	}
	inside(t, pod, open)
}

// reaches tells whether a connection from a pod, or from the host, is answered.
func reaches(pod network.Pod, addr string) error {
	dial := func() error {
		c, err := net.DialTimeout("tcp", addr, 3*time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if pod.Netns == "" {
		return dial()
	}
	return netns.Do(pod.Netns, dial)
}

// at joins an address and a port.
func at(addr netip.Addr, port int) string {
	return netip.AddrPortFrom(addr, uint16(port)).String()
}

// ip returns what ip(8) prints, in a pod or on the host.
func ip(t testing.TB, pod network.Pod, args ...string) string {
	t.Helper()
	name, all := "ip", args
	if pod.Netns != "" {
		name, all = "nsenter", append([]string{"--net=" + pod.Netns, "ip"}, args...)
	}
	out, err := exec.Command(name, all...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, all, err, out)
	}
	return string(out)
}

// sysctl reads a value, in a pod or on the host.
func sysctl(t testing.TB, pod network.Pod, path string) string {
	t.Helper()
	var value string
	read := func() (err error) {
		value, err = setting{path: path}.current()
		return err
	}
	if pod.Netns == "" {
		must(t, read())
		return value
	}
	inside(t, pod, read)
	return value
}

// linkThere reports whether the host has a link.
func linkThere(t testing.TB, name string) bool {
	t.Helper()
	_, err := netlink.LinkByName(name)
	if err != nil && !isGone(err) {
		t.Fatal(err)
	}
	return err == nil
}

// eventually waits for what the kernel or a goroutine does in the background.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("waited in vain until ", what)
		}
	}
}

// serve runs Serve until the end of the test.
func (l *lab) serve() {
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error)
	go func() { ended <- l.n.Serve(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		must(l.t, <-ended)
	})
}

// name numbers pods.
func name(i int) string { return fmt.Sprintf("pod-%d", i) }
