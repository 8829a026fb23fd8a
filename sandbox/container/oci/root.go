package oci

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxUserFile is the largest passwd or group file that is read, in bytes.
const maxUserFile = 8 << 20

// retries bounds how often a path is looked up anew when something was renamed
// meanwhile; the kernel asks for it.
const retries = 64

// openIn opens, for reference only, a path below root as if root were "/": links,
// also absolute ones, and ".." stay below. Nothing is read or triggered: what is a
// device or a pipe is not opened. The caller closes.
func openIn(root, name string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the container's root %q: %w", root, err)
	}
	defer func() { _ = unix.Close(dir) }()
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for i := 0; ; i++ {
		fd, err := unix.Openat2(dir, name, &how)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		switch {
		case err == unix.ENOTDIR || err == unix.ELOOP || err == unix.ENAMETOOLONG:
			return nil, invalid("opening %.100q in the container's root: %v", name, err)
		case err != unix.EAGAIN && err != unix.EINTR || i == retries:
			return nil, fmt.Errorf("opening %q in the container's root: %w", name, err)
		}
	}
}

// through is a path by which the open file can be used again.
func through(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// readIn reads a regular file below root. errors.Is(err, fs.ErrNotExist) if there
// is none.
func readIn(root, name string) ([]byte, error) {
	ref, err := openIn(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ref.Close() }()
	info, err := ref.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, invalid("%q in the image is not a regular file", name)
	case info.Size() > maxUserFile:
		return nil, invalid("%q in the image has %d bytes, at most %d are read", name, info.Size(), maxUserFile)
	}
	f, err := os.Open(through(ref))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxUserFile))
	if err != nil {
		return nil, fmt.Errorf("reading %q in the container's root: %w", name, err)
	}
	return b, nil
}
