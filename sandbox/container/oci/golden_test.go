package oci

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

var update = flag.Bool("update", false, "write the golden files anew") //nolint:gochecknoglobals // flags are

func TestTypicalContainersHaveTheirGoldenSpec(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"kubelet": func(*Input) {},
		"privileged": func(in *Input) {
			in.Pod.Spec.Privileged, in.Container.Spec.Security.Privileged = true, true
		},
		"hostnetwork": func(in *Input) {
			in.Pod.Pins.Net.Path, in.Pod.Pins.UTS.Path = "", ""
			in.Pod.Spec.Namespaces.HostNetwork, in.Container.Spec.Security.Namespaces.HostNetwork = true, true
		},
		"tty": func(in *Input) {
			in.Container.Spec.Process = container.Process{Command: []string{"sh"}, TTY: true, Stdin: true, WorkDir: "/work"}
			in.Container.Spec.Security.User = container.User{Name: "app", SupplementalGroups: []int64{3000}}
		},
		"sharedpid": func(in *Input) {
			in.Pod.Spec.Namespaces.SharedPID, in.Pod.InitPID = true, 4711
			in.Container.Spec.Security.Namespaces.PID = "pod"
		},
		"limits-v1": func(in *Input) { *in = limited(*in, false) },
		"limits-v2": func(in *Input) { *in = limited(*in, true) },
	} {
		t.Run(name, func(t *testing.T) {
			in := kubelet(t)
			change(&in)
			s, _ := build(t, in)
			wantGolden(t, name, strings.ReplaceAll(plain(t, s), filepath.Dir(in.PodDir), "<dir>"))
		})
	}
}

// limited has all kinds of limits.
func limited(in Input, v2 bool) Input {
	in.Features.Unified = v2
	in.Container.Spec.Resources = container.Resources{
		CPUPeriod: 100000, CPUQuota: 50000, CPUShares: 512, CPUSetCPUs: "0-1", CPUSetMems: "0", MemoryLimit: 128 << 20,
		MemorySwap: 256 << 20, OOMScoreAdj: -997, HugepageLimit: map[string]uint64{"2MB": 4 << 20, "1GB": 0},
	}
	if v2 {
		in.Container.Spec.Resources.Unified = map[string]string{"memory.high": "120000000", "memory.min": "0"}
	}
	return in
}

// plain is a spec without what differs between machines: the filter's rules, the
// nodes and the daemon's capabilities in a privileged container.
func plain(t *testing.T, s *specs.Spec) string {
	t.Helper()
	if s.Linux.Seccomp != nil {
		s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: s.Linux.Seccomp.DefaultAction}
	}
	if len(s.Linux.Devices) > 0 {
		s.Linux.Devices = nil
		every := []string{"those of the daemon"}
		s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: every, Effective: every, Permitted: every}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	must(t, err)
	return string(b) + "\n"
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".json")
	if *update {
		write(t, file, got)
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs (-update writes it):\n%s", file, got)
	}
}

func TestSameInputGivesSameSpec(t *testing.T) {
	in := limited(kubelet(t), true)
	in.Image.Volumes = []string{"/b", "/a"}
	first, _ := build(t, in)
	second, _ := build(t, in)
	if a, b := plain(t, first), plain(t, second); a != b {
		t.Errorf("one after the other:\n%s\n%s", a, b)
	}
}
