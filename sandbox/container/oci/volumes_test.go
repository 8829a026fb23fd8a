package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox/container"
)

func TestVolumesOfTheImageHaveItsContentAndOwner(t *testing.T) {
	nstest.Lab(t)
	in := kubelet(t)
	data := filepath.Join(in.Root, "data")
	write(t, filepath.Join(data, "sub/file"), "content")
	must(t, os.Symlink("/etc/passwd", filepath.Join(data, "link")))
	must(t, os.Chmod(data, 0o2770))
	must(t, os.Chown(data, 7, 8))
	must(t, os.Chmod(data, 0o770|os.ModeSetgid))
	in.Image.Volumes = []string{"/data", "missing"}
	s, _ := build(t, in)
	volume := mountAt(t, s, "/data").Source
	info, err := os.Stat(volume)
	must(t, err)
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 7 || st.Gid != 8 || info.Mode() != os.ModeDir|os.ModeSetgid|0o770 {
		t.Errorf("volume is %d:%d %v", st.Uid, st.Gid, info.Mode())
	}
	b, err := os.ReadFile(filepath.Join(volume, "sub/file"))
	if err != nil || string(b) != "content" {
		t.Errorf("file in the volume: %q, %v", b, err)
	}
	if link, err := os.Readlink(filepath.Join(volume, "link")); link != "/etc/passwd" {
		t.Errorf("a link was followed: %q, %v", link, err)
	}
	left, err := os.ReadDir(mountAt(t, s, "/missing").Source)
	if err != nil || len(left) != 0 {
		t.Errorf("volume that the image has nothing in: %v, %v", left, err)
	}
}

func TestVolumesStayAsTheyAreWhenBuiltAgain(t *testing.T) {
	in := kubelet(t)
	write(t, filepath.Join(in.Root, "data/file"), "old")
	in.Image.Volumes = []string{"/data"}
	s, _ := build(t, in)
	file := filepath.Join(mountAt(t, s, "/data").Source, "file")
	write(t, file, "new")
	build(t, in)
	if b, err := os.ReadFile(file); string(b) != "new" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestHalfCopiedVolumeIsMadeAnew(t *testing.T) {
	in := kubelet(t)
	write(t, filepath.Join(in.Root, "data/file"), "whole")
	in.Image.Volumes = []string{"/data"}
	s, _ := build(t, in)
	volume := mountAt(t, s, "/data").Source
	must(t, os.RemoveAll(volume))
	write(t, filepath.Join(volume+".new", "rest"), "torn") // as a crash leaves it
	build(t, in)
	left, err := filepath.Glob(filepath.Join(in.Volumes, "*/*"))
	if err != nil || !slices.Equal(left, []string{filepath.Join(volume, "file")}) {
		t.Errorf("got %v, %v", left, err)
	}
}

func TestRequestsMountTakesTheVolumesPlace(t *testing.T) {
	in, host := withMounts(t, container.Mount{ContainerPath: "/data/"})
	in.Image.Volumes = []string{"/data", "/data/../data"}
	s, _ := build(t, in)
	if m := mountAt(t, s, "/data"); m.Source != host || exists(in.Volumes) {
		t.Errorf("got %+v", m)
	}
}

func TestVolumesDoNotLeaveTheRoot(t *testing.T) {
	in := kubelet(t)
	outside := filepath.Join(filepath.Dir(in.Root), "secret")
	write(t, filepath.Join(outside, "key"), "secret")
	must(t, os.Symlink(outside, filepath.Join(in.Root, "absolute")))
	must(t, os.Symlink("../../secret", filepath.Join(in.Root, "relative")))
	in.Image.Volumes = []string{"/absolute", "/relative", "/../secret", "../../../secret/x", "/a/../../secret"}
	s, _ := build(t, in)
	for _, m := range s.Mounts {
		if strings.HasPrefix(m.Destination, "/..") {
			t.Errorf("mounted at %s", m.Destination)
		}
	}
	left, err := filepath.Glob(filepath.Join(in.Volumes, "*/*"))
	if err != nil || len(left) != 0 {
		t.Errorf("copied from outside: %v, %v", left, err)
	}
}

func TestVolumesThatCannotBeAreRefused(t *testing.T) {
	for what, volume := range map[string]string{"its root as a volume": "/..", "not a directory": "/etc/passwd", "NUL": "/a\x00",
		"opening \"/etc/passwd/x\"": "/etc/passwd/x", "too many levels": "/loop/x"} {
		t.Run(what, func(t *testing.T) {
			in := kubelet(t)
			must(t, os.Symlink("loop", filepath.Join(in.Root, "loop")))
			in.Image.Volumes = []string{volume}
			wantRefused(t, in, what)
			if left, _ := filepath.Glob(filepath.Join(in.Volumes, "*")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
