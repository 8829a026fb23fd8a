package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns"
)

// inside is set in the environment of the process that runs in the namespaces.
const inside = "CRIB_LAB"

// Private runs this program again in network, mount, IPC and UTS namespaces of
// its own, with an empty /run, and returns its exit status and true. In that
// second process it prepares the namespaces and returns false: go on there.
func Private() (status int, done bool) {
	if os.Getenv(inside) != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			return 1, true
		}
		return 0, false
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "lab: private namespaces (root is needed):", err)
		return 1, true
	}
	return cmd.ProcessState.ExitCode(), true
}

// prepare makes mounts private, /run empty, and /sys that of the new network
// namespace with the machine's cgroups in it.
func prepare() error {
	const cgroups, keep = "/sys/fs/cgroup", "/run/cgroup"
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755") },
		func() error { return os.Mkdir(keep, 0o755) },
		func() error { return unix.Mount(cgroups, keep, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return unix.Mount("sysfs", "/sys", "sysfs", 0, "") },
		func() error { return unix.Mount(keep, cgroups, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return unix.Unmount(keep, unix.MNT_DETACH) },
		func() error { return os.Remove(keep) },
		func() error { return netns.LoopbackUp() },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("prepare namespaces, step %d: %w", i+1, err)
		}
	}
	return nil
}
