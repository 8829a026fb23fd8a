package integration

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

// binEnv names the directory of the built programs. Without it they are built.
const binEnv = "CRIB_BIN"

// ctrEnv names the ctr of the containerd in go.mod, which TestMain builds.
const ctrEnv = "CRIB_TEST_CTR"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() || os.Geteuid() != 0 {
		return m.Run()
	}
	if os.Getenv(ctrEnv) == "" {
		dir, err := os.MkdirTemp("", "crib-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	status, done := lab.Private()
	if done {
		return status
	}
	nstest.Entered()
	return m.Run()
}

// build builds the programs of the tests before they enter namespaces without a
// network. ctr needs modules that we do not, so it gets a copy of go.mod.
func build(dir string) error {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	commands := [][]string{{"-mod=mod", "-modfile=" + filepath.Join(dir, "go.mod"), "-o", dir + "/", "github.com/containerd/containerd/v2/cmd/ctr"}}
	if os.Getenv(binEnv) == "" {
		commands = append(commands, []string{"-o", dir + "/", "../cmd/..."})
		_ = os.Setenv(binEnv, dir)
	}
	for _, args := range commands {
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-ldflags=-s -w"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", args[len(args)-1], err, out)
		}
	}
	return os.Setenv(ctrEnv, filepath.Join(dir, "ctr"))
}

// defaults is the configuration of most tests: both families, no conflists.
const defaults = `
[log]
level = "debug"
[network]
primary = "builtin"
cidrs = ["10.85.0.0/24", "fd85::/64"]
[network.cni]
conf_dir = "/run/no-conflists"
`

// crib is a daemon of a test, and the pods that it has.
type crib struct {
	*lab.Crib
	t *testing.T
}

// start starts crib for a test. At its end pods and daemon are gone, and so must
// be everything that they had.
func start(t *testing.T, config string) *crib {
	t.Helper()
	nstest.Lab(t)
	return startWith(t, lab.Options{Config: config})
}

func startWith(t *testing.T, o lab.Options) *crib {
	t.Helper()
	o.Bin = os.Getenv(binEnv)
	c, err := lab.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(c.LogFile())
			t.Logf("crib's log:\n%s", tail(string(text), 60))
		}
		if err := c.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(lab.State); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", lab.State, err)
		}
	})
	return &crib{c, t}
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// pod runs a pod and returns its id and addresses.
func (c *crib) pod(cfg *runtime.PodSandboxConfig) (string, []netip.Addr) {
	c.t.Helper()
	id, err := c.Run(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ips, err := c.IPs(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return id, ips
}

func (c *crib) status(id string) *runtime.PodSandboxStatus {
	c.t.Helper()
	resp, err := c.PodSandboxStatus(c.t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Status
}

// condition returns one of the runtime's conditions.
func (c *crib) condition(kind string) *runtime.RuntimeCondition {
	c.t.Helper()
	resp, err := c.Status(c.t.Context(), &runtime.StatusRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, condition := range resp.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	c.t.Fatalf("no condition %s in %v", kind, resp)
	return nil
}

// answers checks that a server called name answers at an address.
func (c *crib) answers(from string, to string, name string) {
	c.t.Helper()
	got, err := lab.Ask(c.t.Context(), from, netip.MustParseAddrPort(to))
	if err != nil || got != name {
		c.t.Errorf("%s asked from %q: %q, %v; want %q", to, from, got, err, name)
	}
}

// refuses checks that nobody answers at an address.
func (c *crib) refuses(from string, to string) {
	c.t.Helper()
	if got, err := lab.Ask(c.t.Context(), from, netip.MustParseAddrPort(to)); err == nil {
		c.t.Errorf("%s asked from %q answers %q", to, from, got)
	}
}

// listen starts a server in a pod until the test ends.
func (c *crib) listen(ns string, port uint16, name string) {
	c.t.Helper()
	s, err := lab.Listen(ns, port, name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = s.Close() })
}

// host runs a command in the lab and returns what it prints.
func (c *crib) host(name string, args ...string) string {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// mountsOf returns the mount points below a directory.
func mountsOf(t *testing.T, dir string) []string {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if point := strings.Fields(lines.Text())[4]; strings.HasPrefix(point, filepath.Clean(dir)+"/") {
			found = append(found, point)
		}
	}
	return found
}
