package oci

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

func TestCapabilitiesAreTheDefaultChanged(t *testing.T) {
	current, err := cap.Current()
	must(t, err)
	without := func(set []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(set), func(c string) bool { return c == name })
	}
	tests := []struct {
		claim         string
		asked         container.Capabilities
		want, ambient []string
	}{
		{"default", container.Capabilities{}, defaultCapabilities(), nil},
		{"added", container.Capabilities{Add: []string{"NET_ADMIN", "CHOWN"}}, append(defaultCapabilities(), "CAP_NET_ADMIN"), nil},
		{"added with prefix, in small letters", container.Capabilities{Add: []string{"cap_net_admin"}}, append(defaultCapabilities(), "CAP_NET_ADMIN"), nil},
		{"dropped", container.Capabilities{Drop: []string{"KILL"}}, without(defaultCapabilities(), "CAP_KILL"), nil},
		{"all dropped", container.Capabilities{Drop: []string{"ALL"}}, nil, nil},
		{"all dropped but one", container.Capabilities{Drop: []string{"all"}, Add: []string{"SYS_TIME"}}, []string{"CAP_SYS_TIME"}, nil},
		{"all", container.Capabilities{Add: []string{"ALL"}}, current, nil},
		{"all but one", container.Capabilities{Add: []string{"ALL"}, Drop: []string{"CHOWN"}}, without(current, "CAP_CHOWN"), nil},
		{"added and dropped", container.Capabilities{Add: []string{"SYS_TIME"}, Drop: []string{"SYS_TIME"}}, defaultCapabilities(), nil},
		{"ambient", container.Capabilities{Ambient: []string{"SYS_TIME"}}, append(defaultCapabilities(), "CAP_SYS_TIME"), []string{"CAP_SYS_TIME"}},
		{"ambient and dropped", container.Capabilities{Ambient: []string{"KILL"}, Drop: []string{"KILL"}}, without(defaultCapabilities(), "CAP_KILL"), nil},
		{"ambient and all dropped", container.Capabilities{Ambient: []string{"KILL"}, Drop: []string{"ALL"}}, nil, nil},
		{"ambient alone", container.Capabilities{Ambient: []string{"KILL"}, Drop: []string{"ALL"}, Add: []string{"KILL"}}, []string{"CAP_KILL"}, []string{"CAP_KILL"}},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Security.Capabilities = test.asked
			s, _ := build(t, in)
			c := s.Process.Capabilities
			for _, set := range [][]string{c.Bounding, c.Effective, c.Permitted} {
				if !slices.Equal(slices.Sorted(slices.Values(set)), slices.Sorted(slices.Values(test.want))) {
					t.Errorf("got %v, want %v", set, test.want)
				}
			}
			if !slices.Equal(c.Ambient, test.ambient) || !slices.Equal(c.Inheritable, test.ambient) {
				t.Errorf("ambient %v, inheritable %v, want %v in both", c.Ambient, c.Inheritable, test.ambient)
			}
		})
	}
}

func TestUnknownCapabilitiesAreRefused(t *testing.T) {
	for _, change := range []func(*container.Capabilities){
		func(c *container.Capabilities) { c.Add = []string{"NET_ADMINS"} },
		func(c *container.Capabilities) { c.Drop = []string{"CHOWNN"} },
		func(c *container.Capabilities) { c.Ambient = []string{""} },
	} {
		in := kubelet(t)
		change(&in.Container.Spec.Security.Capabilities)
		wantRefused(t, in, "is not a capability")
	}
}

func TestPrivilegedHasAllAndNothingInItsWay(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Security.Privileged = true
	wantRefused(t, in, "pod shop/web is not privileged")
	in.Pod.Spec.Privileged = true
	in.Container.Spec.Security.Capabilities.Drop = []string{"ALL"}
	in.Container.Spec.Security.Seccomp = container.Profile{Kind: "localhost", Localhost: "/missing.json"}
	s, _ := build(t, in)
	current, err := cap.Current()
	must(t, err)
	if !slices.Equal(s.Process.Capabilities.Bounding, current) {
		t.Errorf("capabilities %v", s.Process.Capabilities.Bounding)
	}
	if s.Linux.Seccomp != nil || s.Linux.MaskedPaths != nil || s.Linux.ReadonlyPaths != nil || s.Process.ApparmorProfile != "" {
		t.Errorf("got %+v", s.Linux)
	}
	if m := mountAt(t, s, "/sys"); !slices.Contains(m.Options, "rw") {
		t.Errorf("/sys: %v", m.Options)
	}
}

// allows says whether a profile lets a call through whatever its arguments are.
func allows(p *specs.LinuxSeccomp, call string) bool {
	return slices.ContainsFunc(p.Syscalls, func(s specs.LinuxSyscall) bool {
		return s.Action == specs.ActAllow && len(s.Args) == 0 && slices.Contains(s.Names, call)
	})
}

func TestDefaultFilterFollowsTheCapabilities(t *testing.T) {
	in := kubelet(t)
	s, _ := build(t, in)
	if !allows(s.Linux.Seccomp, "read") || allows(s.Linux.Seccomp, "mount") {
		t.Error("the default profile is not what it should be")
	}
	in.Container.Spec.Security.Capabilities.Add = []string{"SYS_ADMIN"}
	if s, _ = build(t, in); !allows(s.Linux.Seccomp, "mount") {
		t.Error("CAP_SYS_ADMIN does not allow mount")
	}
}

func TestProfilesOfTheNodeAreRead(t *testing.T) {
	in := kubelet(t)
	file := filepath.Join(filepath.Dir(in.PodDir), "profile.json")
	write(t, file, `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["chmod"],"action":"SCMP_ACT_ERRNO"}]}`)
	for _, name := range []string{file, "localhost/" + file} {
		in.Container.Spec.Security.Seccomp = container.Profile{Kind: "localhost", Localhost: name}
		s, _ := build(t, in)
		if p := s.Linux.Seccomp; p == nil || p.DefaultAction != specs.ActAllow || p.Syscalls[0].Names[0] != "chmod" {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}

func TestProfilesThatCannotBeAreRefused(t *testing.T) {
	in := kubelet(t)
	broken := filepath.Join(filepath.Dir(in.PodDir), "broken.json")
	write(t, broken, "{")
	for what, p := range map[string]container.Profile{
		"not an absolute path":    {Kind: "localhost", Localhost: "a.json"},
		"localhost_ref is empty":  {Kind: "localhost", Localhost: "localhost/"},
		"parsing seccomp profile": {Kind: "localhost", Localhost: broken},
		"is not a file of":        {Kind: "localhost", Localhost: "/dev/zero"},
		"is only for":             {Kind: "default", Localhost: broken},
		"not a kind of profile":   {Kind: "strict"},
	} {
		t.Run(what, func(t *testing.T) {
			in.Container.Spec.Security.Seccomp = p
			wantRefused(t, in, what)
		})
	}
}

func TestProfilesThatTheHostLacksAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Input){
		"no seccomp filters": func(in *Input) { in.Features.Seccomp = false },
		"no such file": func(in *Input) {
			in.Container.Spec.Security.Seccomp = container.Profile{Kind: "localhost", Localhost: "/missing"}
		},
		"AppArmor is not enable": func(in *Input) { in.Container.Spec.Security.AppArmor.Kind = "default" },
		"AppArmor is not ena": func(in *Input) {
			in.Container.Spec.Security.AppArmor = container.Profile{Kind: "localhost", Localhost: "p"}
		},
	} {
		in := kubelet(t)
		change(&in)
		if _, _, err := Build(in); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestUnconfinedAndNoneAreNoFilter(t *testing.T) {
	for _, kind := range []string{"", "unconfined"} {
		in := kubelet(t)
		in.Container.Spec.Security.Seccomp.Kind, in.Container.Spec.Security.AppArmor.Kind = kind, kind
		in.Features.Seccomp = false
		if s, _ := build(t, in); s.Linux.Seccomp != nil || s.Process.ApparmorProfile != "" {
			t.Errorf("%q: got %+v", kind, s.Linux.Seccomp)
		}
	}
}

func TestLabelsAreWrittenWhereTheHostHasThem(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Security.SELinux = "system_u:system_r:container_t:s0:c1,c2"
	if s, _ := build(t, in); s.Process.SelinuxLabel != "" || s.Linux.MountLabel != "" {
		t.Errorf("without SELinux: %q, %q", s.Process.SelinuxLabel, s.Linux.MountLabel)
	}
	in.Features.SELinux = true
	s, _ := build(t, in)
	if s.Process.SelinuxLabel != in.Container.Spec.Security.SELinux || s.Linux.MountLabel != "system_u:object_r:container_file_t:s0:c1,c2" {
		t.Errorf("got %q, %q", s.Process.SelinuxLabel, s.Linux.MountLabel)
	}
	in.Container.Spec.Security.SELinux = "::spc_t:"
	if s, _ = build(t, in); s.Process.SelinuxLabel != "system_u:system_r:spc_t:s0" || s.Linux.MountLabel != "system_u:object_r:container_file_t:s0" {
		t.Errorf("parts that are left out: %q, %q", s.Process.SelinuxLabel, s.Linux.MountLabel)
	}
	in.Container.Spec.Security.SELinux = "container_t"
	wantRefused(t, in, "user:role:type:level")
}

func TestNoNewPrivilegesAndPathsAreAsGiven(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Security.NoNewPrivileges = true
	in.Container.Spec.Security.MaskedPaths, in.Container.Spec.Security.ReadOnlyPaths = nil, []string{"/z", "/a"}
	s, _ := build(t, in)
	if !s.Process.NoNewPrivileges || len(s.Linux.MaskedPaths) != 0 || !slices.Equal(s.Linux.ReadonlyPaths, []string{"/z", "/a"}) {
		t.Errorf("got %v, %v, %v", s.Process.NoNewPrivileges, s.Linux.MaskedPaths, s.Linux.ReadonlyPaths)
	}
}
