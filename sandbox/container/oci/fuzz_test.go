package oci

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/container"
)

// FuzzBuildNeverPanicsOrPassesOnWhatItCannot puts one string and one number
// everywhere that they do not make anything outside of the test's directory.
func FuzzBuildNeverPanicsOrPassesOnWhatItCannot(f *testing.F) {
	for _, s := range []string{"", "a", "=", "A=B", "/", "..", "/..", "a\x00b", "\xff", "root", "0", "-1", ":", "a:b:c", "rwm",
		"ALL", "cap_chown", "localhost/", "0-3", "default", "rshared", "vendor.com/gpu=0", strings.Repeat("9", 40), strings.Repeat("a", 300), strings.Repeat("a/", 3000)} {
		f.Add(s, int64(0))
		f.Add(s, int64(-1))
	}
	f.Fuzz(func(t *testing.T, s string, n int64) {
		for which, change := range odd(s, n) {
			in := kubelet(t)
			in.Container.Spec.Security.Seccomp.Kind = "" // the default profile is long, and takes nothing from the request
			in.CDIDirs = []string{filepath.Join(in.Root, "none")}
			change(&in)
			spec, _, err := Build(in)
			if err != nil {
				wantClass(t, which, err)
				continue
			}
			b, err := json.Marshal(spec)
			must(t, err)
			if (strings.ContainsRune(s, 0) || !utf8.ValidString(s)) && strings.Contains(string(b), `\u0000`) {
				t.Errorf("%s: a NUL was passed on: %s", which, b)
			}
		}
	})
}

func wantClass(t *testing.T, which string, err error) {
	t.Helper()
	if !errdefs.IsInvalidArgument(err) && !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotImplemented(err) {
		t.Errorf("%s: %v has no class", which, err)
	}
}

// odd puts the values into one part of the input each.
func odd(s string, n int64) map[string]func(*Input) {
	spec := func(in *Input) *container.Spec { return &in.Container.Spec }
	return map[string]func(*Input){
		"process": func(in *Input) {
			spec(in).Process = container.Process{Command: []string{s}, Args: []string{s}, Env: []string{s}, WorkDir: s}
		},
		"image": func(in *Input) {
			in.Image.Env, in.Image.Entrypoint, in.Image.WorkDir, in.Image.User = []string{s}, []string{s}, s, s
		},
		"volumes": func(in *Input) { in.Image.Volumes = []string{s} },
		"user": func(in *Input) {
			spec(in).Security.User = container.User{Name: s, GID: &n, SupplementalGroups: []int64{n}}
		},
		"number": func(in *Input) { spec(in).Security.User = container.User{UID: &n} },
		"mount": func(in *Input) {
			spec(in).Mounts = []container.Mount{{HostPath: in.PodDir, ContainerPath: s, Propagation: s}, {HostPath: in.PodDir, ContainerPath: s, Options: []string{s}}}
		},
		"target": func(in *Input) { spec(in).Mounts = []container.Mount{{HostPath: in.PodDir, ContainerPath: s}} },
		"device": func(in *Input) {
			spec(in).Devices = []container.Device{{HostPath: "/dev/null", ContainerPath: s, Permissions: "r"}}
		},
		"permissions": func(in *Input) { spec(in).Devices = []container.Device{{HostPath: "/dev/null", Permissions: s}} },
		"cdi":         func(in *Input) { spec(in).CDIDevices = []string{s} },
		"annotation":  func(in *Input) { spec(in).Annotations = map[string]string{"cdi.k8s.io/" + s: s} },
		"capabilities": func(in *Input) {
			spec(in).Security.Capabilities = container.Capabilities{Add: []string{s}, Drop: []string{s}}
		},
		"ambient":    func(in *Input) { spec(in).Security.Capabilities.Ambient = []string{s} },
		"profile":    func(in *Input) { spec(in).Security.Seccomp = container.Profile{Kind: s, Localhost: s} },
		"localhost":  func(in *Input) { spec(in).Security.AppArmor = container.Profile{Kind: "localhost", Localhost: s} },
		"selinux":    func(in *Input) { spec(in).Security.SELinux, in.Features.SELinux = s, true },
		"namespaces": func(in *Input) { spec(in).Security.Namespaces.PID, in.PIDNamespace = s, s },
		"resources": func(in *Input) {
			spec(in).Resources = container.Resources{CPUPeriod: n, CPUQuota: n, CPUShares: n, CPUSetCPUs: s, MemoryLimit: n,
				MemorySwap: n, OOMScoreAdj: n, HugepageLimit: map[string]uint64{s: 1}, Unified: map[string]string{s: s}}
		},
	}
}
