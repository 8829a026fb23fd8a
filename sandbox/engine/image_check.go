package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// CheckImages compares the content of images with what it is known to be, and
// drops what differs: Image does not find such an image any more, and the next
// pull fetches what is missing. Sizes are compared always. What was written since
// the last clean stop is read whole if the machine has been started anew without
// one, as a crash of the daemon alone damages nothing. It returns the digests of
// what was dropped. The content of an external containerd is not looked at.
func (e *Engine) CheckImages(ctx context.Context) (damaged []string, err error) {
	if !e.images.cfg.embedded {
		return nil, nil
	}
	return e.images.check(inNamespace(ctx), e.server.trust.suspect)
}

func (s *imageStore) check(ctx context.Context, suspect func(written time.Time) bool) (damaged []string, err error) {
	var bad []digest.Digest
	err = s.client.ContentStore().Walk(ctx, func(info content.Info) error {
		good, err := s.checkBlob(ctx, info, suspect)
		if err == nil && !good {
			bad = append(bad, info.Digest)
		}
		return err
	})
	errs := []error{err}
	for _, d := range bad {
		s.log.Warn("damaged content is dropped, the next pull fetches it", "digest", d)
		errs = append(errs, s.drop(ctx, d))
		damaged = append(damaged, d.String())
	}
	slices.Sort(damaged)
	if err := errors.Join(errs...); err != nil {
		return damaged, fmt.Errorf("checking images: %w", err)
	}
	return damaged, nil
}

// checkBlob says whether content is as it was.
func (s *imageStore) checkBlob(ctx context.Context, info content.Info, suspect func(time.Time) bool) (good bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	st, err := os.Stat(s.blobPath(info.Digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case st.Size() != info.Size:
		return false, nil
	case !suspect(st.ModTime()):
		return true, nil
	}
	f, err := os.Open(s.blobPath(info.Digest))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	return matches(f, info.Digest)
}

// blobPath is where the embedded containerd keeps content.
func (s *imageStore) blobPath(d digest.Digest) string {
	return filepath.Join(s.cfg.root, string(plugins.ContentPlugin)+".content", "blobs", d.Algorithm().String(), d.Encoded())
}

// verify reads content whole, and drops and returns what is damaged.
func (s *imageStore) verify(ctx context.Context, blobs []ocispec.Descriptor) (bad []digest.Digest, err error) {
	var errs []error
	for _, blob := range blobs {
		r, err := s.client.ContentStore().ReaderAt(ctx, blob)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		good, err := matches(io.NewSectionReader(r, 0, r.Size()), blob.Digest)
		errs = append(errs, err, r.Close())
		if err == nil && !good {
			bad = append(bad, blob.Digest)
			errs = append(errs, s.drop(ctx, blob.Digest))
		}
	}
	return bad, errors.Join(errs...)
}

// matches says whether what r reads has a digest.
func matches(r io.Reader, want digest.Digest) (bool, error) {
	v := want.Verifier()
	_, err := io.Copy(v, r)
	if errors.Is(err, io.ErrUnexpectedEOF) || errdefs.IsOutOfRange(err) {
		return false, nil // shorter than it is known to be
	}
	return v.Verified(), err
}

// drop removes damaged content. The file goes first: containerd would take it
// for good, should the content come again before the garbage is collected.
func (s *imageStore) drop(ctx context.Context, d digest.Digest) error {
	var errs []error
	if s.cfg.embedded {
		if err := os.Remove(s.blobPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := s.client.ContentStore().Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("dropping damaged content %s: %w", d, err))
	}
	s.known.forget(func(string) bool { return false })
	return errors.Join(errs...)
}

// trust is what the embedded engine's root says of its last stop.
type trust struct {
	path   string
	bootID string
	last   lastStop
	now    func() time.Time
}

// lastStop is the record of the last clean stop. What was written before is on disk.
type lastStop struct {
	At     time.Time `json:"at"`
	Clean  bool      `json:"clean"`  // nothing was opened since
	BootID string    `json:"bootID"` // of the machine's start in which the engine was last opened
}

// openTrust reads the record and notes that the engine is open. One that cannot
// be read says nothing: everything is suspect.
func openTrust(root string) (*trust, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("reading the id of this boot: %w", err)
	}
	t := &trust{path: filepath.Join(root, "last-stop.json"), bootID: strings.TrimSpace(string(boot)), now: time.Now}
	if b, err := os.ReadFile(t.path); err == nil && json.Unmarshal(b, &t.last) != nil {
		t.last = lastStop{}
	}
	return t, t.write(lastStop{At: t.last.At, BootID: t.bootID})
}

// suspect says whether what was written then may not have got to the disk.
func (t *trust) suspect(written time.Time) bool {
	return !t.last.Clean && t.last.BootID != t.bootID && !written.Before(t.last.At)
}

// close notes a clean stop: containerd syncs all content that it takes in.
func (t *trust) close() error {
	return t.write(lastStop{At: t.now(), Clean: true, BootID: t.bootID})
}

func (t *trust) write(last lastStop) error {
	b, err := json.Marshal(last)
	if err != nil {
		return err
	}
	next := t.path + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return fmt.Errorf("noting the state of the images: %w", err)
	}
	if err := os.Rename(next, t.path); err != nil {
		return fmt.Errorf("noting the state of the images: %w", err)
	}
	return nil
}
