package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	cmount "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// gc collects garbage and returns when that is done.
func (e *Engine) gc(ctx context.Context) error {
	ctx = inNamespace(ctx)
	lease, err := e.client.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		return err
	}
	return e.client.LeasesService().Delete(ctx, lease, leases.SynchronousDelete)
}

// readRoot makes a root of an image and checks that it has the file, and that
// nothing stays.
func (l *lab) readRoot(e *Engine, i *testImage, file string) {
	l.Helper()
	l.must(e.PrepareRoot(l.Context(), "reader", i.id(), netns.Users{}, func(root string) error {
		b, err := os.ReadFile(filepath.Join(root, file))
		if string(b) != file {
			l.Errorf("%s has %q", file, b)
		}
		return err
	}))
	l.must(e.RemoveRoot(l.Context(), "reader"))
}

// nothingStored checks that neither content nor snapshots are left.
func (l *lab) nothingStored(e *Engine) {
	l.Helper()
	ctx := inNamespace(l.Context())
	l.must(e.client.ContentStore().Walk(ctx, func(info content.Info) error {
		l.Errorf("content %s is left: %v", info.Digest, info.Labels)
		return nil
	}))
	l.must(e.client.SnapshotService(e.images.snap.name).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		l.Errorf("snapshot %s is left", info.Name)
		return nil
	}))
	if found, err := filepath.Glob(filepath.Join(l.cfg.State, "roots", "*")); err != nil || len(found) != 0 {
		l.Errorf("roots %v are left, %v", found, err)
	}
}

// onEachSnapshotter runs a test with overlayfs and where that does not work.
func onEachSnapshotter(t *testing.T, test func(l *lab, e *Engine, r *testRegistry)) {
	t.Run(overlayfs, func(t *testing.T) {
		l := newLab(t)
		mount(t, "tmpfs", l.cfg.Root, "")
		t.Cleanup(func() { l.must(detach(l.cfg.Root)) })
		e := l.open()
		if e.images.snap.name != overlayfs {
			t.Fatalf("snapshotter %s", e.images.snap.name)
		}
		test(l, e, newRegistry(t))
	})
	t.Run(native, func(t *testing.T) {
		l := newLab(t)
		// An overlay cannot be the upper directory of another.
		mountOverlay(t, t.TempDir(), l.cfg.Root)
		e := l.open()
		if e.images.snap.name != native {
			t.Fatalf("snapshotter %s", e.images.snap.name)
		}
		test(l, e, newRegistry(t))
	})
}

// mountOverlay mounts an overlay of directories in dir, until the test ends.
func mountOverlay(t *testing.T, dir, target string) {
	t.Helper()
	for _, name := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := cmount.Mount{Type: "overlay", Source: "overlay", Options: []string{
		"lowerdir=" + dir + "/lower", "upperdir=" + dir + "/upper", "workdir=" + dir + "/work",
	}}
	if err := m.Mount(target); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := detach(target); err != nil {
			t.Error(err)
		}
	})
}

// detach unmounts an engine's root. containerd leaves a descriptor there to the
// collector of garbage, with which it tried whether the file system has fs-verity.
func detach(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }

func unmountTest(dir string) error { return cmount.UnmountAll(dir, 0) }

func TestRootIsMadeOnceAndWritable(t *testing.T) {
	onEachSnapshotter(t, func(l *lab, e *Engine, r *testRegistry) {
		i := ourImage(l, "one")
		img := l.pull(e, r.push("a:1", i))
		for range 2 {
			l.must(e.PrepareRoot(l.Context(), "c1", img.ID, netns.Users{}, func(root string) error {
				f, err := os.OpenFile(filepath.Join(root, "mine"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return err
				}
				_, err = f.WriteString("x")
				return errors.Join(err, f.Close())
			}))
		}
		l.must(e.RemoveImage(l.Context(), img.ID)) // a container outlives its image
		l.must(e.gc(l.Context()))
		if ids, err := e.Roots(l.Context()); err != nil || !slices.Equal(ids, []string{"c1"}) {
			l.Errorf("Roots() = %v, %v", ids, err)
		}
		l.mountOnce(e, "c1", func(root string) {
			for name, want := range map[string]string{"mine": "xx", "one": "one", "second": "one", "third": "one"} {
				if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(b) != want {
					l.Errorf("%s = %q, %v", name, b, err)
				}
			}
		})
		for range 2 {
			l.must(e.RemoveRoot(l.Context(), "c1"))
		}
		l.must(e.gc(l.Context()))
		l.nothingStored(e)
	})
}

// mountOnce mounts a root as a task would.
func (l *lab) mountOnce(e *Engine, id string, look func(root string)) {
	l.Helper()
	mounts, err := e.images.rootMounts(l.Context(), id)
	if err != nil {
		l.Fatal(err)
	}
	if volatile := slices.Contains(mounts[0].Options, "volatile"); volatile != (e.images.snap.name == overlayfs) {
		l.Errorf("mounts %v", mounts)
	}
	dir := l.TempDir()
	if err := cmount.All(cmount.FromProto(mounts), dir); err != nil {
		l.Fatal(err)
	}
	look(dir)
	l.must(unmountTest(dir))
}

func TestRootThatACrashLeftMountedIsTakenOver(t *testing.T) {
	onEachSnapshotter(t, func(l *lab, e *Engine, r *testRegistry) {
		i := ourImage(l, "one")
		l.pull(e, r.push("a:1", i))
		l.must(e.PrepareRoot(l.Context(), "reader", i.id(), netns.Users{}, func(string) error { return nil }))
		left := e.images.rootDir("reader")
		l.must(os.MkdirAll(left, 0o700))
		mounts, err := e.client.SnapshotService(e.images.snap.name).Mounts(inNamespace(l.Context()), "reader")
		l.must(err)
		l.must(cmount.All(mounts, left))
		l.readRoot(e, i, "one")
		l.must(os.MkdirAll(left, 0o700))
		mount(t, "tmpfs", left, "")
		l.must(e.RemoveRoot(l.Context(), "reader"))
		l.must(e.RemoveImage(l.Context(), i.id()))
		l.nothingStored(e)
	})
}

func TestSnapshotThatACrashLeftWithoutARecordIsInNobodysWay(t *testing.T) {
	for _, when := range []string{"the first", "a later one"} {
		t.Run(when, func(t *testing.T) {
			l := newLab(t)
			r := newRegistry(t)
			i := ourImage(t, "one")
			ref := r.push("a:1", i)
			e, err := Open(t.Context(), l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if when != "the first" {
				l.pull(e, ref)
			}
			dir := e.images.snap.dir
			l.must(e.Close())
			for n := range 10 { // the next numbers
				l.must(os.MkdirAll(filepath.Join(dir, "snapshots", strconv.Itoa(n+1), "fs", "half"), 0o755))
			}
			e = l.open()
			l.pull(e, ref)
			l.readRoot(e, i, "one")
		})
	}
}

func TestFailedPreparationLeavesNothing(t *testing.T) {
	onEachSnapshotter(t, func(l *lab, e *Engine, r *testRegistry) {
		img := l.pull(e, r.push("a:1", ourImage(l, "one")))
		boom := errors.New("boom")
		err := e.PrepareRoot(l.Context(), "c1", img.ID, netns.Users{}, func(string) error { return boom })
		if !errors.Is(err, boom) {
			l.Errorf("PrepareRoot() = %v", err)
		}
		ctx, cancel := context.WithCancel(l.Context())
		err = e.PrepareRoot(ctx, "c2", img.ID, netns.Users{}, func(string) error { cancel(); return ctx.Err() })
		if !errors.Is(err, context.Canceled) {
			l.Errorf("PrepareRoot() = %v", err)
		}
		if err := e.PrepareRoot(l.Context(), "c3", "sha256:"+strings.Repeat("0", 64), netns.Users{}, nil); !errdefs.IsNotFound(err) {
			l.Errorf("PrepareRoot() = %v", err)
		}
		if ids, err := e.Roots(l.Context()); err != nil || len(ids) != 0 {
			l.Errorf("Roots() = %v, %v", ids, err)
		}
		l.must(e.RemoveImage(l.Context(), img.ID))
		l.nothingStored(e)
	})
}

func TestUsageIsThatOfImages(t *testing.T) {
	onEachSnapshotter(t, func(l *lab, e *Engine, r *testRegistry) {
		empty, err := e.ImageUsage(l.Context())
		if err != nil || empty.UsedBytes != 0 || empty.InodesUsed != 0 {
			l.Errorf("empty: %+v, %v", empty, err)
		}
		if st, err := os.Stat(empty.Mountpoint); err != nil || !st.IsDir() || !strings.HasPrefix(empty.Mountpoint, l.cfg.Root) {
			l.Errorf("mountpoint %s: %v", empty.Mountpoint, err)
		}
		img := l.pull(e, r.push("a:1", ourImage(l, "one")))
		for range 2 {
			used, err := e.ImageUsage(l.Context())
			if err != nil || used.UsedBytes < img.Size || used.InodesUsed < 6 {
				l.Errorf("usage %+v, %v", used, err)
			}
		}
		l.must(e.RemoveImage(l.Context(), img.ID))
		if used, err := e.ImageUsage(l.Context()); err != nil || used.UsedBytes != 0 {
			l.Errorf("after removal: %+v, %v", used, err)
		}
	})
}
