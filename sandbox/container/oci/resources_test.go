package oci

import (
	"encoding/json"
	"testing"

	"github.com/crib-runtime/crib/sandbox/container"
)

func TestZeroLimitsAreUnset(t *testing.T) {
	full := Features{Unified: true, Swap: true, Hugetlb: true}
	tests := []struct {
		claim    string
		asked    container.Resources
		features Features
		want     string
	}{
		{"nothing", container.Resources{OOMScoreAdj: 5}, full, `{}`},
		{"CPUs alone, as the CPU manager updates", container.Resources{CPUSetCPUs: "0-3"}, full, `{"cpu":{"cpus":"0-3"}}`},
		{"no quota", container.Resources{CPUQuota: -1}, full, `{"cpu":{"quota":-1}}`},
		{"memory allows no swap", container.Resources{MemoryLimit: 10}, full, `{"memory":{"limit":10,"swap":10}}`},
		{"memory and some swap", container.Resources{MemoryLimit: 10, MemorySwap: 30}, full, `{"memory":{"limit":10,"swap":30}}`},
		{"swap alone", container.Resources{MemorySwap: 30}, full, `{"memory":{"swap":30}}`},
		{"swap that cannot be limited", container.Resources{MemoryLimit: 10, MemorySwap: 30}, Features{}, `{"memory":{"limit":10}}`},
		{"swap alone that cannot be limited", container.Resources{MemorySwap: 30}, Features{}, `{}`},
		{"huge pages that cannot be limited", container.Resources{HugepageLimit: map[string]uint64{"2MB": 1}}, Features{}, `{}`},
		{"unified", container.Resources{Unified: map[string]string{"memory.high": "max"}}, full, `{"unified":{"memory.high":"max"}}`},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			got, err := json.Marshal(Resources(test.asked, test.features))
			must(t, err)
			if string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestOOMScoreIsAlwaysSet(t *testing.T) {
	in := kubelet(t)
	in.Container.Spec.Resources = container.Resources{}
	if s, _ := build(t, in); s.Process.OOMScoreAdj == nil || *s.Process.OOMScoreAdj != 0 {
		t.Errorf("got %v, want 0: the daemon's own would be inherited", s.Process.OOMScoreAdj)
	}
}

func TestLimitsThatNoKernelTakesAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Input){
		"cpu_period is -1":        func(in *Input) { in.Container.Spec.Resources.CPUPeriod = -1 },
		"cpu_shares is -2":        func(in *Input) { in.Container.Spec.Resources.CPUShares = -2 },
		"oom_score_adj is 1001":   func(in *Input) { in.Container.Spec.Resources.OOMScoreAdj = 1001 },
		"this host has cgroup v1": func(in *Input) { *in = limited(*in, true); in.Features.Unified = false },
		"not the name of a file": func(in *Input) {
			in.Container.Spec.Resources.Unified = map[string]string{"../cgroup.procs": "1"}
		},
		"cpuset contains a NUL": func(in *Input) { in.Container.Spec.Resources.CPUSetMems = "0\x00" },
	} {
		t.Run(what, func(t *testing.T) {
			in := kubelet(t)
			change(&in)
			wantRefused(t, in, what)
		})
	}
}

func TestHostFeaturesAreFoundOut(t *testing.T) {
	f := HostFeatures()
	if !f.Seccomp {
		t.Error("no seccomp: every kernel that runs crib has it")
	}
	if f.OCIVersion != "" || f.RecursiveReadOnly || f.SELinux {
		t.Errorf("got %+v: these depend on the runtime and the configuration", f)
	}
}
