package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
)

// criPluginURI is what an operator disables.
const criPluginURI = "io.containerd.grpc.v1.cri"

// withContainerd starts a containerd of its own for the lab; without disabled it
// serves CRI.
func (l *lab) withContainerd(disabled ...string) {
	l.Helper()
	dir, err := os.MkdirTemp("/run", "c")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { l.must(os.RemoveAll(dir)) })
	l.cfg.Address = filepath.Join(dir, "c.sock")
	root := l.TempDir()
	l.theirs = []string{dir, root}
	// Else it makes its directories below /opt and /etc.
	config := fmt.Sprintf("version = 3\ndisabled_plugins = [%s]\n"+
		"[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n"+
		"[plugins.'io.containerd.internal.v1.opt']\npath = %q\n"+
		"[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = %q\n",
		quoted(disabled), filepath.Join(dir, "s"), filepath.Join(root, "opt"), filepath.Join(root, "net.d"))
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		l.Fatal(err)
	}
	l.daemon = []string{filepath.Join(os.Getenv(binEnv), "containerd"), "--config", filepath.Join(dir, "config.toml"),
		"--root", root, "--state", filepath.Join(dir, "state"), "--address", l.cfg.Address}
	l.stopDaemon = l.startContainerd()
	l.Cleanup(func() { l.stopDaemon() })
}

// startContainerd runs the lab's containerd until kill is called, and waits
// until it serves.
func (l *lab) startContainerd() (kill func()) {
	l.Helper()
	cmd := exec.Command(l.daemon[0], l.daemon[1:]...)
	cmd.Stdout, cmd.Stderr = l.log, l.log
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		l.must(cmd.Process.Kill())
		_ = cmd.Wait() // killed, as it says
	})
	c, err := client.New(l.cfg.Address, client.WithTimeout(patience))
	if err != nil {
		kill()
		l.Fatal(err)
	}
	defer func() { l.must(c.Close()) }()
	if serving, err := c.IsServing(l.Context()); err != nil || !serving {
		kill()
		l.Fatalf("IsServing() = %v, %v", serving, err)
	}
	return kill
}

func quoted(words []string) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return strings.Join(out, ", ")
}

func TestContainerdThatServesCRIIsRefused(t *testing.T) {
	l := newLab(t)
	l.withContainerd()
	_, err := Open(t.Context(), l.cfg)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "disabled_plugins") {
		t.Errorf("Open() = %v, want failed precondition and a remedy", err)
	}
}

func TestAbsentContainerdIsUnavailable(t *testing.T) {
	l := newLab(t)
	l.cfg.Address = filepath.Join(l.cfg.State, "nobody.sock")
	if _, err := Open(t.Context(), l.cfg); !errdefs.IsUnavailable(err) {
		t.Errorf("Open() = %v, want unavailable", err)
	}
}

func TestInitAndEngineOutliveAKilledContainerd(t *testing.T) {
	l := newLab(t)
	l.withContainerd(criPluginURI)
	e := l.open()
	pid := l.start(e, Init{})
	l.stopDaemon()
	if _, err := e.InitRunning(t.Context(), l.pod); !errdefs.IsUnavailable(err) {
		t.Errorf("InitRunning() = %v while containerd is away, want unavailable", err)
	}
	l.stopDaemon = l.startContainerd()
	// gRPC connects again on its own, when it next tries.
	c := e.client
	if serving, err := c.IsServing(t.Context()); err != nil || !serving {
		t.Fatalf("IsServing() = %v, %v", serving, err)
	}
	if again := l.start(e, Init{}); again != pid {
		t.Errorf("pid %d before, %d after", pid, again)
	}
	l.stop(e)
}
