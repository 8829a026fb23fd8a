package engine

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestArchivesAreImported(t *testing.T) {
	i := ourImage(t, "one")
	other := makeImage(t, "s390x", ocispec.ImageConfig{}, testFiles{"other": "other"})
	full := layout(t, map[string]*testImage{"a.io/b:1": multiImage(i, other)})
	for name, test := range map[string]struct {
		archive []byte
		tags    []string
	}{
		"OCI layout":                   {layout(t, map[string]*testImage{"a.io/b:1": i}), []string{"a.io/b:1"}},
		"OCI layout with a mere tag":   {layout(t, map[string]*testImage{"latest": i}), nil},
		"OCI layout of several":        {full, []string{"a.io/b:1"}},
		"OCI layout by gzip":           {gzipped(t, full), []string{"a.io/b:1"}},
		"OCI layout by zstd":           {zstded(t, full), []string{"a.io/b:1"}},
		"docker archive":               {dockerArchive(t, i, "busybox:1"), []string{"docker.io/library/busybox:1"}},
		"docker archive with two tags": {dockerArchive(t, i, "a.io/b:1", "a.io/b:2"), []string{"a.io/b:1", "a.io/b:2"}},
		"docker archive without tags":  {dockerArchive(t, i), nil},
		"docker archive by gzip":       {gzipped(t, dockerArchive(t, i, "a.io/b:1")), []string{"a.io/b:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			e := l.open()
			imported, err := e.Import(t.Context(), bytes.NewReader(test.archive))
			if err != nil || len(imported) != 1 || imported[0].ID != i.id() || !slices.Equal(imported[0].Tags, test.tags) {
				t.Fatalf("Import() = %+v, %v", imported, err)
			}
			l.must(e.gc(t.Context()))
			l.readRoot(e, i, "one")
			l.must(e.RemoveImage(t.Context(), i.id()))
			l.nothingStored(e)
		})
	}
}

func TestOnePlatformOfAFlatLayoutIsTaken(t *testing.T) {
	l := newLab(t)
	e := l.open()
	i := ourImage(t, "one")
	other := makeImage(t, "s390x", ocispec.ImageConfig{}, testFiles{"other": "other"})
	files := testFiles{ocispec.ImageLayoutFile: `{"imageLayoutVersion":"1.0.0"}`}
	var index ocispec.Index
	index.SchemaVersion = 2
	for _, one := range []*testImage{i, other} {
		target := one.target
		target.Annotations = map[string]string{ocispec.AnnotationRefName: "a.io/b:1"}
		index.Manifests = append(index.Manifests, target)
		for d, b := range one.blobs {
			files["blobs/sha256/"+d.Encoded()] = string(b)
		}
	}
	files[ocispec.ImageIndexFile] = string(encode(t, index))
	imported, err := e.Import(t.Context(), bytes.NewReader(tarOf(t, files)))
	if err != nil || len(imported) != 1 || imported[0].ID != i.id() {
		t.Errorf("Import() = %+v, %v", imported, err)
	}
}

func TestUselessArchivesAreRefused(t *testing.T) {
	l := newLab(t)
	e := l.open()
	other := makeImage(t, "s390x", ocispec.ImageConfig{}, testFiles{"other": "other"})
	cut := layout(t, map[string]*testImage{"a.io/b:1": ourImage(t, "one")})
	lacking := ourImage(t, "lacking")
	delete(lacking.blobs, lacking.layers[1].Digest)
	for name, test := range map[string]struct {
		archive []byte
		is      func(error) bool
	}{
		"empty":               {nil, errdefs.IsInvalidArgument},
		"no tar":              {[]byte("hello"), errdefs.IsInvalidArgument},
		"a tar of something":  {tarOf(t, testFiles{"a": "a"}), errdefs.IsInvalidArgument},
		"cut":                 {cut[:len(cut)/2], errdefs.IsInvalidArgument},
		"for another machine": {layout(t, map[string]*testImage{"a.io/b:1": other}), errdefs.IsNotFound},
		"a layer is missing":  {layout(t, map[string]*testImage{"a.io/b:1": lacking}), errdefs.IsNotFound},
	} {
		if imported, err := e.Import(t.Context(), bytes.NewReader(test.archive)); !test.is(err) {
			t.Errorf("%s: Import() = %v, %v", name, imported, err)
		}
	}
	l.must(e.gc(t.Context()))
	l.nothingStored(e)
}

func TestExportedImageIsImportedByAnotherEngine(t *testing.T) {
	a, b := newLab(t), newLab(t)
	from, to, r := a.open(), b.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", multiImage(i, makeImage(t, "s390x", ocispec.ImageConfig{}, testFiles{"other": "other"})))
	a.pull(from, ref)
	for _, by := range []string{ref, i.id()} {
		var archive bytes.Buffer
		if err := from.Export(t.Context(), &archive, []string{by}); err != nil {
			t.Fatal(err)
		}
		if tags := dockerTags(t, archive.Bytes()); !slices.Equal(tags, []string{ref}) {
			t.Errorf("for docker it is %v", tags)
		}
		imported, err := to.Import(t.Context(), &archive)
		if err != nil || len(imported) != 1 || imported[0].ID != i.id() || !slices.Equal(imported[0].Tags, []string{ref}) {
			t.Errorf("Import() = %+v, %v", imported, err)
		}
		b.must(to.RemoveImage(t.Context(), ref))
	}
	if err := from.Export(t.Context(), io.Discard, []string{ref, "nothing"}); !errdefs.IsNotFound(err) {
		t.Errorf("Export() = %v", err)
	}
	if err := from.Export(t.Context(), io.Discard, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Export() = %v", err)
	}
}

// dockerTags are the tags in an archive's manifest.json.
func dockerTags(t *testing.T, archive []byte) []string {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != "manifest.json" {
			continue
		}
		var all []struct{ RepoTags []string }
		if err := json.NewDecoder(r).Decode(&all); err != nil {
			t.Fatal(err)
		}
		return all[0].RepoTags
	}
}

func TestImageOfAnotherToolIsSeen(t *testing.T) {
	l := newLab(t)
	e := l.open()
	i := makeImage(t, runtime.GOARCH, ocispec.ImageConfig{}, testFiles{"a": "a"})
	ctx := inNamespace(t.Context())
	// As ctr does it: without an entry for the id, and not unpacked.
	archive := layout(t, map[string]*testImage{"a.io/b:1": i})
	if _, err := e.images.client.Import(ctx, bytes.NewReader(archive), client.WithImageRefTranslator(func(name string) string { return name })); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"a.io/b:1", i.id()} {
		if img, err := e.Image(t.Context(), ref); err != nil || img.ID != i.id() {
			t.Errorf("Image(%s) = %+v, %v", ref, img, err)
		}
	}
	l.readRoot(e, i, "a")
	l.must(e.RemoveImage(t.Context(), i.id()))
	if all, err := e.Images(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("Images() = %+v, %v", all, err)
	}
}

func TestPinIsSeenAndKept(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	ref := r.push("a:1", ourImage(t, "one"))
	img := l.pull(e, ref)
	ctx := inNamespace(t.Context())
	entry, err := e.images.client.ImageService().Get(ctx, img.ID)
	if err != nil {
		t.Fatal(err)
	}
	entry.Labels[labelPinned] = pinned
	if _, err := e.images.client.ImageService().Update(ctx, entry, "labels."+labelPinned); err != nil {
		t.Fatal(err)
	}
	if img := l.pull(e, ref); !img.Pinned {
		t.Errorf("image %+v", img)
	}
}
