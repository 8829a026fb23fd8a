package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox/image"
)

func TestImagesAreMountedReadOnlyAsVolumes(t *testing.T) {
	onEachEngine(t, testImagesAreMountedReadOnlyAsVolumes)
}

func testImagesAreMountedReadOnlyAsVolumes(l *lab) {
	e, r := l.open(), newRegistry(l)
	i := ourImage(l, "one")
	if _, err := e.Pull(l.Context(), r.push("a:1", i), image.Auth{}); err != nil {
		l.Fatal(err)
	}
	for n := range 2 {
		for range 2 { // a retry
			dir, err := e.MountImage(l.Context(), "c1", n, i.id(), netns.Users{})
			l.must(err)
			if b, err := os.ReadFile(filepath.Join(dir, "one")); err != nil || string(b) != "one" {
				l.Errorf("volume %d has %q, %v", n, b, err)
			}
			if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err == nil {
				l.Errorf("volume %d is writable", n)
			}
		}
	}
	if ids, err := e.Roots(l.Context()); err != nil || !slices.Equal(slices.Compact(ids), []string{"c1"}) {
		l.Errorf("Roots() = %v, %v", ids, err)
	}
	// As after a reboot: the snapshots are there, the mounts are not.
	l.must(unix.Unmount(filepath.Join(l.cfg.State, "volumes/c1/0"), 0))
	for range 2 {
		l.must(e.RemoveRoot(l.Context(), "c1"))
	}
	if left, _ := filepath.Glob(filepath.Join(l.cfg.State, "volumes/*")); len(left) > 0 {
		l.Errorf("left: %v", left)
	}
	if ids, err := e.Roots(l.Context()); err != nil || len(ids) > 0 {
		l.Errorf("Roots() = %v, %v after the removal", ids, err)
	}
	if _, err := e.MountImage(l.Context(), "c1", 0, "sha256:"+string(make([]byte, 64)), netns.Users{}); err == nil {
		l.Error("an unknown image was mounted")
	}
}
