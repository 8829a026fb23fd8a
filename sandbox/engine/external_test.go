package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

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
	config := fmt.Sprintf("version = 3\ndisabled_plugins = [%s]\n"+
		"[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n", quoted(disabled), filepath.Join(dir, "s"))
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(os.Getenv(binEnv), "containerd"), "--config", filepath.Join(dir, "config.toml"),
		"--root", root, "--state", filepath.Join(dir, "state"), "--address", l.cfg.Address)
	cmd.Stdout, cmd.Stderr = l.log, l.log
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		l.must(cmd.Process.Signal(unix.SIGTERM))
		_ = cmd.Wait() // how it ends does not matter
	})
	c, err := client.New(l.cfg.Address, client.WithTimeout(patience))
	if err != nil {
		l.Fatal(err)
	}
	defer func() { l.must(c.Close()) }()
	if serving, err := c.IsServing(l.Context()); err != nil || !serving {
		l.Fatalf("IsServing() = %v, %v", serving, err)
	}
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
