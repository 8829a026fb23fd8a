package oci

import (
	"os"
	"path/filepath"
	"strings"

	hostapparmor "github.com/containerd/containerd/v2/pkg/apparmor"
	hostseccomp "github.com/containerd/containerd/v2/pkg/seccomp"
	"golang.org/x/sys/unix"
)

// Features are what the host and its OCI runtime can do. The zero value is a host
// with cgroup v1 and none of it.
type Features struct {
	OCIVersion        string // the version to write; empty: the newest we know
	RecursiveReadOnly bool   // of mounts; needs kernel 5.12 and the runtime's "rro"
	IDMap             bool   // of mounts, which user namespaces need
	Unified           bool   // cgroup v2
	Swap              bool   // can be limited
	Hugetlb           bool   // huge pages can be limited
	Seccomp           bool
	AppArmor          bool
	SELinux           bool // write labels; off unless configured, as files are not relabelled
}

// HostFeatures finds out what the kernel says of itself: Unified, Swap, Hugetlb,
// Seccomp and AppArmor. What cannot be found out is absent. The rest depends on
// the OCI runtime and the configuration, and is the caller's to fill in.
func HostFeatures() Features {
	const cgroups = "/sys/fs/cgroup"
	f := Features{Seccomp: hostseccomp.IsEnabled(), AppArmor: hostapparmor.HostSupports()}
	var st unix.Statfs_t
	if err := unix.Statfs(cgroups, &st); err == nil {
		f.Unified = st.Type == unix.CGROUP2_SUPER_MAGIC
	}
	if !f.Unified {
		f.Swap = exists(filepath.Join(cgroups, "memory/memory.memsw.limit_in_bytes"))
		f.Hugetlb = exists(filepath.Join(cgroups, "hugetlb"))
		return f
	}
	// The root has no limit, so any of its children tells.
	files, _ := filepath.Glob(filepath.Join(cgroups, "*/memory.swap.max"))
	f.Swap = len(files) > 0
	controllers, _ := os.ReadFile(filepath.Join(cgroups, "cgroup.controllers")) // absent means none
	f.Hugetlb = strings.Contains(string(controllers), "hugetlb")
	return f
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
