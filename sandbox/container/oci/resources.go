package oci

import (
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// Resources translates limits. Zero fields are left unset: in an update they stay
// as they are. A memory limit without one for swap allows no swap, where the
// kernel can limit it. Limits of huge pages are left out where the kernel has none.
func Resources(r container.Resources, f Features) *specs.LinuxResources {
	return &specs.LinuxResources{
		CPU:            cpuLimits(r),
		Memory:         memoryLimits(r, f.Swap),
		HugepageLimits: hugepageLimits(r, f.Hugetlb),
		Unified:        maps.Clone(r.Unified),
	}
}

func cpuLimits(r container.Resources) *specs.LinuxCPU {
	if r.CPUPeriod <= 0 && r.CPUQuota == 0 && r.CPUShares <= 0 && r.CPUSetCPUs == "" && r.CPUSetMems == "" {
		return nil
	}
	cpu := &specs.LinuxCPU{Cpus: r.CPUSetCPUs, Mems: r.CPUSetMems}
	if r.CPUPeriod > 0 {
		period := uint64(r.CPUPeriod)
		cpu.Period = &period
	}
	if r.CPUQuota != 0 {
		quota := r.CPUQuota
		cpu.Quota = &quota
	}
	if r.CPUShares > 0 {
		shares := uint64(r.CPUShares)
		cpu.Shares = &shares
	}
	return cpu
}

func memoryLimits(r container.Resources, canLimitSwap bool) *specs.LinuxMemory {
	limit, swap := r.MemoryLimit, r.MemorySwap
	if swap == 0 {
		swap = limit // both together: no swap beyond memory
	}
	if limit == 0 && (swap == 0 || !canLimitSwap) {
		return nil
	}
	memory := &specs.LinuxMemory{}
	if limit != 0 {
		memory.Limit = &limit
	}
	if swap != 0 && canLimitSwap {
		memory.Swap = &swap
	}
	return memory
}

func hugepageLimits(r container.Resources, canLimit bool) []specs.LinuxHugepageLimit {
	if !canLimit {
		return nil
	}
	var limits []specs.LinuxHugepageLimit
	for _, size := range slices.Sorted(maps.Keys(r.HugepageLimit)) {
		limits = append(limits, specs.LinuxHugepageLimit{Pagesize: size, Limit: r.HugepageLimit[size]})
	}
	return limits
}

// setResources sets the limits of the cgroup, and how readily the kernel kills the
// process. The latter always, else it would be as protected as the daemon is.
func setResources(in Input, s *specs.Spec) error {
	r := in.Container.Spec.Resources
	if err := checkResources(r, in.Features); err != nil {
		return err
	}
	score := int(r.OOMScoreAdj)
	s.Process.OOMScoreAdj = &score
	s.Linux.Resources = Resources(r, in.Features)
	return checkText("the cgroup's path", in.CgroupsPath)
}

// checkResources refuses what no kernel takes.
func checkResources(r container.Resources, f Features) error {
	switch {
	case r.CPUPeriod < 0:
		return invalid("resources.cpu_period is %d microseconds, less than none", r.CPUPeriod)
	case r.CPUShares < 0:
		return invalid("resources.cpu_shares is %d, less than none", r.CPUShares)
	case r.OOMScoreAdj < -1000 || r.OOMScoreAdj > 1000:
		return invalid("resources.oom_score_adj is %d, out of range, -1000 to 1000", r.OOMScoreAdj)
	case len(r.Unified) > 0 && !f.Unified:
		return invalid("resources.unified is set, and this host has cgroup v1")
	}
	for file := range r.Unified {
		if file == "" || strings.ContainsAny(file, "/\x00") {
			return invalid("resources.unified: %q is not the name of a file of cgroup v2", file)
		}
	}
	return checkText("resources.cpuset", r.CPUSetCPUs+r.CPUSetMems)
}
