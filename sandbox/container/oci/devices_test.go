package oci

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox/container"
)

// nodesIn makes a directory with device nodes in it, one below another directory.
func nodesIn(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "sub/full": 7} {
		must(t, unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, minor))))
	}
	write(t, filepath.Join(dir, "file"), "")
	must(t, os.Symlink("null", filepath.Join(dir, "link")))
	return dir
}

func TestDevicesAreGivenWithTheirPermissions(t *testing.T) {
	nstest.Lab(t)
	dir := nodesIn(t)
	tests := []struct {
		claim  string
		device container.Device
		paths  []string
		access string
	}{
		{"one", container.Device{HostPath: dir + "/null", ContainerPath: "/dev/mine", Permissions: "rw"}, []string{"/dev/mine"}, "rw"},
		{"same path", container.Device{HostPath: dir + "/null", Permissions: "r"}, []string{dir + "/null"}, "r"},
		{"no permissions are all", container.Device{HostPath: dir + "/null", ContainerPath: "/dev/x"}, []string{"/dev/x"}, "rwm"},
		{"link", container.Device{HostPath: dir + "/link", ContainerPath: "/dev/x", Permissions: "mrw"}, []string{"/dev/x"}, "mrw"},
		{"directory", container.Device{HostPath: dir, ContainerPath: "/dev/all", Permissions: "rwm"},
			[]string{"/dev/all/null", "/dev/all/sub/full", "/dev/all/zero"}, "rwm"},
		{"path that climbs", container.Device{HostPath: dir + "/null", ContainerPath: "/../../dev/../x", Permissions: "rwm"}, []string{"/x"}, "rwm"},
		{"path that is relative", container.Device{HostPath: dir + "/null", ContainerPath: "dev/x", Permissions: "rwm"}, []string{"/dev/x"}, "rwm"},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Devices = []container.Device{test.device}
			s, _ := build(t, in)
			var paths []string
			for _, d := range s.Linux.Devices {
				paths = append(paths, d.Path)
			}
			slices.Sort(paths)
			if !slices.Equal(paths, test.paths) {
				t.Errorf("got %v, want %v", paths, test.paths)
			}
			rules := s.Linux.Resources.Devices
			if len(rules) != len(paths)+1 || rules[0].Allow || !rules[1].Allow || rules[1].Access != test.access || rules[1].Major == nil {
				t.Errorf("rules %+v", rules)
			}
		})
	}
}

func TestDevicesThatCannotBeAreRefused(t *testing.T) {
	nstest.Lab(t)
	dir := nodesIn(t)
	for what, d := range map[string]container.Device{
		"neither a device":  {HostPath: dir + "/file", ContainerPath: "/dev/x", Permissions: "rw"},
		"not absolute":      {HostPath: "dev/null", ContainerPath: "/dev/x", Permissions: "rw"},
		"letters of":        {HostPath: dir + "/null", ContainerPath: "/dev/x", Permissions: "rwx"},
		"\"rrrr\"":          {HostPath: dir + "/null", ContainerPath: "/dev/x", Permissions: "rrrr"},
		"path is the root":  {HostPath: dir + "/null", ContainerPath: "/..", Permissions: "rw"},
		"host_path contain": {HostPath: dir + "/null\x00", ContainerPath: "/dev/x", Permissions: "rw"},
	} {
		t.Run(what, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Devices = []container.Device{d}
			wantRefused(t, in, what)
		})
	}
	in := kubelet(t)
	in.Container.Spec.Devices = []container.Device{{HostPath: dir + "/missing", ContainerPath: "/dev/x"}}
	if _, _, err := Build(in); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("missing device: %v", err)
	}
}

func TestNothingIsAllowedWithoutDevices(t *testing.T) {
	s, _ := build(t, kubelet(t))
	if r := s.Linux.Resources.Devices; len(r) != 1 || r[0].Allow || r[0].Access != "rwm" || len(s.Linux.Devices) != 0 {
		t.Errorf("rules %+v, nodes %+v", r, s.Linux.Devices)
	}
}

func TestPrivilegedHasAllDevicesAndThoseOfTheRequestFirst(t *testing.T) {
	in := kubelet(t)
	in.Pod.Spec.Privileged, in.Container.Spec.Security.Privileged = true, true
	in.Container.Spec.Devices = []container.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/null", Permissions: "r"}}
	s, _ := build(t, in)
	if r := s.Linux.Resources.Devices; len(r) != 1 || !r[0].Allow || r[0].Access != "rwm" || r[0].Type != "" {
		t.Errorf("rules %+v", r)
	}
	at := func(path string) (found []specs.LinuxDevice) {
		for _, d := range s.Linux.Devices {
			if d.Path == path {
				found = append(found, d)
			}
		}
		return found
	}
	if null := at("/dev/null"); len(null) != 1 || null[0].Minor != 5 || len(at("/dev/zero")) != 1 {
		t.Errorf("/dev/null is %+v", null)
	}
}
