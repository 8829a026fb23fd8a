package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

// facts are what the content of an image says about it.
type facts struct {
	id     string
	size   uint64
	chain  string // the snapshot of all its layers; "" if it has none
	config image.Config
	blobs  []ocispec.Descriptor // for this machine: index, manifest, configuration, layers
}

// learn returns the facts of the image at target, with errdefs.ErrNotFound if
// not all of its content is there or none of it is for this machine.
func (s *imageStore) learn(ctx context.Context, target ocispec.Descriptor) (*facts, error) {
	if f := s.known.get(target); f != nil {
		return f, nil
	}
	f, err := readFacts(ctx, s.client.ContentStore(), target)
	var bad *damage
	if errors.As(err, &bad) {
		s.log.Warn("damaged content is dropped, the next pull fetches it", "digest", bad.digest)
		err = errors.Join(err, s.drop(ctx, bad.digest))
	}
	if err != nil {
		return nil, err
	}
	s.known.put(target, f)
	return f, nil
}

// readFacts reads what an image says, each word of it verified.
func readFacts(ctx context.Context, store content.Store, target ocispec.Descriptor) (*facts, error) {
	provider := verified{store}
	blobs, err := ourBlobs(ctx, provider, target)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(blobs, func(d ocispec.Descriptor) bool { return images.IsManifestType(d.MediaType) })
	if at < 0 {
		return nil, fmt.Errorf("reading image at %s: no manifest: %w", target.Digest, errdefs.ErrNotFound)
	}
	var manifest ocispec.Manifest
	if err := readJSON(ctx, provider, blobs[at], &manifest); err != nil {
		return nil, err
	}
	var config ocispec.Image
	if err := readJSON(ctx, provider, manifest.Config, &config); err != nil {
		return nil, err
	}
	f := &facts{
		id: manifest.Config.Digest.String(), chain: identity.ChainID(config.RootFS.DiffIDs).String(),
		config: inherited(config), blobs: blobs,
	}
	for _, blob := range blobs {
		if _, err := store.Info(ctx, blob.Digest); err != nil {
			return nil, fmt.Errorf("looking for %s of image at %s: %w", blob.Digest, target.Digest, err)
		}
		f.size += uint64(max(0, blob.Size))
	}
	return f, nil
}

// ourBlobs walks from target down to the layers, at an index only to the
// manifest that fits this machine best.
func ourBlobs(ctx context.Context, provider content.Provider, target ocispec.Descriptor) (blobs []ocispec.Descriptor, err error) {
	collect := images.HandlerFunc(func(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		blobs = append(blobs, d)
		return nil, nil
	})
	return blobs, images.Walk(ctx, images.Handlers(collect, ourChildren(provider)), target)
}

func ourChildren(provider content.Provider) images.HandlerFunc {
	ours := platforms.Default()
	return images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(provider), ours), ours, 1)
}

func readJSON(ctx context.Context, provider content.Provider, d ocispec.Descriptor, value any) error {
	b, err := content.ReadBlob(ctx, provider, d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, value); err != nil {
		return fmt.Errorf("decoding %s %s: %w", d.MediaType, d.Digest, err)
	}
	return nil
}

// inherited is what containers inherit from an image.
func inherited(i ocispec.Image) image.Config {
	return image.Config{
		User: i.Config.User, Env: i.Config.Env, Entrypoint: i.Config.Entrypoint, Cmd: i.Config.Cmd,
		WorkDir: i.Config.WorkingDir, Volumes: slices.Sorted(maps.Keys(i.Config.Volumes)), StopSignal: i.Config.StopSignal,
	}
}

// damage is content that is not what its name says.
type damage struct{ digest digest.Digest }

func (d *damage) Error() string {
	return "verifying " + d.digest.String() + ": the content is damaged, pull the image again: " + errdefs.ErrNotFound.Error()
}

func (*damage) Unwrap() error { return errdefs.ErrNotFound }

// verified hands out small content that is what its digest says: containerd
// verifies what it takes in, and trusts the disk from then on.
type verified struct{ store content.Store }

// ReaderAt implements content.Provider.
func (v verified) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := v.store.ReaderAt(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	if errors.Is(err, io.ErrUnexpectedEOF) || errdefs.IsOutOfRange(err) {
		return nil, &damage{d.Digest} // shorter than containerd knows it to be
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.Digest, err)
	}
	if d.Digest.Algorithm().FromBytes(b) != d.Digest {
		return nil, &damage{d.Digest}
	}
	return blobReader{bytes.NewReader(b)}, nil
}

// blobReader is content in memory.
type blobReader struct{ *bytes.Reader }

// Close implements io.Closer.
func (blobReader) Close() error { return nil }
