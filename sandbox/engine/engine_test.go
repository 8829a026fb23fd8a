package engine

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
)

func TestEngineOpensAgainInTheSameProcess(t *testing.T) {
	l := newLab(t)
	for range 3 {
		e, err := Open(t.Context(), l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.must(e.Close())
		l.must(e.Close())
	}
}

func TestTwoEnginesRunAtOnce(t *testing.T) {
	a, b := newLab(t), newLab(t)
	b.pod, b.cg = a.pod, a.cg+"-b" // the same pod in both
	ea, eb := a.open(), b.open()
	if pa, pb := a.start(ea, Init{}), b.start(eb, Init{}); pa == pb {
		t.Errorf("both have process %d", pa)
	}
	a.must(ea.StopInit(t.Context(), a.pod))
	if running, err := eb.InitRunning(t.Context(), b.pod); err != nil || !running {
		t.Errorf("the other engine's init: running = %v, %v", running, err)
	}
	b.stop(eb)
}

func TestSecondEngineOnTheSameRootIsRefused(t *testing.T) {
	l := newLab(t)
	l.open()
	other := l.cfg
	other.State = l.cfg.State + "x"
	t.Cleanup(func() { l.must(os.RemoveAll(other.State)) })
	if _, err := Open(t.Context(), other); !errdefs.IsUnavailable(err) {
		t.Errorf("Open() = %v, want unavailable", err)
	}
}

func TestListenServesTheContainerdAPIToRootOnly(t *testing.T) {
	l := newLab(t)
	l.cfg.Listen = filepath.Join(l.cfg.State, "public", "containerd.sock")
	// What a crash leaves behind is in nobody's way.
	if err := os.MkdirAll(filepath.Dir(l.cfg.Listen), 0o700); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.cfg.Listen})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	l.must(stale.Close())

	e := l.open()
	st, err := os.Stat(l.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v", st.Mode())
	}
	c, err := client.New(l.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.must(c.Close()) }()
	v, err := c.Version(t.Context())
	if err != nil || v.Version != e.Info().Containerd {
		t.Errorf("Version() = %v, %v, want %s", v, err, e.Info().Containerd)
	}
}

func TestAnExternalContainerdServesItsAPIItself(t *testing.T) {
	if _, err := (&Engine{cfg: Config{Address: "/a"}}).API(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("API() = %v, want failed precondition", err)
	}
}

// TestBundlesThatACrashLeftAwayComeBack: Close takes them away for a moment.
func TestBundlesThatACrashLeftAwayComeBack(t *testing.T) {
	l := newLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	bundles := e.server.bundles()
	l.must(e.Close())
	l.must(os.Rename(bundles, bundles+awaySuffix))
	e = l.open()
	if again := l.start(e, Init{}); again != pid {
		t.Errorf("pid %d before, %d after", pid, again)
	}
	l.stop(e)
}

func TestUnusableConfigIsRefused(t *testing.T) {
	good := Config{Root: "/r", State: "/s", Shim: "/shim"}
	for name, spoil := range map[string]func(*Config){
		"relative root":   func(c *Config) { c.Root = "r" },
		"no state":        func(c *Config) { c.State = "" },
		"long state":      func(c *Config) { c.State = "/" + strings.Repeat("s", maxState) },
		"relative shim":   func(c *Config) { c.Shim = "crib-shim" },
		"relative init":   func(c *Config) { c.Init = "crib-init" },
		"listen for them": func(c *Config) { c.Address, c.Listen = "/a", "/l" },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			spoil(&c)
			if _, err := Open(t.Context(), c); !errdefs.IsInvalidArgument(err) {
				t.Errorf("Open() = %v, want invalid argument", err)
			}
		})
	}
}

func TestMissingShimIsRefused(t *testing.T) {
	l := newLab(t)
	l.cfg.Shim = "/nonexistent/crib-shim"
	if _, err := Open(t.Context(), l.cfg); err == nil || !strings.Contains(err.Error(), l.cfg.Shim) {
		t.Errorf("Open() = %v", err)
	}
}
