package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/image"
)

// What containerd's CRI plugin puts on images, and other tools look for.
const (
	labelManaged = "io.cri-containerd.image"
	managed      = "managed"
	labelPinned  = "io.cri-containerd.pinned"
	pinned       = "pinned"
)

// imageStore is the engine's images and the roots that are made of them.
type imageStore struct {
	client *client.Client
	log    *slog.Logger
	cfg    imageConfig
	snap   snapshotter
	known  knowledge
	pulls  pulls
	locks  sandbox.KeyLock[string] // keys: referencesKey, chain ids
	used   usageCache
}

// imageConfig is what of [Config] concerns images.
type imageConfig struct {
	root, state string
	certs       []string
	pace        pace
	embedded    bool
}

// referencesKey is the lock of all changes to the names of images, so that a
// removal sees all or none of the names that a pull makes.
const referencesKey = "references"

// openImages finds out where images are unpacked.
func openImages(ctx context.Context, c *client.Client, cfg Config) (*imageStore, error) {
	snap, err := findSnapshotter(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	s := &imageStore{client: c, log: cfg.Log, snap: snap, cfg: imageConfig{
		root: cfg.Root, state: cfg.State, certs: cfg.CertsDirs,
		pace: pace{idle: cfg.PullIdle, rate: cfg.PullMinRate}, embedded: cfg.Address == "",
	}}
	if s.cfg.certs == nil {
		s.cfg.certs = []string{"/etc/crib/certs.d", "/etc/containerd/certs.d"}
	}
	if s.cfg.pace.idle == 0 {
		s.cfg.pace.idle = 5 * time.Minute
	}
	return s, nil
}

// close ends the downloads.
func (s *imageStore) close() { s.pulls.close() }

// inNamespace says where all images are, also to those parts of containerd's
// client that ask the context.
func inNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, namespace)
}

// Image returns an image by its id (with or without "sha256:", or its unique
// beginning), a tag or a digest reference; errdefs.ErrNotFound if the node does
// not have all of it. It reads memory for what it has seen before.
func (e *Engine) Image(ctx context.Context, ref string) (image.Image, error) {
	found, err := e.images.find(inNamespace(ctx), ref)
	if err != nil {
		return image.Image{}, err
	}
	return found.Image, nil
}

// Images returns every image of the node that is whole, whoever brought it, in
// the order of their ids.
func (e *Engine) Images(ctx context.Context) ([]image.Image, error) {
	all, err := e.images.list(inNamespace(ctx))
	if err != nil {
		return nil, err
	}
	images := make([]image.Image, 0, len(all.whole))
	for _, one := range all.whole {
		images = append(images, one.Image)
	}
	return images, nil
}

// RemoveImage removes every reference of the image that ref is a reference of,
// and what of its content no other image and no container needs. An unknown
// reference is fine; so is an image that is damaged. Containers that were made
// of it go on.
func (e *Engine) RemoveImage(ctx context.Context, ref string) error {
	return e.images.remove(inNamespace(ctx), ref)
}

// knowledge is what was read out of content, which never changes under its
// digest: that it is there is what can change.
type knowledge struct {
	mu    sync.Mutex // guards facts
	facts map[string]*facts
}

// get returns what is known of an image by the digest of its index or manifest.
func (k *knowledge) get(target ocispec.Descriptor) *facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.facts[target.Digest.String()]
}

func (k *knowledge) put(target ocispec.Descriptor, f *facts) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.facts == nil {
		k.facts = map[string]*facts{}
	}
	k.facts[target.Digest.String()] = f
}

// forget drops what is known of all but those that keep wants.
func (k *knowledge) forget(keep func(digest string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for digest := range k.facts {
		if !keep(digest) {
			delete(k.facts, digest)
		}
	}
}

// notFound is the error of a reference that the node does not have.
func notFound(ref string) error {
	return fmt.Errorf("looking for image %s (pull it; this node does not have all of it): %w", ref, errdefs.ErrNotFound)
}
