package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	cmount "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// labelVolume is of the snapshot of an image that is a volume: the container's id.
const labelVolume = "io.crib.volume-of"

// volume is the nth image that is a volume of a container. Those of a container are
// made in this order, so that the first that is missing is the end of them.
type volume struct {
	container string
	n         int
}

func (v volume) key() string { return fmt.Sprintf("%s-volume-%d", v.container, v.n) }

// volumeDir is where the images of a container's volumes are mounted.
func (s *imageStore) volumeDir(id string) string { return filepath.Join(s.cfg.state, "volumes", id) }

// MountImage mounts the nth image that is a volume of a container, read-only and for
// the users of its pod, and returns where. It is idempotent; RemoveRoot undoes it.
func (e *Engine) MountImage(ctx context.Context, id string, n int, imageID string, users netns.Users) (string, error) {
	dir, err := e.images.mountImage(inNamespace(ctx), volume{id, n}, imageID, users)
	if err != nil {
		return "", fmt.Errorf("mounting image %s: %w", imageID, err)
	}
	return dir, nil
}

func (s *imageStore) mountImage(ctx context.Context, v volume, imageID string, users netns.Users) (string, error) {
	img, err := s.find(ctx, imageID)
	if err != nil {
		return "", err
	}
	if err := s.unpack(ctx, img.facts, img.entries[0]); err != nil {
		return "", err
	}
	sn := s.client.SnapshotService(s.snap.name)
	mounts, err := sn.View(ctx, v.key(), img.facts.chain, rootLabels(labelVolume, v.container, users))
	if errdefs.IsAlreadyExists(err) {
		mounts, err = sn.Mounts(ctx, v.key())
	}
	if err != nil {
		return "", err
	}
	// In the way of containers with users of their own, who have to get through.
	dir := filepath.Join(s.volumeDir(v.container), strconv.Itoa(v.n))
	if err := errors.Join(unmountDir(dir), os.MkdirAll(dir, 0o711)); err != nil {
		return "", err
	}
	return dir, mountReadOnly(mounts, dir)
}

// mountReadOnly mounts what is read-only. containerd leaves ids as they are in binds
// that are read-only from the start, so they become that in the end.
func mountReadOnly(mounts []cmount.Mount, dir string) error {
	for i, m := range mounts {
		if m.Type == "bind" {
			mounts[i].Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "ro" })
		}
	}
	if err := cmount.All(mounts, dir); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &attr)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.12
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("making it read-only: %w", err)
	}
	return nil
}

// removeVolumes unmounts and removes the images of a container's volumes.
func (s *imageStore) removeVolumes(ctx context.Context, id string) error {
	sn := s.client.SnapshotService(s.snap.name)
	dirs, _ := filepath.Glob(filepath.Join(s.volumeDir(id), "*")) // the pattern is a good one
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, unmountDir(dir))
	}
	errs = append(errs, unmountDir(s.volumeDir(id)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n := 0
	for ; ; n++ {
		_, err := sn.Stat(ctx, volume{id, n}.key())
		if errdefs.IsNotFound(err) {
			break
		}
		if err != nil {
			return fmt.Errorf("looking for the volumes of container %s: %w", id, err)
		}
	}
	for n--; n >= 0; n-- { // the last one first: see volume
		if err := sn.Remove(ctx, volume{id, n}.key()); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing volume %d of container %s: %w", n, id, err)
		}
	}
	return nil
}

// rootLabels say whose a snapshot is, keep it from the collector of garbage, and
// whose its files are in there.
func rootLabels(whose, id string, users netns.Users) snapshots.Opt {
	labels := map[string]string{whose: id, labelRoot: time.Now().UTC().Format(time.RFC3339)}
	if !users.IsZero() {
		labels[snapshots.LabelSnapshotUIDMapping] = users.UIDs.String()
		labels[snapshots.LabelSnapshotGIDMapping] = users.GIDs.String()
	}
	return snapshots.WithLabels(labels)
}
