package nstest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside is set in the environment of the test binary that runs in the namespaces.
const inside = "CRIB_TEST_NAMESPACES"

// The main goroutine keeps the main thread for itself. That thread cannot be
// destroyed, so a test that moved it (through a library, say) would leave the
// process in another namespace. Only during init is it sure to run there.
func init() { runtime.LockOSThread() }

// Main runs the tests of m in new network, mount, IPC and UTS namespaces by
// running the test binary again in them, and returns the exit status.
func Main(m *testing.M) int {
	flag.Parse()
	if os.Getenv(inside) != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "nstest:", err)
			return 1
		}
		return m.Run()
	}
	if testing.Short() || os.Geteuid() != 0 {
		return m.Run()
	}
	return again()
}

// Entered says that the process is in namespaces of its own already, by other
// means than [Main].
func Entered() { _ = os.Setenv(inside, "1") }

// again runs this binary with its arguments in new namespaces.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "nstest:", err)
		return 1
	}
	return 0
}

// prepare makes mounts private, /run empty and /sys that of the new network
// namespace, and sets the loopback link up.
func prepare() error {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"tmpfs", "/run", "tmpfs", 0},
		{"sysfs", "/sys", "sysfs", 0},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return loopbackUp()
}

// loopbackUp sets lo of the new network namespace up.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
