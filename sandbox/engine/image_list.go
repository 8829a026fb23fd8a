package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

// stored is an image with what containerd's image store has of it.
type stored struct {
	image.Image
	facts   *facts
	entries []images.Image // at least one
}

// inventory is all of the image store. It is grouped by what the content says:
// other tools add and remove entries without telling us.
type inventory struct {
	whole  []*stored
	broken []images.Image // entries whose content is not all there, or not for this machine
}

// list reads the image store.
func (s *imageStore) list(ctx context.Context) (inventory, error) {
	entries, err := s.client.ImageService().List(ctx)
	if err != nil {
		return inventory{}, fmt.Errorf("listing images: %w", err)
	}
	var all inventory
	byID, targets := map[string]*stored{}, map[string]bool{}
	for _, entry := range entries {
		targets[entry.Target.Digest.String()] = true
		f, err := s.learn(ctx, entry.Target)
		if ctx.Err() != nil {
			return inventory{}, ctx.Err()
		}
		if err != nil {
			s.log.Debug("image is left out", "image", entry.Name, "reason", err)
			all.broken = append(all.broken, entry)
			continue
		}
		one := byID[f.id]
		if one == nil {
			one = &stored{facts: f, Image: image.Image{ID: f.id, Size: f.size, Config: f.config}}
			byID[f.id] = one
			all.whole = append(all.whole, one)
		}
		one.add(entry)
	}
	s.known.forget(func(digest string) bool { return targets[digest] })
	for _, one := range all.whole {
		slices.Sort(one.Tags)
		slices.Sort(one.Digests)
	}
	slices.SortFunc(all.whole, func(a, b *stored) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// add takes in one more entry of the image.
func (one *stored) add(entry images.Image) {
	one.entries = append(one.entries, entry)
	one.Pinned = one.Pinned || entry.Labels[labelPinned] == pinned
	switch tag, byDigest := image.Kind(entry.Name); {
	case tag:
		one.Tags = append(one.Tags, entry.Name)
	case byDigest:
		one.Digests = append(one.Digests, entry.Name)
	}
}

// find returns the whole image that ref names.
func (s *imageStore) find(ctx context.Context, ref string) (*stored, error) {
	all, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	return all.find(ref)
}

func (all inventory) find(ref string) (*stored, error) {
	if id, ok := image.ParseID(ref); ok {
		return all.byPrefix(ref, id)
	}
	if name, err := image.Normalize(ref); err == nil {
		for _, one := range all.whole {
			if one.named(name) != nil {
				return one, nil
			}
		}
	}
	// `ctr images tag` takes any name as it is written.
	for _, one := range all.whole {
		if one.named(ref) != nil {
			return one, nil
		}
	}
	if strings.Trim(ref, "0123456789abcdef") != "" || ref == "" {
		return nil, notFound(ref)
	}
	return all.byPrefix(ref, "sha256:"+ref)
}

// named returns the entry of that name, nil if there is none.
func (one *stored) named(name string) *images.Image {
	for i := range one.entries {
		if one.entries[i].Name == name {
			return &one.entries[i]
		}
	}
	return nil
}

// byPrefix returns the one image whose id begins so.
func (all inventory) byPrefix(ref, prefix string) (found *stored, err error) {
	for _, one := range all.whole {
		if !strings.HasPrefix(one.ID, prefix) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("looking for image %s: more than one id begins so, use more of it: %w", ref, errdefs.ErrNotFound)
		}
		found = one
	}
	if found == nil {
		return nil, notFound(ref)
	}
	return found, nil
}

// remove removes all entries of an image.
func (s *imageStore) remove(ctx context.Context, ref string) error {
	unlock, err := s.locks.Lock(ctx, referencesKey)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	names := all.names(ref)
	var errs []error
	for i, name := range names {
		var opts []images.DeleteOpt
		if i == len(names)-1 {
			opts = append(opts, images.SynchronousDelete()) // its space is free when we return
		}
		if err := s.client.ImageService().Delete(ctx, name, opts...); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("removing image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// names returns the entries of the image that ref names. Of one that is broken
// they are those with the same content.
func (all inventory) names(ref string) (names []string) {
	if one, err := all.find(ref); err == nil {
		for _, entry := range one.entries {
			names = append(names, entry.Name)
		}
		return names
	}
	name := ref
	if id, ok := image.ParseID(ref); ok {
		name = id
	} else if normal, err := image.Normalize(ref); err == nil {
		name = normal
	}
	at := slices.IndexFunc(all.broken, func(entry images.Image) bool { return entry.Name == name })
	if at < 0 {
		return nil
	}
	for _, entry := range all.broken {
		if entry.Target.Digest == all.broken[at].Target.Digest {
			names = append(names, entry.Name)
		}
	}
	return names
}

// refer makes names point at target. A tag that pointed elsewhere moves, and the
// image that it leaves keeps its other names.
func (s *imageStore) refer(ctx context.Context, target ocispec.Descriptor, names ...string) error {
	unlock, err := s.locks.Lock(ctx, referencesKey)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		entry := images.Image{Name: name, Target: target, Labels: map[string]string{labelManaged: managed}}
		_, err := s.client.ImageService().Create(ctx, entry)
		if errdefs.IsAlreadyExists(err) {
			// Other labels, a pin among them, are somebody's.
			_, err = s.client.ImageService().Update(ctx, entry, "target", "labels."+labelManaged)
		}
		if err != nil {
			return fmt.Errorf("naming image %s: %w", name, err)
		}
	}
	return nil
}
