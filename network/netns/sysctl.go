package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// sysctlRoot is where the kernel shows the sysctls of the opening thread's namespaces.
const sysctlRoot = "/proc/sys/"

// ValidateSysctls checks that each name is one that belongs to a namespace of the
// pod's own: net.* to the network namespace, kernel.shm*, kernel.msg*, kernel.sem
// and fs.mqueue.* to the IPC namespace. Names have dots or slashes, as in
// sysctl.d(5): the first separator decides, and the other one stands for a dot in
// a name. The error is of class InvalidArgument and names the sysctl; values are
// left to the kernel. Nothing is created.
func ValidateSysctls(sysctls map[string]string, hostNet, hostIPC bool) error {
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		if err := validateSysctl(name, hostNet, hostIPC); err != nil {
			return fmt.Errorf("checking sysctl %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// validateSysctl says what is wrong with one name.
func validateSysctl(name string, hostNet, hostIPC bool) error {
	path := sysctlPath(name)
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return errors.New("not the name of a sysctl")
		}
	}
	switch {
	case strings.HasPrefix(path, "net/"):
		if hostNet {
			return errors.New("it would change the host: the pod uses the host's network namespace")
		}
	case isIPCSysctl(path):
		if hostIPC {
			return errors.New("it would change the host: the pod uses the host's IPC namespace")
		}
	default:
		return errors.New("it belongs to no namespace and would change the host; " +
			"a pod can have net.*, kernel.shm*, kernel.msg*, kernel.sem and fs.mqueue.*")
	}
	return nil
}

// isIPCSysctl reports whether the sysctl at path belongs to the IPC namespace.
func isIPCSysctl(path string) bool {
	return path == "kernel/sem" || strings.HasPrefix(path, "kernel/shm") ||
		strings.HasPrefix(path, "kernel/msg") || strings.HasPrefix(path, "fs/mqueue/")
}

// sysctlPath turns a name into the path below /proc/sys.
func sysctlPath(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// writeSysctls sets sysctls in the namespaces of the calling thread. Those of one
// directory are opened from there: to find a directory below net, the kernel looks
// through those of all network namespaces.
func writeSysctls(sysctls map[string]string) error {
	dirs := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		dir := filepath.Dir(sysctlPath(name))
		dirs[dir] = append(dirs[dir], name)
	}
	for dir, names := range dirs {
		if err := writeDir(dir, names, sysctls); err != nil {
			return err
		}
	}
	return nil
}

// writeDir sets the sysctls of one directory.
func writeDir(path string, names []string, sysctls map[string]string) (err error) {
	dir, err := os.OpenRoot(sysctlRoot + path)
	if err != nil {
		return refused(names[0], err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	for _, name := range names {
		if err := writeSysctl(dir, filepath.Base(sysctlPath(name)), sysctls[name]); err != nil {
			return refused(name, fmt.Errorf("to %q: %w", sysctls[name], err))
		}
	}
	return nil
}

// refused says which sysctl could not be set, and whether there is none.
func refused(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("setting sysctl %q: this kernel has none of that name in a new namespace: %w",
			name, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("setting sysctl %q: %w", name, err)
}

// writeSysctl writes a value without creating anything.
func writeSysctl(dir *os.Root, name, value string) error {
	f, err := dir.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
