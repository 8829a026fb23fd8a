package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox/container"
)

// withMounts returns an input with these mounts and a directory of the host.
func withMounts(t *testing.T, mounts ...container.Mount) (Input, string) {
	t.Helper()
	in := kubelet(t)
	host := filepath.Join(filepath.Dir(in.PodDir), "host")
	must(t, os.MkdirAll(host, 0o755))
	for _, m := range mounts {
		if !filepath.IsAbs(m.HostPath) {
			m.HostPath = filepath.Join(host, m.HostPath)
		}
		in.Container.Spec.Mounts = append(in.Container.Spec.Mounts, m)
	}
	return in, host
}

func TestMountsAreOrderedParentsFirst(t *testing.T) {
	in, _ := withMounts(t, container.Mount{ContainerPath: "/a/b/c"}, container.Mount{ContainerPath: "/a/b/"},
		container.Mount{ContainerPath: "/a"}, container.Mount{ContainerPath: "/etc"})
	s, _ := build(t, in)
	got := destinations(s)[6:]
	want := []string{"/a", "/etc", "/a/b", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm", "/a/b/c"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRequestCoversWhatEveryContainerHas(t *testing.T) {
	tests := []struct {
		asked string
		gone  []string
	}{
		{"/etc/hosts", nil},
		{"/etc//resolv.conf", nil},
		{"/dev/shm", nil},
		{"/proc", nil},
		{"/sys/../sys/", []string{"/sys/fs/cgroup"}},
		{"/dev", []string{"/dev/pts", "/dev/mqueue"}},
	}
	for _, test := range tests {
		t.Run(test.asked, func(t *testing.T) {
			in, host := withMounts(t, container.Mount{ContainerPath: test.asked})
			s, _ := build(t, in)
			m := mountAt(t, s, filepath.Clean(test.asked))
			if m.Source != host || m.Type != "bind" {
				t.Errorf("got %+v, want the request's", m)
			}
			count := 0
			for _, d := range destinations(s) {
				if d == m.Destination || slices.Contains(test.gone, d) {
					count++
				}
			}
			if count != 1 {
				t.Errorf("mounts %v: want %s once and none of %v", destinations(s), m.Destination, test.gone)
			}
		})
	}
}

func TestHostIPCHasTheHostsSharedMemory(t *testing.T) {
	in := kubelet(t)
	in.Pod.Pins.IPC.Path = ""
	s, _ := build(t, in)
	if m := mountAt(t, s, "/dev/shm"); m.Source != "/dev/shm" {
		t.Errorf("got %+v", m)
	}
}

func TestPodFilesAreReadOnlyWithTheRoot(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Security.ReadOnlyRoot = true
	s, _ := build(t, in)
	for path, want := range map[string]string{"/etc/hosts": "ro", "/etc/hostname": "ro", "/etc/resolv.conf": "ro", "/dev/shm": "rw"} {
		if m := mountAt(t, s, path); !slices.Contains(m.Options, want) {
			t.Errorf("%s: %v, want %s", path, m.Options, want)
		}
	}
	if !s.Root.Readonly {
		t.Error("the root is writable")
	}
}

func TestPodWithoutItsFilesIsSaidAndNothingIsMade(t *testing.T) {
	in := kubelet(t)
	hosts := filepath.Join(in.PodDir, "hosts")
	must(t, os.Remove(hosts))
	if _, _, err := Build(in); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "/etc/hosts") {
		t.Errorf("got %v", err)
	}
	if exists(hosts) {
		t.Error("a directory was made in the place of hosts")
	}
}

func TestMissingSourceIsMadeAndLinksAreResolved(t *testing.T) {
	in, host := withMounts(t, container.Mount{HostPath: "new/deep", ContainerPath: "/new"}, container.Mount{HostPath: "link/sub", ContainerPath: "/sub"})
	must(t, os.MkdirAll(filepath.Join(host, "real/sub"), 0o755))
	must(t, os.Symlink("real", filepath.Join(host, "link")))
	s, _ := build(t, in)
	info, err := os.Stat(filepath.Join(host, "new/deep"))
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
		t.Errorf("missing source: %v, %v", info, err)
	}
	if m := mountAt(t, s, "/sub"); m.Source != filepath.Join(host, "real/sub") {
		t.Errorf("source %s, want the one behind the link", m.Source)
	}
}

func TestSourceThatCannotBeMadeIsSaid(t *testing.T) {
	in, host := withMounts(t, container.Mount{HostPath: "file/below", ContainerPath: "/a"})
	write(t, filepath.Join(host, "file"), "")
	if _, _, err := Build(in); err == nil || !strings.Contains(err.Error(), "config.mounts[0] (/a)") {
		t.Errorf("got %v", err)
	}
	in, host = withMounts(t, container.Mount{HostPath: "dangling", ContainerPath: "/a"})
	must(t, os.Symlink("nowhere", filepath.Join(host, "dangling")))
	if _, _, err := Build(in); err == nil {
		t.Error("a link to nowhere was mounted")
	}
}

func TestMountOptionsAreTheRequests(t *testing.T) {
	tests := []struct {
		claim string
		mount container.Mount
		want  []string
	}{
		{"writable", container.Mount{}, []string{"rbind", "rprivate", "rw"}},
		{"read-only", container.Mount{ReadOnly: true, Propagation: "private"}, []string{"rbind", "rprivate", "ro"}},
		{"recursive", container.Mount{ReadOnly: true, RecursiveReadOnly: true}, []string{"rbind", "rprivate", "rro"}},
		{"options", container.Mount{Options: []string{"noexec", "nosuid", "nodev"}}, []string{"rbind", "rprivate", "rw", "noexec", "nosuid", "nodev"}},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			test.mount.ContainerPath = "/m"
			in, _ := withMounts(t, test.mount)
			s, _ := build(t, in)
			if m := mountAt(t, s, "/m"); !slices.Equal(m.Options, test.want) {
				t.Errorf("got %v, want %v", m.Options, test.want)
			}
		})
	}
}

func TestMountsThatCannotBeAreRefusedBeforeAnythingIsMade(t *testing.T) {
	tests := []struct {
		what  string
		mount container.Mount
	}{
		{"host_path \"rel\" is not absolute", container.Mount{HostPath: "rel", ContainerPath: "/a"}},
		{"host_path \"\" is not absolute", container.Mount{ContainerPath: "/a"}},
		{"container_path is empty or the root", container.Mount{HostPath: "/tmp"}},
		{"container_path is empty or the root", container.Mount{HostPath: "/tmp", ContainerPath: "/a/../.."}},
		{"propagation \"loud\"", container.Mount{HostPath: "/tmp", ContainerPath: "/a", Propagation: "loud"}},
		{"option \"suid\"", container.Mount{HostPath: "/tmp", ContainerPath: "/a", Options: []string{"suid"}}},
		{"option \"noexec,bind\"", container.Mount{HostPath: "/tmp", ContainerPath: "/a", Options: []string{"noexec,bind"}}},
		{"without readonly", container.Mount{HostPath: "/tmp", ContainerPath: "/a", RecursiveReadOnly: true}},
		{"private propagation", container.Mount{HostPath: "/tmp", ContainerPath: "/a", ReadOnly: true, RecursiveReadOnly: true, Propagation: "rslave"}},
		{"host_path contains a NUL", container.Mount{HostPath: "/tmp\x00", ContainerPath: "/a"}},
		{"container_path is not UTF-8", container.Mount{HostPath: "/tmp", ContainerPath: "/\xff"}},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			in, host := withMounts(t, container.Mount{HostPath: "first", ContainerPath: "/first"})
			in.Container.Spec.Mounts = append(in.Container.Spec.Mounts, test.mount)
			wantRefused(t, in, test.what)
			if exists(filepath.Join(host, "first")) {
				t.Error("the source of the mount before it was made")
			}
		})
	}
}

func TestRecursiveReadOnlyIsNeverSilentlyLess(t *testing.T) {
	in, _ := withMounts(t, container.Mount{ContainerPath: "/a", ReadOnly: true, RecursiveReadOnly: true})
	in.Features.RecursiveReadOnly = false
	if _, _, err := Build(in); err == nil || !strings.HasPrefix(err.Error(), "RROUnsupported") {
		t.Errorf("got %v, want RROUnsupported as its first word", err)
	}
}

// TestPartOfAnImageIsADirectoryBelowIt has the image mounted already.
func TestPartOfAnImageIsADirectoryBelowIt(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a/file"), nil, 0o644))
	must(t, os.Symlink("/a", filepath.Join(dir, "absolute")))
	must(t, os.Symlink("../../../../../../etc", filepath.Join(dir, "out")))
	for part, want := range map[string]string{
		"": dir, "a": dir + "/a", "a/b": dir + "/a/b", "absolute/b": dir + "/a/b", "../../a": dir + "/a",
		"a/file": "", "c": "", "out": "",
	} {
		in, _ := withMounts(t)
		in.Container.Spec.Mounts = []container.Mount{{ContainerPath: "/v", HostPath: dir, Image: "i", ImageSubPath: part, ReadOnly: true}}
		s, _, err := Build(in)
		if want == "" {
			if err == nil || !strings.HasPrefix(err.Error(), "ImageVolumeMountFailed") {
				t.Errorf("%q: got %v, want ImageVolumeMountFailed as the first word", part, err)
			}
			continue
		}
		at := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/v" })
		if err != nil || s.Mounts[at].Source != want || !slices.Contains(s.Mounts[at].Options, "ro") {
			t.Errorf("%q: %v, %v", part, s.Mounts[at], err)
		}
	}
}

// mounted mounts a tmpfs with a propagation on a directory.
func mounted(t *testing.T, dir string, propagation uintptr) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", propagation, ""))
}

func TestPropagationNeedsAHostMountThatTakesPart(t *testing.T) {
	nstest.Lab(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	private, shared := filepath.Join(base, "private"), filepath.Join(base, "shared")
	mounted(t, private, unix.MS_PRIVATE)
	mounted(t, shared, unix.MS_SHARED)
	// A slave is the receiving end of a shared mount.
	slave := filepath.Join(base, "slave")
	must(t, os.Mkdir(slave, 0o755))
	must(t, unix.Mount(shared, slave, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(slave, unix.MNT_DETACH)) })
	must(t, unix.Mount("", slave, "", unix.MS_SLAVE, ""))
	tests := []struct {
		source, propagation, root string
	}{
		{private, "private", ""}, {shared, "private", ""}, {shared, "rslave", "rslave"}, {slave, "rslave", "rslave"},
		{shared, "rshared", "rshared"}, {private, "rslave", "refused"}, {private, "rshared", "refused"}, {slave, "rshared", "refused"},
	}
	for _, test := range tests {
		t.Run(filepath.Base(test.source)+" as "+test.propagation, func(t *testing.T) {
			in, _ := withMounts(t, container.Mount{HostPath: test.source + "/dir", ContainerPath: "/m", Propagation: test.propagation})
			s, _, err := Build(in)
			if test.root == "refused" {
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), test.source) {
					t.Errorf("got %v, want it refused with the mount's name", err)
				}
				return
			}
			must(t, err)
			if s.Linux.RootfsPropagation != test.root || mountAt(t, s, "/m").Options[1] != "r"+strings.TrimPrefix(test.propagation, "r") {
				t.Errorf("root %q, options %v", s.Linux.RootfsPropagation, mountAt(t, s, "/m").Options)
			}
		})
	}
}

func TestRootPropagationServesAllMounts(t *testing.T) {
	for _, order := range [][]string{{"", private, ""}, {"", rslave, rslave}, {rslave, private, rslave}, {rslave, rshared, rshared}, {rshared, rslave, rshared}} {
		if got := stronger(order[0], order[1]); got != order[2] {
			t.Errorf("%q and %q: %q, want %q", order[0], order[1], got, order[2])
		}
	}
}

func TestPrivateMountOfWhatContainsOurRootsDoesNotPinThem(t *testing.T) {
	in, host := withMounts(t, container.Mount{HostPath: "/", ContainerPath: "/host"}, container.Mount{ContainerPath: "/other"},
		container.Mount{HostPath: "/", ContainerPath: "/rro", ReadOnly: true, RecursiveReadOnly: true})
	in.Container.Spec.Mounts = append(in.Container.Spec.Mounts,
		container.Mount{HostPath: filepath.Dir(host), ContainerPath: "/state"}, container.Mount{HostPath: in.PodDir, ContainerPath: "/pod"})
	s, _ := build(t, in)
	for path, want := range map[string]string{"/host": "rslave", "/state": "rslave", "/other": "rprivate", "/pod": "rprivate", "/rro": "rprivate"} {
		if m := mountAt(t, s, path); m.Options[1] != want {
			t.Errorf("%s: %v, want %s", path, m.Options, want)
		}
	}
	if s.Linux.RootfsPropagation != "rslave" {
		t.Errorf("root propagation %q: the mounts would be pinned all the same", s.Linux.RootfsPropagation)
	}
}

func TestPrivilegedSeesTheHostsCgroups(t *testing.T) {
	for claim, test := range map[string]struct {
		unified, privileged bool
		kind, mode          string
		ownNamespace        bool
	}{
		"v2": {true, false, "cgroup", "ro", true}, "v2, privileged": {true, true, "bind", "rw", false},
		"v1": {false, false, "cgroup", "ro", false}, "v1, privileged": {false, true, "cgroup", "rw", false},
	} {
		t.Run(claim, func(t *testing.T) {
			in := kubelet(t)
			in.Features.Unified = test.unified
			in.Pod.Spec.Privileged, in.Container.Spec.Security.Privileged = test.privileged, test.privileged
			s, _ := build(t, in)
			m := mountAt(t, s, "/sys/fs/cgroup")
			own := slices.Contains(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
			if m.Type != test.kind || !slices.Contains(m.Options, test.mode) || own != test.ownNamespace {
				t.Errorf("%+v, own namespace %v", m, own)
			}
		})
	}
}
