package cri

import (
	"context"
	"slices"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
)

// RunPodSandbox makes a pod.
func (s *Service) RunPodSandbox(ctx context.Context, req *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	spec, err := specFrom(req)
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Pods.Run(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &runtime.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox ends a pod's processes and releases what it has.
func (s *Service) StopPodSandbox(ctx context.Context, req *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	if err := s.cfg.Pods.Stop(ctx, s.fullID(req.GetPodSandboxId())); err != nil {
		return nil, err
	}
	return &runtime.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox deletes a pod, stopping it first if need be.
func (s *Service) RemovePodSandbox(ctx context.Context, req *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	if err := s.cfg.Pods.Remove(ctx, s.fullID(req.GetPodSandboxId())); err != nil {
		return nil, err
	}
	return &runtime.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus tells what the records say of a pod and its containers: kubelets
// that listen to events take all of it from here.
func (s *Service) PodSandboxStatus(_ context.Context, req *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	pod, err := s.cfg.Pods.Get(s.fullID(req.GetPodSandboxId()))
	if err != nil {
		return nil, err
	}
	resp := &runtime.PodSandboxStatusResponse{
		Status:             statusOf(pod),
		ContainersStatuses: statusesOf(slices.Collect(s.selected(selection{PodID: pod.ID}))),
		Timestamp:          time.Now().UnixNano(),
	}
	if req.GetVerbose() {
		resp.Info, err = infoOf(pod)
	}
	return resp, err
}

// ListPodSandbox lists the pods that a filter leaves.
func (s *Service) ListPodSandbox(_ context.Context, req *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	filter := req.GetFilter()
	resp := &runtime.ListPodSandboxResponse{}
	for _, pod := range s.cfg.Pods.List() {
		if matches(filter, pod) {
			resp.Items = append(resp.Items, itemOf(pod))
		}
	}
	return resp, nil
}

// UpdatePodSandboxResources says yes: the cgroup of a pod is the kubelet's, and what
// its containers may use comes by UpdateContainerResources. An error would make the
// kubelet refuse the whole change.
func (s *Service) UpdatePodSandboxResources(_ context.Context, req *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	if _, err := s.cfg.Pods.Get(s.fullID(req.GetPodSandboxId())); err != nil {
		return nil, err
	}
	return &runtime.UpdatePodSandboxResourcesResponse{}, nil
}

// fullID completes an id that people shortened, if it is of one pod only.
func (s *Service) fullID(id string) string {
	return complete(id, func(yield func(string) bool) {
		for _, pod := range s.cfg.Pods.List() {
			if !yield(pod.ID) {
				return
			}
		}
	})
}

func matches(filter *runtime.PodSandboxFilter, pod *sandbox.Pod) bool {
	if id := filter.GetId(); !strings.HasPrefix(pod.ID, id) {
		return false
	}
	if state := filter.GetState(); state != nil && state.GetState() != stateOf(pod) {
		return false
	}
	return hasLabels(pod.Spec.Labels, filter.GetLabelSelector())
}
