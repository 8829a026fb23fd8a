package cni_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
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
	"github.com/crib-runtime/crib/network/cni"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

// pluginsEnv names the directory of the real plugins to the binary that runs in
// the private namespaces.
const pluginsEnv = "CRIB_TEST_CNI_PLUGINS"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if os.Getenv(killedEnv) != "" {
		return m.Run() // in the namespaces of the test that started it
	}
	if os.Getenv(pluginsEnv) != "" || testing.Short() || os.Geteuid() != 0 {
		return nstest.Main(m)
	}
	dir, err := os.MkdirTemp("", "plugins")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the plugins:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_ = os.Setenv(pluginsEnv, dir)
	return nstest.Main(m)
}

// build compiles the plugins, in the module that names their release.
func build(dir string) error {
	cmd := exec.Command("go", "build", "-C", "testdata/plugins", "-o", dir+"/", "tool")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// node is a machine with a CNI directory, plugins and an address store.
type node struct {
	t                      *testing.T
	conf, bin, cache, data string
	log                    string // what the scripts wrote
}

// newNode also checks that the test leaves nothing behind.
func newNode(t *testing.T) *node {
	t.Helper()
	nstest.Lab(t)
	dir := t.TempDir()
	n := &node{
		t: t, conf: filepath.Join(dir, "net.d"), bin: filepath.Join(dir, "bin"),
		cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log"),
	}
	for _, d := range []string{n.conf, n.bin} {
		n.must(os.Mkdir(d, 0o755))
	}
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// open loads the networks with the node's directories.
func (n *node) open(change ...func(*cni.Config)) *cni.Networks {
	n.t.Helper()
	cfg := cni.Config{
		ConfDir: n.conf, BinDirs: []string{n.bin, os.Getenv(pluginsEnv)}, CacheDir: n.cache,
		Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	networks, err := cni.Open(cfg)
	n.must(err)
	return networks
}

// write puts a file into the CNI directory; DATA in it is the address store.
func (n *node) write(name, text string) {
	n.t.Helper()
	n.must(os.WriteFile(filepath.Join(n.conf, name), []byte(strings.ReplaceAll(text, "DATA", n.data)), 0o644))
}

// script installs a plugin of sh. It appends its verb and interface to the log.
func (n *node) script(name, body string) {
	n.t.Helper()
	text := "#!/bin/sh\nLOG=" + n.log + "\necho " + name + " $CNI_COMMAND $CNI_IFNAME >>$LOG\n" + body + "\n"
	n.must(os.WriteFile(filepath.Join(n.bin, name), []byte(text), 0o755))
}

// calls returns the verbs that scripts were run with.
func (n *node) calls() []string {
	n.t.Helper()
	raw, err := os.ReadFile(n.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// pod returns a pod with a namespace that is removed at the end of the test.
func (n *node) pod(name string) network.Pod {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), name)
	pins, err := netns.Create(n.t.Context(), netns.Spec{Net: path})
	n.must(err)
	n.t.Cleanup(func() { _ = netns.Remove(pins) })
	return network.Pod{
		ID: strings.Repeat("0", 60-len(name)) + "beef" + name, Namespace: "default", Name: name, UID: "uid-" + name,
		Netns: path,
	}
}

// attach plans and attaches, and returns the attachments.
func (n *node) attach(networks *cni.Networks, pod network.Pod) []network.Attachment {
	n.t.Helper()
	planned, err := networks.Plan(pod, 0)
	n.must(err)
	attached, err := networks.Attach(n.t.Context(), pod, planned, keep)
	n.must(err)
	return attached
}

// keep is a Save that always works.
func keep([]network.Attachment) error { return nil }

// reserved lists the addresses that host-local has given out.
func (n *node) reserved() []string {
	n.t.Helper()
	var taken []string
	err := filepath.WalkDir(n.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if _, err := netip.ParseAddr(d.Name()); err == nil {
			taken = append(taken, d.Name())
		}
		return nil
	})
	n.must(err)
	return taken
}

// command runs a program and returns what it prints.
func (n *node) command(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// shared removes at the end what plugins make once for a node and never remove:
// bridges, and the tables of nft.
func (n *node) shared(bridges ...string) {
	n.t.Cleanup(func() {
		for _, b := range bridges {
			n.command("ip", "link", "del", b)
		}
		n.command("nft", "flush", "ruleset")
	})
}

// inside returns the addresses of a pod's interface, and its MAC.
func (n *node) inside(pod network.Pod, ifname string) (addresses []string, mac string) {
	n.t.Helper()
	n.must(netns.Do(pod.Netns, func() error {
		link, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		mac = link.HardwareAddr.String()
		list, err := link.Addrs()
		for _, a := range list {
			if p := netip.MustParsePrefix(a.String()); !p.Addr().IsLinkLocalUnicast() {
				addresses = append(addresses, p.String())
			}
		}
		return err
	}))
	return addresses, mac
}

const blue = `{"cniVersion": "1.0.0", "name": "blue", "plugins": [
  {"type": "bridge", "bridge": "blue0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
   "ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.88.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}
]}`

const green = `{"cniVersion": "0.4.0", "name": "green", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.89.0.0/24"}]]}}
]}`

// spied is a network of one script.
const spied = `{"cniVersion": "1.1.0", "name": "NAME", "plugins": [{"type": "TYPE"}]}`

func spy(name, plugin string) string {
	return strings.NewReplacer("NAME", name, "TYPE", plugin).Replace(spied)
}

// answer is a script's body that succeeds at every verb.
const answer = `[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/16", "gateway": "10.9.0.1"}]}'`
