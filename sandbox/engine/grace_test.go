package engine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestTheDaemonStaysInItsCgroup(t *testing.T) {
	before := readText(t, "/proc/self/cgroup")
	g := grace{log: slog.New(slog.DiscardHandler)}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 10 {
				g.begin()()
			}
		})
	}
	group.Wait()
	if g.users != 0 {
		t.Errorf("%d users are left", g.users)
	}
	select {
	case <-g.done:
	default:
		t.Error("somebody still writes after the last user has left")
	}
	if after := readText(t, "/proc/self/cgroup"); after != before {
		t.Errorf("the cgroups were\n%sand are\n%s", before, after)
	}
}

func TestTheDaemonsCgroupIsFoundInAnyHierarchy(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"system.slice/crib.service", "cpu,cpuacct/a", "systemd/b:c"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "cgroup.procs"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for self, want := range map[string]string{
		"0::/system.slice/crib.service\n":  "system.slice/crib.service",
		"4:memory:/x\n3:cpu,cpuacct:/a\n":  "cpu,cpuacct/a",
		"1:name=systemd:/b:c\n0::/gone\n":  "systemd/b:c",
		"4:memory:/x\nnonsense\n\n0::/y\n": "",
	} {
		path := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(path, []byte(self), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openOwnCgroup(path, root)
		switch {
		case want == "" && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%q: %v, want that there is none", self, err)
		case want != "" && (err != nil || f.Name() != filepath.Join(root, want, "cgroup.procs")):
			t.Errorf("%q: %v, %v, want %s", self, f, err, want)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
