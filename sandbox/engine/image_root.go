package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/images"
	cmount "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/kernelversion"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

const (
	overlayfs = "overlayfs"
	native    = "native"
	// labelRoot keeps a container's root from the collector of garbage, also
	// before and after the container has a record.
	labelRoot = "containerd.io/gc.root"
)

// snapshotter is where images are unpacked and containers get their roots.
type snapshotter struct {
	name     string
	dir      string // on its file system
	volatile bool   // the kernel can leave out syncing
	idMap    bool   // roots can have their ids mapped
}

// findSnapshotter takes overlayfs where it works, else native.
func findSnapshotter(ctx context.Context, c *client.Client, cfg Config) (snapshotter, error) {
	res, err := c.IntrospectionService().Plugins(ctx, "type=="+string(plugins.SnapshotPlugin))
	if err != nil {
		return snapshotter{}, fmt.Errorf("asking containerd for its snapshotters: %w", err)
	}
	for _, name := range []string{overlayfs, native} {
		at := slices.IndexFunc(res.Plugins, func(p *introspection.Plugin) bool { return p.ID == name && p.InitErr == nil })
		if at < 0 {
			continue
		}
		s := snapshotter{name: name, idMap: slices.Contains(res.Plugins[at].Capabilities, "remap-ids"), dir: cmp.Or(res.Plugins[at].Exports[plugins.SnapshotterRootDir], cfg.Root)}
		if name == native {
			return s, nil
		}
		if err := overlayWorks(s.dir, cfg); err != nil {
			cfg.Log.Warn("images are unpacked by copying, which takes more space: overlayfs does not work "+
				"(`modprobe overlay` says whether the kernel has it; the directory's file system may not allow it)", "directory", s.dir, "error", err)
			continue
		}
		s.volatile, err = kernelversion.GreaterEqualThan(kernelversion.KernelVersion{Kernel: 5, Major: 10})
		return s, err
	}
	return snapshotter{}, fmt.Errorf("looking for a snapshotter: containerd has neither %s nor %s: %w", overlayfs, native, errdefs.ErrNotFound)
}

// overlayWorks tries overlayfs in a directory, which the embedded containerd does
// not do. An external one has been set up by somebody who knows.
func overlayWorks(dir string, cfg Config) error {
	if cfg.Address != "" {
		return nil
	}
	return overlayutils.Supported(dir)
}

// PrepareRoot makes the root of a container from an image, unpacking the image
// if need be, for the users of a pod, and calls use with the root mounted. It is idempotent; on an error
// nothing is left. errdefs.ErrNotFound says that the image is not there, or was
// damaged.
func (e *Engine) PrepareRoot(ctx context.Context, id, imageID string, users netns.Users, use func(root string) error) error {
	ctx = inNamespace(ctx)
	err := e.images.prepareRoot(ctx, id, imageID, users, use)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("preparing the root of container %s: %w", id, err), e.images.removeRoot(clean, id))
	}
	return nil
}

// RemoveRoot removes the root of a container. It is idempotent.
func (e *Engine) RemoveRoot(ctx context.Context, id string) error {
	return e.images.removeRoot(inNamespace(ctx), id)
}

// Roots returns the ids of all containers that have a root.
func (e *Engine) Roots(ctx context.Context) (ids []string, err error) {
	ctx = inNamespace(ctx)
	err = e.images.client.SnapshotService(e.images.snap.name).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Labels[labelPod] != "" {
			ids = append(ids, info.Name)
		}
		if id := info.Labels[labelVolume]; id != "" {
			ids = append(ids, id)
		}
		return nil
	}, fmt.Sprintf("labels.%q", labelPod), fmt.Sprintf("labels.%q", labelVolume))
	if err != nil {
		return nil, fmt.Errorf("listing the roots of containers: %w", err)
	}
	return ids, nil
}

func (s *imageStore) prepareRoot(ctx context.Context, id, imageID string, users netns.Users, use func(root string) error) error {
	img, err := s.find(ctx, imageID)
	if err != nil {
		return err
	}
	if err := s.unpack(ctx, img.facts, img.entries[0]); err != nil {
		return err
	}
	sn := s.client.SnapshotService(s.snap.name)
	mounts, err := sn.Prepare(ctx, id, img.facts.chain, rootLabels(labelPod, id, users))
	if errdefs.IsAlreadyExists(err) {
		mounts, err = sn.Mounts(ctx, id)
	}
	if err != nil {
		return err
	}
	return s.mounted(id, mounts, use)
}

// unpack unpacks an image that is not. What is damaged shows here at the latest:
// containerd compares what comes out of each layer with the configuration.
func (s *imageStore) unpack(ctx context.Context, f *facts, entry images.Image) error {
	if f.chain == "" {
		return nil
	}
	unlock, err := s.locks.Lock(ctx, f.chain)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.client.SnapshotService(s.snap.name).Stat(ctx, f.chain); err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	err = client.NewImageWithPlatform(s.client, entry, platforms.Default()).Unpack(ctx, s.snap.name,
		client.WithUnpackApplyOpts(diff.WithSyncFs(true)))
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.known.forget(func(string) bool { return false }) // something is not as it was
	bad, badErr := s.verify(ctx, f.blobs)
	if len(bad) > 0 {
		err = fmt.Errorf("the content is damaged, pull the image again: %w: %w", err, errdefs.ErrNotFound)
	}
	return errors.Join(fmt.Errorf("unpacking image %s: %w", f.id, err), badErr)
}

// mounted calls use with a root mounted. It is mounted without being volatile:
// what was once mounted so cannot be mounted again.
func (s *imageStore) mounted(id string, mounts []cmount.Mount, use func(root string) error) (err error) {
	dir := s.rootDir(id)
	if err := errors.Join(unmountDir(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmountDir(dir)) }()
	if err := cmount.All(cmount.RemoveVolatileOption(mounts), dir); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	return use(dir)
}

// rootDir is where the root of a container is mounted while it is prepared.
func (s *imageStore) rootDir(id string) string { return filepath.Join(s.cfg.state, "roots", id) }

// unmountDir unmounts all that is mounted at dir and removes it. It is idempotent.
func unmountDir(dir string) error {
	for {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			// A process that is being started has our descriptors for a moment.
			err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINVAL): // nothing is mounted there
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		case err != nil:
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
	}
}

func (s *imageStore) removeRoot(ctx context.Context, id string) error {
	errs := []error{unmountDir(s.rootDir(id)), s.removeVolumes(ctx, id)}
	if err := s.client.SnapshotService(s.snap.name).Remove(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("removing the root of container %s: %w", id, err))
	}
	return errors.Join(errs...)
}

// rootMounts are what the task of a container is given as its root: volatile
// where that works, as nobody reads a container's root after a power cut. A root
// can be mounted so only once.
func (s *imageStore) rootMounts(ctx context.Context, id string) ([]*types.Mount, error) {
	mounts, err := s.client.SnapshotService(s.snap.name).Mounts(inNamespace(ctx), id)
	if err != nil {
		return nil, fmt.Errorf("looking for the root of container %s: %w", id, err)
	}
	for i := range mounts {
		if s.snap.volatile && mounts[i].Type == "overlay" && !slices.Contains(mounts[i].Options, "volatile") {
			mounts[i].Options = append(mounts[i].Options, "volatile")
		}
	}
	return cmount.ToProto(mounts), nil
}
