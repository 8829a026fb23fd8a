package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	copyfs "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/container"
)

// imageVolumes are the directories that the image wants to be on mounts of their
// own, unless the request has something there.
func imageVolumes(in Input, taken map[string]bool) ([]bind, error) {
	var binds []bind
	for _, path := range slices.Sorted(slices.Values(in.Image.Volumes)) {
		inside := cleanInside(path)
		if err := checkText("volume of the image", path); err != nil {
			return nil, err
		}
		if inside == "/" {
			return nil, invalid("the image declares its root as a volume (%q)", path)
		}
		if taken[inside] {
			continue
		}
		taken[inside] = true
		source, err := makeVolume(in.Root, in.Volumes, inside)
		if err != nil {
			return nil, fmt.Errorf("making volume %q of the image: %w", inside, err)
		}
		binds = append(binds, bind{
			Mount: container.Mount{HostPath: source, ContainerPath: inside},
			where: "the image's volume " + inside,
		})
	}
	return binds, nil
}

// makeVolume returns the directory of a volume, filled from the root. It is copied
// beside and renamed, so one that is there is complete.
func makeVolume(root, volumes, inside string) (string, error) {
	if !filepath.IsAbs(volumes) {
		return "", invalid("there is no directory for volumes (%q)", volumes)
	}
	sum := sha256.Sum256([]byte(inside))
	dir := filepath.Join(volumes, hex.EncodeToString(sum[:8]))
	if _, err := os.Lstat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(volumes, 0o711); err != nil {
		return "", err
	}
	part := dir + ".new"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", err
	}
	if err := fill(part, root, inside); err != nil {
		return "", errors.Join(err, os.RemoveAll(part))
	}
	return dir, os.Rename(part, dir)
}

// fill copies a directory of the root with owners, modes and attributes; what is
// not in the root is an empty volume.
func fill(dir, root, inside string) error {
	from, err := openIn(root, inside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return invalid("it is not a directory in the image")
	}
	// Nothing runs in the root yet, and links below are copied, not followed.
	return copyfs.CopyDir(dir, through(from), copyfs.WithXAttrExclude("security.selinux"),
		copyfs.WithXAttrErrorHandler(tolerateUnsupported))
}

// tolerateUnsupported lets a volume be on a file system without extended attributes.
func tolerateUnsupported(_, _, _ string, err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
