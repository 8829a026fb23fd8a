package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/cmd/crib/config"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox/store"
)

func TestOpenRefusesTheStateOfADaemonWithAnotherRoot(t *testing.T) {
	nstest.Lab(t)
	cfg := testConfig(t)
	held, err := store.Lock(cfg.State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	for range 2 { // the first attempt gives all back
		_, err = Open(t.Context(), cfg, "1.2.3", slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "another crib (PID") || !strings.Contains(err.Error(), cfg.State) {
			t.Errorf("got %v", err)
		}
	}
	if got := names(t, cfg.State); !slices.Equal(got, []string{"LOCK"}) {
		t.Errorf("the other's state has %v", got)
	}
}

func TestRemoveStateLeavesWhatIsOthers(t *testing.T) {
	nstest.Lab(t)
	cfg := testConfig(t)
	cfg.Listen, cfg.Admin.Listen = filepath.Join(cfg.State, "crib.sock"), filepath.Join(cfg.State, "admin.sock")
	d := &Daemon{setup: setup{cfg: cfg}}
	for _, name := range []string{"pods/a/shm", "networks/crib", "engine", "cni", "others"} {
		if err := os.MkdirAll(filepath.Join(cfg.State, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stale(t, cfg.Listen)
	if err := d.removeState(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, cfg.State); !slices.Equal(got, []string{"others"}) {
		t.Errorf("left: %v", got)
	}
	if err := os.Remove(filepath.Join(cfg.State, "others")); err != nil {
		t.Fatal(err)
	}
	if err := d.removeState(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.State); !os.IsNotExist(err) {
		t.Errorf("an empty state directory stays: %v", err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestCAdvisorsSocketGivesEveryPodAnInit(t *testing.T) {
	for _, test := range []struct{ process, listen, want string }{
		{"auto", "", "auto"},
		{"auto", "/run/other.sock", "auto"},
		{"auto", config.ContainerdSocket, "always"},
		{"never", config.ContainerdSocket, "never"},
	} {
		d := &Daemon{}
		d.cfg.Sandbox.Process, d.cfg.Engine.Listen = test.process, test.listen
		if got := d.process(); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}
