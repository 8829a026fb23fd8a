package cri

import (
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/usage"
)

// statsOf is what a container uses as CRI has it. What a kernel does not count is
// left out, since a 0 would be taken for the truth.
func statsOf(c *container.Container, u usage.Container, fs usage.Filesystem) *runtime.ContainerStats {
	stats := &runtime.ContainerStats{
		Attributes: attributesOf(c),
		Cpu:        cpuOf(u.Usage),
		Memory:     memoryOf(u.Usage),
		Swap:       swapOf(u.Usage),
		Io:         ioOf(u.Usage),
	}
	if !u.Layer.At.IsZero() {
		stats.WritableLayer = &runtime.FilesystemUsage{
			Timestamp:  nanos(u.Layer.At),
			FsId:       filesystemOf(fs.Dir),
			UsedBytes:  number(u.Layer.Bytes),
			InodesUsed: number(u.Layer.Inodes),
		}
	}
	return stats
}

// cpuOf has no rate before there are two samples: that makes the kubelet compute one
// itself.
func cpuOf(u cgroup.Usage) *runtime.CpuUsage {
	if !u.CPU.Total.Known {
		return nil
	}
	return &runtime.CpuUsage{
		Timestamp:            nanos(u.At),
		UsageCoreNanoSeconds: figure(u.CPU.Total),
		UsageNanoCores:       figure(u.CPU.Rate),
		Psi:                  pressureOf(u.CPU.Pressure),
	}
}

func memoryOf(u cgroup.Usage) *runtime.MemoryUsage {
	m := u.Memory
	if !m.Usage.Known {
		return nil
	}
	return &runtime.MemoryUsage{
		Timestamp:       nanos(u.At),
		WorkingSetBytes: figure(m.WorkingSet),
		AvailableBytes:  left(m.Limit, m.WorkingSet),
		UsageBytes:      figure(m.Usage),
		RssBytes:        figure(m.RSS),
		PageFaults:      figure(m.Faults),
		MajorPageFaults: figure(m.MajorFaults),
		Psi:             pressureOf(m.Pressure),
	}
}

func swapOf(u cgroup.Usage) *runtime.SwapUsage {
	if !u.Swap.Usage.Known {
		return nil
	}
	return &runtime.SwapUsage{
		Timestamp:          nanos(u.At),
		SwapAvailableBytes: left(u.Swap.Limit, u.Swap.Usage),
		SwapUsageBytes:     figure(u.Swap.Usage),
	}
}

func ioOf(u cgroup.Usage) *runtime.IoUsage {
	psi := pressureOf(u.IO.Pressure)
	if psi == nil {
		return nil
	}
	return &runtime.IoUsage{Timestamp: nanos(u.At), Psi: psi}
}

func pressureOf(p cgroup.Pressure) *runtime.PsiStats {
	if !p.Some.Known && !p.Full.Known {
		return nil
	}
	stall := func(s cgroup.Stall) *runtime.PsiData {
		return &runtime.PsiData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtime.PsiStats{Full: stall(p.Full), Some: stall(p.Some)}
}

// networkUsageOf takes the pod's first link for the default one; the others follow
// without it. A pod in the host's network has none.
func networkUsageOf(at int64, links []usage.Link) *runtime.NetworkUsage {
	if len(links) == 0 {
		return nil
	}
	network := &runtime.NetworkUsage{Timestamp: at}
	for i, link := range links {
		u := &runtime.NetworkInterfaceUsage{
			Name:    link.Name,
			RxBytes: number(link.RxBytes), RxErrors: number(link.RxErrors),
			TxBytes: number(link.TxBytes), TxErrors: number(link.TxErrors),
		}
		if i == 0 {
			network.DefaultInterface = u
		} else {
			network.Interfaces = append(network.Interfaces, u)
		}
	}
	return network
}

// left is what a limit leaves, nil without a limit.
func left(limit, used cgroup.Figure) *runtime.UInt64Value {
	if !limit.Known || !used.Known {
		return nil
	}
	return number(limit.Value - min(limit.Value, used.Value))
}

// figure is nil for what a kernel does not count.
func figure(f cgroup.Figure) *runtime.UInt64Value {
	if !f.Known {
		return nil
	}
	return number(f.Value)
}

// filesystemOf is nil for an unknown one, since the kubelet looks at what it gets.
func filesystemOf(mountpoint string) *runtime.FilesystemIdentifier {
	if mountpoint == "" {
		return nil
	}
	return &runtime.FilesystemIdentifier{Mountpoint: mountpoint}
}

func number(n uint64) *runtime.UInt64Value { return &runtime.UInt64Value{Value: n} }
