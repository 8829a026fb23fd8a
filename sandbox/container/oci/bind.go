package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// How mounts made later pass between host and container.
const (
	private = "private"
	rslave  = "rslave"  // from the host to the container
	rshared = "rshared" // both ways
)

// extraOptions are those that a request may name.
var extraOptions = [...]string{"noexec", "nodev", "nosuid"} //nolint:gochecknoglobals // a constant that Go cannot write as such

// check refuses what cannot be mounted; nothing is touched.
func (b bind) check(f Features) error {
	switch {
	case b.Image != "" && !b.ReadOnly:
		return invalid("%s: an image as a volume is read-only, and readonly is not set", b.where)
	case b.ContainerPath == "/":
		return invalid("%s: container_path is empty or the root", b.where)
	case !filepath.IsAbs(b.HostPath):
		return invalid("%s: host_path %q is not absolute", b.where, b.HostPath)
	case !slices.Contains([]string{"", private, rslave, rshared}, b.Propagation):
		return invalid("%s: propagation %q is unknown", b.where, b.Propagation)
	}
	for _, o := range b.Options {
		if !slices.Contains(extraOptions[:], o) {
			return invalid("%s: mount option %q is none of %s", b.where, o, strings.Join(extraOptions[:], ", "))
		}
	}
	if !b.Users.IsZero() && !f.IDMap {
		return unavailable("%s: its ids cannot be mapped by this OCI runtime, kernel or snapshotter", b.where)
	}
	if err := b.checkRecursive(f); err != nil {
		return err
	}
	return errors.Join(checkText(b.where+".host_path", b.HostPath), checkText(b.where+".container_path", b.ContainerPath))
}

// checkRecursive refuses recursive read-only mounts that would not be so. The
// kubelet knows the first word of the text.
func (b bind) checkRecursive(f Features) error {
	switch {
	case !b.RecursiveReadOnly:
		return nil
	case !b.ReadOnly:
		return invalid("%s: recursive_read_only is set without readonly", b.where)
	case b.Propagation == rslave || b.Propagation == rshared:
		return invalid("%s: recursive_read_only needs private propagation, not %s", b.where, b.Propagation)
	case !f.RecursiveReadOnly:
		return fmt.Errorf("RROUnsupported: %s: kernel or OCI runtime has no recursive read-only mounts: %w", b.where, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// mount returns the mount and the propagation that the container's root needs for
// it.
func (b bind) mount(in Input) (m specs.Mount, propagation string, err error) {
	source, err := b.source()
	if err != nil {
		return m, "", err
	}
	propagation = b.Propagation
	if err := b.checkShared(source); err != nil {
		return m, "", err
	}
	if propagation != rslave && propagation != rshared {
		propagation = private
		if !b.RecursiveReadOnly && containsOurs(source, in) {
			propagation = rslave // see the third decision
		}
	}
	options := []string{"rbind", "r" + strings.TrimPrefix(propagation, "r"), b.access()}
	m = specs.Mount{Destination: b.ContainerPath, Type: "bind", Source: source, Options: append(options, b.Options...)}
	if !b.Users.IsZero() && b.Image == "" { // an image is mounted for its users already
		m.UIDMappings, m.GIDMappings = b.Users.OCI()
	}
	return m, propagation, nil
}

func (b bind) access() string {
	switch {
	case b.RecursiveReadOnly:
		return "rro"
	case b.ReadOnly:
		return "ro"
	}
	return "rw"
}

// source is the host path without links.
func (b bind) source() (string, error) {
	if b.Image != "" {
		return b.partOfImage()
	}
	_, err := os.Stat(b.HostPath)
	if errors.Is(err, fs.ErrNotExist) && b.create {
		err = os.MkdirAll(b.HostPath, 0o755)
	}
	if err != nil {
		return "", unavailable("%s: making sure that its source is there: %v", b.where, err)
	}
	source, err := filepath.EvalSymlinks(b.HostPath)
	if err != nil {
		return "", fmt.Errorf("%s: resolving its source: %w", b.where, err)
	}
	return source, nil
}

// partOfImage is the directory of the image that is mounted. The kubelet knows the
// first word of an error.
func (b bind) partOfImage() (string, error) {
	if b.ImageSubPath == "" {
		return b.HostPath, nil
	}
	ref, err := openIn(b.HostPath, b.ImageSubPath)
	if err != nil {
		return "", fmt.Errorf("ImageVolumeMountFailed: %s: image_sub_path: %w", b.where, err)
	}
	defer func() { _ = ref.Close() }()
	if info, err := ref.Stat(); err != nil || !info.IsDir() {
		return "", fmt.Errorf("ImageVolumeMountFailed: %s: image_sub_path %q is not a directory of the image: %w", b.where, b.ImageSubPath, errdefs.ErrInvalidArgument)
	}
	return os.Readlink(through(ref)) // no link leads out of it: images are read-only
}

// checkShared refuses propagation that the host's mount does not take part in.
func (b bind) checkShared(source string) error {
	if b.Propagation != rslave && b.Propagation != rshared {
		return nil
	}
	on, err := mountOf(source)
	if err != nil {
		return fmt.Errorf("%s: finding the mount of %q: %w", b.where, source, err)
	}
	shared := strings.Contains(" "+on.Optional, " shared:")
	slave := strings.Contains(" "+on.Optional, " master:")
	if shared || slave && b.Propagation == rslave {
		return nil
	}
	return unavailable("%s: propagation %s needs a shared mount, and %q on %q is not; make it so with mount --make-rshared",
		b.where, b.Propagation, source, on.Mountpoint)
}

// mountOf returns the mount that a path without links is on.
func mountOf(path string) (*mountinfo.Info, error) {
	parents, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, err
	}
	var on *mountinfo.Info
	for _, m := range parents {
		// Of two on one point the later covers the earlier.
		if on == nil || len(m.Mountpoint) >= len(on.Mountpoint) {
			on = m
		}
	}
	if on == nil {
		return nil, fmt.Errorf("it is on no mount of ours: %w", errdefs.ErrNotFound)
	}
	return on, nil
}

// containsOurs says whether a directory of the host contains what we mount, unmount
// and remove.
func containsOurs(source string, in Input) bool {
	return slices.ContainsFunc([]string{in.Root, in.PodDir, in.Volumes}, func(dir string) bool {
		rel, err := filepath.Rel(source, dir)
		return dir != "" && err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../")
	})
}

// stronger returns the propagation of the root that serves both mounts. The OCI
// runtime's own default serves private ones.
func stronger(have, need string) string {
	if have == rshared || need == private {
		return have
	}
	return need
}
