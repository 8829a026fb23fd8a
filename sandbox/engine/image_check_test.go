package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/crib-runtime/crib/network/netns"
)

// truncate, vanish and flip damage a file.
func truncate(path string) error { return os.Truncate(path, 3) }

func vanish(path string) error { return os.Remove(path) }

func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o400)
}

// parts are the pieces of an image that a disk can damage.
func (i *testImage) parts() map[string]digest.Digest {
	return map[string]digest.Digest{"manifest": i.target.Digest, "config": i.config.Digest, "layer": i.layers[1].Digest}
}

func TestDamageIsFoundAfterAPowerCutAndFetchedAgain(t *testing.T) {
	for name, spoil := range map[string]func(string) error{"truncated": truncate, "missing": vanish, "flipped": flip} {
		i := ourImage(t, "one")
		for part, d := range i.parts() {
			t.Run(part+" "+name, func(t *testing.T) {
				l := newLab(t)
				r := newRegistry(t)
				ref := r.push("a:1", i)
				e, err := Open(t.Context(), l.cfg)
				if err != nil {
					t.Fatal(err)
				}
				l.pull(e, ref)
				path := e.images.blobPath(d)
				l.must(e.Close())
				l.must(spoil(path))
				writeStop(t, l.cfg.Root, lastStop{BootID: "of yesterday"})

				e = l.open()
				damaged, err := e.CheckImages(t.Context())
				if err != nil || !slices.Equal(damaged, []string{d.String()}) {
					t.Errorf("CheckImages() = %v, %v", damaged, err)
				}
				if img, err := e.Image(t.Context(), ref); !errdefs.IsNotFound(err) {
					t.Errorf("Image() = %+v, %v", img, err)
				}
				if img := l.pull(e, ref); img.ID != i.id() {
					t.Errorf("pulled %+v", img)
				}
				if damaged, err := e.CheckImages(t.Context()); err != nil || len(damaged) != 0 {
					t.Errorf("CheckImages() = %v, %v", damaged, err)
				}
				l.readRoot(e, i, "one")
				l.must(e.RemoveImage(t.Context(), ref))
				l.nothingStored(e)
			})
		}
	}
}

func TestDamagedImageIsNeverRun(t *testing.T) {
	i := ourImage(t, "one")
	for part, d := range i.parts() {
		t.Run(part, func(t *testing.T) {
			l := newLab(t)
			r := newRegistry(t)
			ref := r.push("a:1", i)
			e, err := Open(t.Context(), l.cfg)
			if err != nil {
				t.Fatal(err)
			}
			l.pull(e, ref)
			// Its snapshots are gone, as when the engine's snapshotter is another one now.
			l.must(e.dropSnapshots(t.Context()))
			l.must(flip(e.images.blobPath(d)))
			l.must(e.Close())
			e = l.open()
			err = e.PrepareRoot(t.Context(), "c1", i.id(), netns.Users{}, func(string) error { return nil })
			if !errdefs.IsNotFound(err) {
				t.Errorf("PrepareRoot() = %v", err)
			}
			if img, err := e.Image(t.Context(), ref); !errdefs.IsNotFound(err) {
				t.Errorf("Image() = %+v, %v", img, err)
			}
			l.pull(e, ref)
			l.readRoot(e, i, "one")
		})
	}
}

func TestDamagedImageCanBeRemoved(t *testing.T) {
	i := ourImage(t, "one")
	for part, d := range i.parts() {
		for _, byID := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s by id %v", part, byID), func(t *testing.T) {
				l := newLab(t)
				e, r := l.open(), newRegistry(t)
				ref := r.push("a:1", i)
				l.pull(e, ref)
				l.must(truncate(e.images.blobPath(d)))
				if _, err := e.CheckImages(t.Context()); err != nil {
					t.Error(err)
				}
				if byID {
					ref = i.id()
				}
				l.must(e.RemoveImage(t.Context(), ref))
				entries, err := e.client.ImageService().List(inNamespace(t.Context()))
				if err != nil || len(entries) != 0 {
					t.Errorf("entries %v, %v", entries, err)
				}
				l.nothingStored(e)
			})
		}
	}
}

func TestOnlyWhatAPowerCutMayHaveDamagedIsSuspect(t *testing.T) {
	newLab(t)
	stop := time.Now()
	for name, test := range map[string]struct {
		last    lastStop
		written time.Duration // after stop
		want    bool
	}{
		"clean stop, then a reboot":   {lastStop{At: stop, Clean: true, BootID: "of yesterday"}, -time.Hour, false},
		"crash of the daemon":         {lastStop{At: stop, BootID: bootID(t)}, time.Hour, false},
		"written before a clean stop": {lastStop{At: stop, BootID: "of yesterday"}, -time.Hour, false},
		"written after a clean stop":  {lastStop{At: stop, BootID: "of yesterday"}, time.Hour, true},
		"never stopped cleanly":       {lastStop{BootID: "of yesterday"}, -time.Hour, true},
	} {
		root := t.TempDir()
		writeStop(t, root, test.last)
		trust, err := openTrust(root)
		if err != nil {
			t.Fatal(err)
		}
		if got := trust.suspect(stop.Add(test.written)); got != test.want {
			t.Errorf("%s: suspect = %v", name, got)
		}
	}
}

// dropSnapshots removes all snapshots, children first.
func (e *Engine) dropSnapshots(ctx context.Context) error {
	ctx = inNamespace(ctx)
	sn := e.client.SnapshotService(e.images.snap.name)
	for {
		var names []string
		err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			names = append(names, info.Name)
			return nil
		})
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := sn.Remove(ctx, name); err != nil && !errdefs.IsFailedPrecondition(err) {
				return err
			}
		}
	}
}

func TestStopIsOnRecord(t *testing.T) {
	l := newLab(t)
	e, err := Open(t.Context(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if last := readStop(t, l.cfg.Root); last.Clean || last.BootID != bootID(t) {
		t.Errorf("open: %+v", last)
	}
	l.must(e.Close())
	if last := readStop(t, l.cfg.Root); !last.Clean || last.At.IsZero() {
		t.Errorf("closed: %+v", last)
	}
}

func bootID(t *testing.T) string {
	t.Helper()
	trust, err := openTrust(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return trust.bootID
}

func readStop(t *testing.T, root string) (last lastStop) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "last-stop.json"))
	if err == nil {
		err = json.Unmarshal(b, &last)
	}
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func writeStop(t *testing.T, root string, last lastStop) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "last-stop.json"), encode(t, last), 0o600); err != nil {
		t.Fatal(err)
	}
}
