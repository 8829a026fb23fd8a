package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

// Import takes the images of an archive and returns them: an OCI layout or what
// `docker save` writes, as a tar, maybe compressed by gzip or zstd. Of images for
// several platforms only what is for this machine is kept. One without a name can
// be used by its id. errdefs.ErrNotFound says that none is for this machine,
// errdefs.ErrInvalidArgument that it is no such archive.
func (e *Engine) Import(ctx context.Context, r io.Reader) ([]image.Image, error) {
	imported, err := e.images.load(inNamespace(ctx), r)
	if err != nil {
		return nil, fmt.Errorf("importing images: %w", err)
	}
	return imported, nil
}

// Export writes images as an OCI layout that `docker load` reads as well, with
// the names that they are asked for; by its id, one has all of its tags.
// errdefs.ErrNotFound if the node lacks one of them; nothing is written then.
func (e *Engine) Export(ctx context.Context, w io.Writer, refs []string) error {
	if err := e.images.save(inNamespace(ctx), w, refs); err != nil {
		return fmt.Errorf("exporting images: %w", err)
	}
	return nil
}

func (s *imageStore) load(ctx context.Context, r io.Reader) ([]image.Image, error) {
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("leasing what is imported: %w", err)
	}
	defer s.release(ctx, release)
	plain, err := compression.DecompressStream(r)
	if err != nil {
		return nil, fmt.Errorf("decompressing the archive: %w", err)
	}
	defer func() { _ = plain.Close() }() // it was read to its end, or the error is known
	index, err := archive.ImportIndex(ctx, s.client.ContentStore(), plain)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	var content ocispec.Index
	if err := readJSON(ctx, s.client.ContentStore(), index, &content); err != nil {
		return nil, unreadable(ctx, err)
	}
	chosen := choose(content.Manifests)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("looking into the archive: nothing is for %s: %w", platforms.Format(platforms.DefaultSpec()), errdefs.ErrNotFound)
	}
	var ids []string
	for _, one := range chosen {
		id, err := s.adopt(ctx, one)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return s.all(ctx, ids)
}

// unreadable gives containerd's untyped errors of an archive their class.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("reading the archive: %w: %w", err, errdefs.ErrInvalidArgument)
}

func (s *imageStore) all(ctx context.Context, ids []string) ([]image.Image, error) {
	found := make([]image.Image, 0, len(ids))
	for _, id := range ids {
		one, err := s.find(ctx, id)
		if err != nil {
			return nil, err
		}
		found = append(found, one.Image)
	}
	return found, nil
}

// namedTarget is an index or a manifest, and what it is called; "" is nothing.
type namedTarget struct {
	name   string
	target ocispec.Descriptor
}

// choose picks what is for this machine. Where one name stands for several
// platforms it is the best of them.
func choose(manifests []ocispec.Descriptor) (chosen []namedTarget) {
	ours := platforms.Default()
	for _, m := range manifests {
		if m.Annotations[images.AnnotationManifestSubject] != "" || m.Platform != nil && !ours.Match(*m.Platform) {
			continue
		}
		name := archiveName(m.Annotations)
		at := slices.IndexFunc(chosen, func(c namedTarget) bool { return name != "" && c.name == name })
		switch {
		case at < 0:
			chosen = append(chosen, namedTarget{name, m})
		case m.Platform != nil && chosen[at].target.Platform != nil && ours.Less(*m.Platform, *chosen[at].target.Platform):
			chosen[at].target = m
		}
	}
	return chosen
}

// archiveName is the reference that an archive has for a manifest. OCI wants
// a mere tag there, of which nobody knows what it is a tag of.
func archiveName(annotations map[string]string) string {
	for _, key := range []string{images.AnnotationImageName, ocispec.AnnotationRefName} {
		if name := annotations[key]; strings.ContainsAny(name, "/:@") {
			if normal, err := image.Normalize(name); err == nil {
				return normal
			}
		}
	}
	return ""
}

// adopt makes an image of content that came by an archive, and returns its id.
func (s *imageStore) adopt(ctx context.Context, one namedTarget) (id string, err error) {
	target := one.target
	target.Annotations = nil // they speak of the archive
	keep := images.SetChildrenLabels(s.client.ContentStore(), ourChildren(verified{s.client.ContentStore()}))
	if err := images.Walk(ctx, keep, target); err != nil {
		return "", fmt.Errorf("reading image %s %s: %w", one.name, target.Digest, err)
	}
	f, err := s.learn(ctx, target)
	if err != nil {
		return "", fmt.Errorf("reading image %s %s: %w", one.name, target.Digest, err)
	}
	if err := s.unpack(ctx, f, images.Image{Name: one.name, Target: target}); err != nil {
		return "", err
	}
	names := []string{f.id}
	if one.name != "" {
		names = append(names, one.name)
	}
	return f.id, s.refer(ctx, target, names...)
}

func (s *imageStore) save(ctx context.Context, w io.Writer, refs []string) error {
	if len(refs) == 0 {
		return fmt.Errorf("no image is named: %w", errdefs.ErrInvalidArgument)
	}
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	opts := []archive.ExportOpt{archive.WithPlatform(platforms.Default())}
	var errs []error
	for _, ref := range refs {
		one, err := all.find(ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		opts = append(opts, one.exported(ref))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return archive.Export(ctx, s.client.ContentStore(), w, opts...)
}

// exported is how an image goes into an archive when it is asked for by ref.
func (one *stored) exported(ref string) archive.ExportOpt {
	if name, err := image.Normalize(ref); err == nil {
		if entry := one.named(name); entry != nil {
			return archive.WithManifest(entry.Target, name)
		}
	}
	return archive.WithManifest(one.entries[0].Target, one.Tags...)
}
