package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/engine"
)

// oldRunc is the first runc that crib starts containers with.
const oldRunc = "1.1"

func ociRuntime(ctx context.Context, want string) Finding {
	r, err := engine.FindRuntime(ctx, want)
	if err != nil {
		return Finding{Part: "runtime", Name: "OCI runtime", Verdict: Missing, Found: err.Error(),
			Remedy: "apt install runc, or set engine.oci_runtime"}
	}
	return good("runtime", "OCI runtime", fmt.Sprintf("%s %s", r.Path, r.Version)).
		but(r.Old, Missing, "install runc "+oldRunc+" or later, or crun")
}

// programs looks for what is installed with the daemon.
func programs(paths []string) []Finding {
	var all []Finding
	for _, path := range paths {
		info, err := os.Stat(path)
		bad := err != nil || info.Mode()&0o111 == 0
		found := path
		if bad {
			found = path + " is not there or is no program"
		}
		all = append(all, good("runtime", filepath.Base(path), found).
			but(bad, Missing, "install crib anew (make install), or set engine.shim and engine.init"))
	}
	return all
}

// needed are the controllers without which limits of pods do not hold.
var needed = []string{"cpu", "cpuset", "memory", "pids"}

// cgroups tells version, driver and controllers.
func cgroups() []Finding {
	const root = "/sys/fs/cgroup"
	driver := "cgroupfs"
	if exists("/run/systemd/system") {
		driver = "systemd"
	}
	version, have := "v1", controllersV1(root)
	var st unix.Statfs_t
	if unix.Statfs(root, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		version, have = "v2", strings.Fields(text(filepath.Join(root, "cgroup.controllers")))
	}
	slices.Sort(have)
	absent := slices.DeleteFunc(slices.Clone(needed), func(c string) bool { return slices.Contains(have, c) })
	found := strings.Join(have, " ")
	if len(absent) > 0 {
		found += "; not there: " + strings.Join(absent, " ")
	}
	return []Finding{
		good("cgroups", "version", version+", driver "+driver).but(version == "v1", Warning,
			"boot with systemd.unified_cgroup_hierarchy=1; kubelets of 1.35 and later want v2"),
		good("cgroups", "controllers", found).but(len(absent) > 0, Missing,
			"boot with cgroup_enable="+strings.Join(absent, ",")+" and mount them"),
	}
}

// controllersV1 returns the controllers that are mounted, one directory each.
func controllersV1(root string) []string {
	dirs, _ := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	var names []string
	for _, dir := range dirs {
		names = append(names, strings.Split(filepath.Base(filepath.Dir(dir)), ",")...)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "systemd" || name == "unified" })
}

func swap() Finding {
	used := strings.Count(text("/proc/swaps"), "\n")
	return good("kernel", "swap", fmt.Sprintf("%d areas", used)).but(used > 0, Warning,
		"swapoff -a, or failSwapOn: false in the kubelet's configuration")
}

// disks looks at the file systems of root and state.
func disks(cfg Config) []Finding {
	root, state := disk("root", cfg.Root), disk("state", cfg.State)
	var st unix.Statfs_t
	if unix.Statfs(parent(cfg.Root), &st) == nil && (st.Type == unix.OVERLAYFS_SUPER_MAGIC || st.Type == unix.NFS_SUPER_MAGIC) {
		root = root.but(true, Missing, "set root to a directory on ext4 or xfs: overlays cannot be made on this file system")
	}
	if unix.Statfs(parent(cfg.State), &st) == nil && st.Type != unix.TMPFS_MAGIC && state.Verdict == Good {
		state = state.but(true, Warning, "set state to a directory on a tmpfs: what is there must not outlive a reboot")
	}
	return []Finding{root, state}
}

// disk says how much is free. The limits are those at which kubelets begin to evict.
func disk(key, dir string) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(parent(dir), &st); err != nil {
		return Finding{Part: "disk", Name: key, Verdict: Missing, Found: dir + ": " + err.Error(), Remedy: "set " + key + " to another directory"}
	}
	const gib = 1 << 30
	free, size := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	found := fmt.Sprintf("%s: %.1f of %.1f GiB free", dir, float64(free)/gib, float64(size)/gib)
	tight := free*100 < size*15 || st.Files > 0 && st.Ffree*100 < st.Files*5
	if st.Files > 0 {
		found += fmt.Sprintf(", %d %% of the inodes", st.Ffree*100/st.Files)
	}
	return good("disk", key, found).
		but(tight, Warning, "make room: kubelets remove images and evict pods from here on").
		but(free < gib/16, Missing, "make room: hardly anything can be written")
}

// parent returns the directory, or the first one above it that exists.
func parent(dir string) string {
	for !exists(dir) && dir != "/" && dir != "." {
		dir = filepath.Dir(dir)
	}
	return dir
}
