package cri

import (
	"context"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
)

// ContainerStats tells what a container uses; one that does not run uses nothing.
func (s *Service) ContainerStats(ctx context.Context, req *runtime.ContainerStatsRequest) (*runtime.ContainerStatsResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.State != container.Running {
		return &runtime.ContainerStatsResponse{Stats: &runtime.ContainerStats{Attributes: attributesOf(c)}}, nil
	}
	usage, err := s.cfg.Containers.Usage(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	return &runtime.ContainerStatsResponse{Stats: statsOf(c, usage, s.mountpoint(ctx))}, nil
}

// ListContainerStats tells what those containers use that run and a filter leaves.
// One that cannot be read is left out: the others must not suffer.
func (s *Service) ListContainerStats(ctx context.Context, req *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error) {
	filter := req.GetFilter()
	want := selection{
		ID: filter.GetId(), PodID: filter.GetPodSandboxId(), Labels: filter.GetLabelSelector(),
		State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
	}
	mountpoint := s.mountpoint(ctx)
	resp := &runtime.ListContainerStatsResponse{}
	for c := range s.selected(want) {
		usage, err := s.cfg.Containers.Usage(ctx, c.ID)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			resp.Stats = append(resp.Stats, statsOf(c, usage, mountpoint))
		} else if !errdefs.IsNotFound(err) { // it has ended meanwhile
			s.cfg.Log.Warn("a container is missing in the statistics", "container", c.ID, "error", err)
		}
	}
	return resp, nil
}

// mountpoint is that of the filesystem on which writable layers are, "" if unknown.
func (s *Service) mountpoint(ctx context.Context) string {
	usage, err := s.cfg.Images.ImageUsage(ctx)
	if err != nil {
		s.cfg.Log.Warn("the statistics do not say where writable layers are", "error", err)
	}
	return usage.Mountpoint
}

func attributesOf(c *container.Container) *runtime.ContainerAttributes {
	return &runtime.ContainerAttributes{
		Id: c.ID, Metadata: containerMetadataOf(c), Labels: c.Spec.Labels, Annotations: c.Spec.Annotations,
	}
}

// statsOf leaves usage_nano_cores out: that makes the kubelet compute it from two
// samples, while a 0 would be taken for the truth.
func statsOf(c *container.Container, u container.Usage, mountpoint string) *runtime.ContainerStats {
	at := nanos(u.At)
	stats := &runtime.ContainerStats{
		Attributes: attributesOf(c),
		Cpu:        &runtime.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: number(u.CPUNanos)},
		Memory: &runtime.MemoryUsage{
			Timestamp:       at,
			WorkingSetBytes: number(u.MemoryWorkingSet),
			UsageBytes:      number(u.MemoryUsage),
			RssBytes:        number(u.MemoryRSS),
			PageFaults:      number(u.PageFaults),
			MajorPageFaults: number(u.MajorPageFaults),
		},
		Swap: &runtime.SwapUsage{Timestamp: at, SwapUsageBytes: number(u.SwapUsage)},
	}
	if u.MemoryLimit > 0 {
		stats.Memory.AvailableBytes = number(u.MemoryLimit - min(u.MemoryWorkingSet, u.MemoryLimit))
	}
	if !u.WritableAt.IsZero() {
		stats.WritableLayer = &runtime.FilesystemUsage{
			Timestamp:  nanos(u.WritableAt),
			FsId:       filesystemOf(mountpoint),
			UsedBytes:  number(u.WritableBytes),
			InodesUsed: number(u.WritableInodes),
		}
	}
	return stats
}

// filesystemOf is nil for an unknown one, since the kubelet looks at what it gets.
func filesystemOf(mountpoint string) *runtime.FilesystemIdentifier {
	if mountpoint == "" {
		return nil
	}
	return &runtime.FilesystemIdentifier{Mountpoint: mountpoint}
}

func number(n uint64) *runtime.UInt64Value { return &runtime.UInt64Value{Value: n} }
