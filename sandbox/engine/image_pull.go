package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/image"
)

// pullStreams is how many blobs of one pull are fetched at a time.
const pullStreams = 4

// Pull fetches and unpacks an image and returns it. Equal pulls at the same time
// are one: the end of a caller's ctx ends its own waiting, at once, and the
// download when nobody waits. An image of which all is there costs one question
// to the registry. Errors are of image.ErrRegistryUnavailable, with a text that
// begins with it; errdefs.ErrNotFound; errdefs.ErrPermissionDenied when the
// registry wants other credentials; errdefs.ErrInvalidArgument for what is no
// reference.
func (e *Engine) Pull(ctx context.Context, ref string, auth image.Auth) (image.Image, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return image.Image{}, err
	}
	img, err := e.images.pulls.do(inNamespace(ctx), pullKey{name, auth}, func(ctx context.Context) (image.Image, error) {
		return e.images.pull(ctx, name, auth)
	})
	switch {
	case err == nil:
		return img, nil
	case errors.Is(err, image.ErrRegistryUnavailable): // nothing may stand before it
		return image.Image{}, err
	}
	return image.Image{}, fmt.Errorf("pulling %s: %w", name, err)
}

// pull does one pull.
func (s *imageStore) pull(ctx context.Context, name string, auth image.Auth) (image.Image, error) {
	// The lease keeps what was fetched until the names do.
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return image.Image{}, fmt.Errorf("leasing what is pulled: %w", err)
	}
	defer s.release(ctx, release)
	target, err := s.fetch(ctx, name, auth)
	if err != nil {
		return image.Image{}, classify(name, err)
	}
	f, err := s.learn(ctx, target)
	if err != nil {
		return image.Image{}, err
	}
	byDigest, err := image.ByDigest(name, target.Digest)
	if err != nil {
		return image.Image{}, err
	}
	if err := s.refer(ctx, target, f.id, name, byDigest); err != nil {
		return image.Image{}, err
	}
	found, err := s.find(ctx, f.id)
	if err != nil {
		return image.Image{}, err
	}
	return found.Image, nil
}

// release gives a lease back, also after the end of ctx.
func (s *imageStore) release(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	if err := release(ctx); err != nil && !errdefs.IsNotFound(err) {
		s.log.Warn("a lease stays; it ends by itself after a day", "error", err)
	}
}

// fetch downloads and unpacks, no slower than the pace.
func (s *imageStore) fetch(ctx context.Context, name string, auth image.Auth) (ocispec.Descriptor, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	m := &meter{}
	defer m.close()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.cfg.pace.watch(ctx, m, cancel)
	}()
	defer func() { cancel(nil); <-watched }()
	img, err := s.client.Pull(ctx, name,
		client.WithResolver(docker.NewResolver(docker.ResolverOptions{Hosts: s.hosts(ctx, auth, m)})),
		client.WithPullUnpack,
		client.WithPullSnapshotter(s.snap.name),
		client.WithPullLabel(labelManaged, managed),
		client.WithDownloadLimiter(semaphore.NewWeighted(pullStreams)),
		client.WithUnpackOpts([]client.UnpackOpt{
			// What the disk does not have yet must not pass for unpacked.
			client.WithUnpackApplyOpts(diff.WithSyncFs(true)),
			client.WithUnpackFetchAllContent(), // an image is whole, or it is not there
		}),
	)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return ocispec.Descriptor{}, err
	}
	return img.Target(), nil
}

// classify gives a registry's error its class.
func classify(name string, err error) error {
	status, _ := errors.AsType[remoteerrors.ErrUnexpectedStatus](err)
	switch {
	case errors.Is(err, image.ErrRegistryUnavailable), errors.Is(err, context.Canceled):
		return err
	case unreachable(err), status.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: pulling %s: %w", image.ErrRegistryUnavailable, name, err)
	case errors.Is(err, docker.ErrInvalidAuthorization),
		status.StatusCode == http.StatusUnauthorized, status.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, errdefs.ErrPermissionDenied)
	case status.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	return err
}

// unreachable says whether a connection did not come about, or broke.
func unreachable(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	if asked, ok := errors.AsType[*url.Error](err); ok && asked.Timeout() {
		return true
	}
	for _, one := range []error{
		io.EOF, io.ErrUnexpectedEOF, unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ETIMEDOUT,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	_, dns := errors.AsType[*net.DNSError](err)
	return dns
}
