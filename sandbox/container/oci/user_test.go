package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/container"
)

func id(n int64) *int64 { return &n }

func TestUsersAndGroupsAreResolvedInTheImage(t *testing.T) {
	tests := []struct {
		claim    string
		asked    container.User
		image    string
		uid, gid int64
		groups   []int64
	}{
		{"nobody is asked for", container.User{}, "", 0, 0, []int64{0, 50}},
		{"number in the image", container.User{UID: id(1000)}, "", 1000, 1001, []int64{8, 50, 1001}},
		{"number not in the image", container.User{UID: id(4242)}, "", 4242, 0, []int64{0}},
		{"number and group", container.User{UID: id(4242), GID: id(7)}, "", 4242, 7, []int64{7}},
		{"name", container.User{Name: "app"}, "", 1000, 1001, []int64{8, 50, 1001}},
		{"name that is a number", container.User{Name: "1000"}, "", 1000, 1001, []int64{8, 50, 1001}},
		{"name and group", container.User{Name: "app", GID: id(7)}, "", 1000, 7, []int64{7, 8, 50}},
		{"image's name", container.User{}, "app", 1000, 1001, []int64{8, 50, 1001}},
		{"image's name and group", container.User{}, "app:mail", 1000, 8, []int64{8, 50}},
		{"image's numbers", container.User{}, "5:6", 5, 6, []int64{6}},
		{"image's group alone", container.User{}, ":mail", 0, 8, []int64{8, 50}},
		{"the request's user goes without the image's group", container.User{UID: id(5)}, "app:mail", 5, 0, []int64{0}},
		{"merged", container.User{UID: id(1000), SupplementalGroups: []int64{9000, 8}}, "", 1000, 1001, []int64{8, 50, 1001, 9000}},
		{"strict", container.User{UID: id(1000), SupplementalGroups: []int64{9000}, StrictGroups: true}, "", 1000, 1001, []int64{1001, 9000}},
		{"strict without groups", container.User{UID: id(1000), StrictGroups: true}, "", 1000, 1001, []int64{1001}},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Security.User, in.Image.User = test.asked, test.image
			_, u := build(t, in)
			if u.UID != test.uid || u.GID != test.gid || !slices.Equal(u.Groups, test.groups) {
				t.Errorf("got %+v, want %d %d %v", u, test.uid, test.gid, test.groups)
			}
		})
	}
}

func TestUsersThatCannotBeAreRefused(t *testing.T) {
	tests := []struct {
		asked container.User
		image string
		what  string
	}{
		{container.User{GID: id(5)}, "app", "run_as_group is 5 without"},
		{container.User{Name: "ghost"}, "", `user "ghost"`},
		{container.User{}, "ghost", `user "ghost"`},
		{container.User{}, "app:ghosts", `group "ghosts"`},
		{container.User{}, "a:b:c", "is not \"user\""},
		{container.User{UID: id(-1)}, "", "out of range"},
		{container.User{UID: id(1 << 31)}, "", "out of range"},
		{container.User{UID: id(1), GID: id(-7)}, "", "out of range"},
		{container.User{Name: "99999999999999999999"}, "", "out of range"},
		{container.User{SupplementalGroups: []int64{-1}}, "", "out of range"},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Security.User, in.Image.User = test.asked, test.image
			wantRefused(t, in, test.what)
		})
	}
}

func TestImageWithoutPasswdTakesNumbersOnly(t *testing.T) {
	in := kubelet(t)
	must(t, os.RemoveAll(filepath.Join(in.Root, "etc")))
	in.Container.Spec.Security.User.UID = id(7)
	if _, u := build(t, in); u.UID != 7 || u.GID != 0 {
		t.Errorf("got %+v", u)
	}
	in.Container.Spec.Security.User = container.User{Name: "app"}
	wantRefused(t, in, `user "app"`)
}

func TestLinksInTheImageDoNotLeaveItsRoot(t *testing.T) {
	in := kubelet(t)
	outside := filepath.Join(filepath.Dir(in.Root), "outside")
	write(t, outside, "evil:x:0:0::/:\n")
	for _, target := range []string{outside, "../../outside", "../../../../../../../../" + outside, "/proc/self/cwd/x", "/proc/1/root" + outside} {
		t.Run(target, func(t *testing.T) {
			passwd := filepath.Join(in.Root, "etc/passwd")
			must(t, os.RemoveAll(passwd))
			must(t, os.Symlink(target, passwd))
			in.Container.Spec.Security.User = container.User{Name: "evil"}
			wantRefused(t, in, `user "evil"`)
		})
	}
}

func TestLinksWithinTheImageAreFollowed(t *testing.T) {
	in := kubelet(t)
	must(t, os.MkdirAll(filepath.Join(in.Root, "nix/store"), 0o755))
	must(t, os.Rename(filepath.Join(in.Root, "etc"), filepath.Join(in.Root, "nix/store/etc")))
	must(t, os.Symlink("/nix/store/etc", filepath.Join(in.Root, "etc")))
	in.Container.Spec.Security.User.Name = "app"
	if _, u := build(t, in); u.UID != 1000 {
		t.Errorf("got %+v", u)
	}
}

func TestPasswdThatIsNotAFileIsRefusedWithoutBeingOpened(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			in := kubelet(t)
			passwd := filepath.Join(in.Root, "etc/passwd")
			must(t, os.Remove(passwd))
			must(t, put(passwd))
			wantRefused(t, in, "not a regular file")
		})
	}
}

func TestPasswdThatIsHugeIsRefused(t *testing.T) {
	in := kubelet(t)
	must(t, os.Truncate(filepath.Join(in.Root, "etc/passwd"), maxUserFile+1))
	wantRefused(t, in, "at most")
}

func TestPasswdWithNonsenseGivesNobodyRights(t *testing.T) {
	in := kubelet(t)
	write(t, filepath.Join(in.Root, "etc/passwd"), ":::\n\x00\n#x\nneg:x:-1:-1::/:\nbig:x:99999999999:1::/:\n+::::::\n")
	for _, name := range []string{"neg", "big"} {
		in.Container.Spec.Security.User = container.User{Name: name}
		if _, u, err := Build(in); err == nil && u.UID == 0 {
			t.Errorf("%s became %+v", name, u)
		}
	}
	write(t, filepath.Join(in.Root, "etc/passwd"), strings.Repeat("x", 1<<20))
	wantRefused(t, in, "parsing /etc/passwd")
}
