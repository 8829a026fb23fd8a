package cri

import (
	"maps"
	"slices"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
)

// resourcesFrom translates limits. The kernel has the last word on most of them;
// refused is only what could not even be said to it.
func resourcesFrom(field string, r *runtime.LinuxContainerResources) (container.Resources, error) {
	resources := container.Resources{
		CPUPeriod:   r.GetCpuPeriod(),
		CPUQuota:    r.GetCpuQuota(),
		CPUShares:   r.GetCpuShares(),
		CPUSetCPUs:  r.GetCpusetCpus(),
		CPUSetMems:  r.GetCpusetMems(),
		MemoryLimit: r.GetMemoryLimitInBytes(),
		MemorySwap:  r.GetMemorySwapLimitInBytes(),
		OOMScoreAdj: r.GetOomScoreAdj(),
		Unified:     r.GetUnified(),
	}
	const unlimited, worstScore = -1, 1000
	for name, number := range map[string]struct{ value, least int64 }{
		"cpu_period":                 {resources.CPUPeriod, 0},
		"cpu_quota":                  {resources.CPUQuota, unlimited},
		"cpu_shares":                 {resources.CPUShares, 0},
		"memory_limit_in_bytes":      {resources.MemoryLimit, unlimited},
		"memory_swap_limit_in_bytes": {resources.MemorySwap, unlimited},
		"oom_score_adj":              {resources.OOMScoreAdj, -worstScore},
	} {
		if number.value < number.least {
			return resources, invalid("%s.%s: %d is less than %d", field, name, number.value, number.least)
		}
	}
	if resources.OOMScoreAdj > worstScore {
		return resources, invalid("%s.oom_score_adj: %d is more than %d", field, resources.OOMScoreAdj, worstScore)
	}
	for i, h := range r.GetHugepageLimits() {
		if h.GetPageSize() == "" {
			return resources, invalid("%s.hugepage_limits[%d].page_size is empty", field, i)
		}
		if resources.HugepageLimit == nil {
			resources.HugepageLimit = map[string]uint64{}
		}
		resources.HugepageLimit[h.PageSize] = h.Limit
	}
	return resources, nil
}

func resourcesOf(r container.Resources) *runtime.LinuxContainerResources {
	resources := &runtime.LinuxContainerResources{
		CpuPeriod:              r.CPUPeriod,
		CpuQuota:               r.CPUQuota,
		CpuShares:              r.CPUShares,
		CpusetCpus:             r.CPUSetCPUs,
		CpusetMems:             r.CPUSetMems,
		MemoryLimitInBytes:     r.MemoryLimit,
		MemorySwapLimitInBytes: r.MemorySwap,
		OomScoreAdj:            r.OOMScoreAdj,
		Unified:                r.Unified,
	}
	for _, size := range slices.Sorted(maps.Keys(r.HugepageLimit)) {
		resources.HugepageLimits = append(resources.HugepageLimits, &runtime.HugepageLimit{PageSize: size, Limit: r.HugepageLimit[size]})
	}
	return resources
}
