package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/bridge"
	"github.com/crib-runtime/crib/network/nat"
)

// scratch is where the child has its files, on a tmpfs that only it sees.
const scratch = "/run"

// Inside tries what the kernel can do. It is for a process in network and mount
// namespaces of its own, which must end after it; one that has those of its parent
// is refused, since its mounts would be the host's.
func Inside(ctx context.Context) ([]Finding, error) {
	for _, kind := range []string{"mnt", "net"} {
		if err := ofOurOwn(kind); err != nil {
			return nil, err
		}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"tmpfs", scratch, "tmpfs", 0},
		{"sysfs", "/sys", "sysfs", 0}, // that of the new network namespace
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return nil, fmt.Errorf("mounting %s in a namespace: %w", m.target, err)
		}
	}
	ranges := []Finding{
		tryNetwork(ctx, "IPv4", netip.MustParsePrefix("198.18.0.0/24")), // for benchmarks: nobody's
		tryNetwork(ctx, "IPv6", netip.MustParsePrefix("fd00:c21b::/64")),
	}
	return append(ranges, tryOverlay()), nil
}

// ofOurOwn is an error unless this process has another namespace than its parent.
func ofOurOwn(kind string) error {
	ours, err := os.Stat("/proc/self/ns/" + kind)
	if err != nil {
		return err
	}
	parents, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", os.Getppid(), kind))
	if err != nil {
		return err
	}
	if os.SameFile(ours, parents) {
		return fmt.Errorf("trying the kernel in the %s namespace of the parent: it is not ours to change: %w", kind, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// tryNetwork makes the built-in network for a range: bridge, addresses, sysctls and
// the nftables table with all of its chains.
func tryNetwork(ctx context.Context, family string, cidr netip.Prefix) Finding {
	f := good("kernel", "pods' network, "+family, "bridge, sysctls and nftables table can be made")
	err := network(ctx, cidr)
	if err != nil {
		f.Found = err.Error()
	}
	verdict := Missing
	if cidr.Addr().Is6() {
		verdict = Warning
	}
	return f.but(err != nil, verdict, "what the text names; where a module is meant, modprobe it or install it")
}

func network(ctx context.Context, cidr netip.Prefix) (err error) {
	log := slog.New(slog.DiscardHandler)
	table, err := nat.Open(nat.Config{Table: "crib-check", Bridge: "crib-check", Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	dir := filepath.Join(scratch, "network")
	built, err := bridge.Open(bridge.Config{Name: "check", Link: "crib-check", Dir: dir, Log: log}, table)
	if err != nil {
		return err
	}
	err = errors.Join(built.SetCIDRs(ctx, []netip.Prefix{cidr}), built.Restore(ctx, nil))
	if status := built.Status(); err == nil && !status.Ready {
		err = errors.New(status.Message)
	}
	return errors.Join(err, built.Reset(ctx), table.Delete(ctx))
}

// tryOverlay mounts one, as the roots of containers are.
func tryOverlay() Finding {
	f := good("kernel", "overlay", "can be mounted")
	err := overlay(filepath.Join(scratch, "overlay"))
	if err != nil {
		f.Found = "cannot be mounted: " + err.Error()
	}
	return f.but(err != nil, Missing, "modprobe overlay")
}

func overlay(dir string) error {
	var errs []error
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return err
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}
