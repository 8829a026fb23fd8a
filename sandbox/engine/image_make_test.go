package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// testImage is an image in memory.
type testImage struct {
	t      testing.TB
	target ocispec.Descriptor // the manifest, or the index around it
	config ocispec.Descriptor
	layers []ocispec.Descriptor
	blobs  map[digest.Digest][]byte
	types  map[digest.Digest]string
}

// testFiles are the files of one layer by path.
type testFiles map[string]string

// makeImage makes an image for an architecture with a layer for each of layers,
// which are compressed with gzip, zstd and not at all by turns.
func makeImage(t testing.TB, arch string, config ocispec.ImageConfig, layers ...testFiles) *testImage {
	t.Helper()
	i := &testImage{t: t, blobs: map[digest.Digest][]byte{}, types: map[digest.Digest]string{}}
	all := ocispec.Image{Config: config, Platform: ocispec.Platform{OS: "linux", Architecture: arch}}
	all.RootFS.Type = "layers"
	for n, files := range layers {
		plain := tarOf(t, files)
		all.RootFS.DiffIDs = append(all.RootFS.DiffIDs, digest.FromBytes(plain))
		kind, packed := ocispec.MediaTypeImageLayer, plain
		switch n % 3 {
		case 0:
			kind, packed = ocispec.MediaTypeImageLayerGzip, gzipped(t, plain)
		case 1:
			kind, packed = ocispec.MediaTypeImageLayerZstd, zstded(t, plain)
		}
		i.layers = append(i.layers, i.put(kind, packed))
	}
	i.config = i.put(ocispec.MediaTypeImageConfig, encode(t, all))
	i.target = i.put(ocispec.MediaTypeImageManifest, encode(t, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: i.config, Layers: i.layers,
	}))
	i.target.Platform = &all.Platform
	return i
}

// ourImage is makeImage for this machine, with a layer that makes it unique.
func ourImage(t testing.TB, unique string) *testImage {
	t.Helper()
	return makeImage(t, runtime.GOARCH, ocispec.ImageConfig{Cmd: []string{"/" + unique}},
		testFiles{"etc/passwd": "root:x:0:0::/:/x\n", unique: unique}, testFiles{"second": unique}, testFiles{"third": unique})
}

// multiImage is an index of i and the same for other machines.
func multiImage(i *testImage, others ...*testImage) *testImage {
	m := &testImage{t: i.t, config: i.config, layers: i.layers, blobs: maps.Clone(i.blobs), types: maps.Clone(i.types)}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, other := range others {
		maps.Copy(m.blobs, other.blobs)
		maps.Copy(m.types, other.types)
		index.Manifests = append(index.Manifests, other.target)
	}
	index.Manifests = append(index.Manifests, i.target)
	m.target = m.put(ocispec.MediaTypeImageIndex, encode(i.t, index))
	return m
}

func (i *testImage) put(kind string, b []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(b), Size: int64(len(b))}
	i.blobs[d.Digest], i.types[d.Digest] = b, kind
	return d
}

// id is the image's id.
func (i *testImage) id() string { return i.config.Digest.String() }

// layout is an OCI layout of manifests as they are named, and of all content.
func layout(t testing.TB, all map[string]*testImage) []byte {
	t.Helper()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}}
	files := testFiles{ocispec.ImageLayoutFile: `{"imageLayoutVersion":"1.0.0"}`}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		i := all[name]
		target := i.target
		target.Annotations = map[string]string{ocispec.AnnotationRefName: name}
		index.Manifests = append(index.Manifests, target)
		for d, b := range i.blobs {
			files["blobs/sha256/"+d.Encoded()] = string(b)
		}
	}
	files[ocispec.ImageIndexFile] = string(encode(t, index))
	return tarOf(t, files)
}

// dockerArchive is what `docker save` writes of an image.
func dockerArchive(t testing.TB, i *testImage, tags ...string) []byte {
	t.Helper()
	var config ocispec.Image
	if err := json.Unmarshal(i.blobs[i.config.Digest], &config); err != nil {
		t.Fatal(err)
	}
	files := testFiles{i.config.Digest.Encoded() + ".json": string(i.blobs[i.config.Digest])}
	entry := map[string]any{"Config": i.config.Digest.Encoded() + ".json", "RepoTags": tags}
	var layers []string
	for _, layer := range i.layers {
		name := layer.Digest.Encoded() + "/layer.tar"
		files[name] = string(i.blobs[layer.Digest])
		layers = append(layers, name)
	}
	entry["Layers"] = layers
	files["manifest.json"] = string(encode(t, []any{entry}))
	return tarOf(t, files)
}

func tarOf(t testing.TB, files testFiles) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t testing.TB, plain []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(t testing.TB, plain []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(plain, nil)
}

func encode(t testing.TB, value any) []byte {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
