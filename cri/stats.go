package cri

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/usage"
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
	pod, err := s.cfg.Pods.Get(c.Spec.PodID)
	if err != nil {
		return nil, err
	}
	u, err := s.cfg.Usage.Round().Container(ctx, pod, c.ID)
	if err != nil {
		return nil, err
	}
	return &runtime.ContainerStatsResponse{Stats: statsOf(c, u, s.cfg.Usage.Filesystem())}, nil
}

// ListContainerStats tells what those containers use that run and a filter leaves.
// One that cannot be read is left out: the others must not suffer.
func (s *Service) ListContainerStats(ctx context.Context, req *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error) {
	filter := req.GetFilter()
	want := selection{
		ID: filter.GetId(), PodID: filter.GetPodSandboxId(), Labels: filter.GetLabelSelector(),
		State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
	}
	pass := s.pass()
	resp := &runtime.ListContainerStatsResponse{}
	for c := range s.selected(want) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pod, err := s.cfg.Pods.Get(c.Spec.PodID)
		if err != nil {
			continue // it is gone, and so is the container
		}
		if u, ok := pass.container(ctx, pod, c); ok {
			resp.Stats = append(resp.Stats, statsOf(c, u, pass.filesystem))
		}
	}
	return resp, nil
}

// PodSandboxStats tells what a pod and its containers use. A pod that is not ready is
// errdefs.ErrUnavailable, since nothing of it can be read.
func (s *Service) PodSandboxStats(ctx context.Context, req *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error) {
	if req.GetPodSandboxId() == "" { // so the kubelet asks whether there is such a call
		return nil, invalid("pod_sandbox_id is empty")
	}
	pod, err := s.cfg.Pods.Get(s.fullID(req.GetPodSandboxId()))
	if err != nil {
		return nil, err
	}
	if pod.State != sandbox.Ready {
		return nil, fmt.Errorf("pod sandbox %q is %s, it uses nothing: %w", pod.ID, pod.State, errdefs.ErrUnavailable)
	}
	return &runtime.PodSandboxStatsResponse{Stats: s.pass().podStats(ctx, pod, s.runningByPod()[pod.ID])}, nil
}

// ListPodSandboxStats tells what those pods use that are ready and a filter leaves.
func (s *Service) ListPodSandboxStats(ctx context.Context, req *runtime.ListPodSandboxStatsRequest) (*runtime.ListPodSandboxStatsResponse, error) {
	filter := &runtime.PodSandboxFilter{
		Id: req.GetFilter().GetId(), LabelSelector: req.GetFilter().GetLabelSelector(),
		State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
	}
	pass, running := s.pass(), s.runningByPod()
	resp := &runtime.ListPodSandboxStatsResponse{}
	for _, pod := range s.cfg.Pods.List() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if matches(filter, pod) {
			resp.Stats = append(resp.Stats, pass.podStats(ctx, pod, running[pod.ID]))
		}
	}
	return resp, nil
}

// runningByPod returns the containers that run, by their pods.
func (s *Service) runningByPod() map[string][]*container.Container {
	pods := map[string][]*container.Container{}
	for _, c := range s.cfg.Containers.List() {
		if c.State == container.Running {
			pods[c.Spec.PodID] = append(pods[c.Spec.PodID], c)
		}
	}
	return pods
}

// pass is one answer's look at what is used.
type pass struct {
	s          *Service
	round      *usage.Round
	filesystem usage.Filesystem
}

func (s *Service) pass() pass {
	return pass{s: s, round: s.cfg.Usage.Round(), filesystem: s.cfg.Usage.Filesystem()}
}

// container reads what a container uses, false if it has ended or cannot be read.
func (p pass) container(ctx context.Context, pod *sandbox.Pod, c *container.Container) (usage.Container, bool) {
	u, err := p.round.Container(ctx, pod, c.ID)
	if err != nil && !errdefs.IsNotFound(err) {
		p.s.cfg.Log.Warn("a container is missing in the statistics", "container", c.ID, "error", err)
	}
	return u, err == nil
}

// podStats reads a pod and those of its containers that run.
func (p pass) podStats(ctx context.Context, pod *sandbox.Pod, running []*container.Container) *runtime.PodSandboxStats {
	linux := &runtime.LinuxPodSandboxStats{}
	used := make([]usage.Container, 0, len(running))
	for _, c := range running {
		if u, ok := p.container(ctx, pod, c); ok {
			used = append(used, u)
			linux.Containers = append(linux.Containers, statsOf(c, u, p.filesystem))
		}
	}
	u := p.round.Pod(pod, used)
	at := nanos(u.At)
	linux.Cpu, linux.Memory, linux.Io = cpuOf(u.Usage), memoryOf(u.Usage), ioOf(u.Usage)
	linux.Network = networkUsageOf(at, u.Links)
	if u.Processes.Count.Known {
		linux.Process = &runtime.ProcessUsage{Timestamp: at, ProcessCount: figure(u.Processes.Count)}
	}
	return &runtime.PodSandboxStats{Attributes: podAttributesOf(pod), Linux: linux}
}

func podAttributesOf(pod *sandbox.Pod) *runtime.PodSandboxAttributes {
	return &runtime.PodSandboxAttributes{
		Id: pod.ID, Metadata: metadataOf(pod), Labels: pod.Spec.Labels, Annotations: pod.Spec.Annotations,
	}
}

func attributesOf(c *container.Container) *runtime.ContainerAttributes {
	return &runtime.ContainerAttributes{
		Id: c.ID, Metadata: containerMetadataOf(c), Labels: c.Spec.Labels, Annotations: c.Spec.Annotations,
	}
}
