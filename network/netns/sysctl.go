package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
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

// writeSysctls sets sysctls in the namespaces of the calling thread.
func writeSysctls(sysctls map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		err := writeSysctl(sysctlPath(name), sysctls[name])
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting sysctl %q: this kernel has none of that name in a new namespace: %w",
				name, errdefs.ErrInvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("setting sysctl %q to %q: %w", name, sysctls[name], err)
		}
	}
	return nil
}

// writeSysctl writes a value without creating anything.
func writeSysctl(path, value string) error {
	f, err := os.OpenFile(sysctlRoot+path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
