package cri

import (
	"context"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
)

// CreateContainer makes a container that does not run yet.
func (s *Service) CreateContainer(ctx context.Context, req *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	pod, err := s.cfg.Pods.Get(s.fullID(req.GetPodSandboxId()))
	if err != nil {
		return nil, err
	}
	spec, err := containerSpecFrom(req, pod)
	if err != nil {
		return nil, err
	}
	spec.Security.Namespaces.Target = s.fullContainerID(spec.Security.Namespaces.Target)
	id, err := s.cfg.Containers.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &runtime.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer runs a container that was created.
func (s *Service) StartContainer(ctx context.Context, req *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	if err := s.cfg.Containers.Start(ctx, s.fullContainerID(req.GetContainerId())); err != nil {
		return nil, err
	}
	return &runtime.StartContainerResponse{}, nil
}

// StopContainer ends a container, by force when the grace period is over.
func (s *Service) StopContainer(ctx context.Context, req *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	id := s.fullContainerID(req.GetContainerId())
	err := s.cfg.Containers.Stop(ctx, id, seconds(req.GetTimeout()))
	if err != nil && !s.unknown(id, err) {
		return nil, err
	}
	return &runtime.StopContainerResponse{}, nil
}

// RemoveContainer deletes a container, ending it first if need be.
func (s *Service) RemoveContainer(ctx context.Context, req *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	id := s.fullContainerID(req.GetContainerId())
	err := s.cfg.Containers.Remove(ctx, id)
	if err != nil && !s.unknown(id, err) {
		return nil, err
	}
	return &runtime.RemoveContainerResponse{}, nil
}

// unknown says whether an error is that the container is not there, and not
// something else that the container wants.
func (s *Service) unknown(id string, err error) bool {
	if !errdefs.IsNotFound(err) {
		return false
	}
	_, err = s.cfg.Containers.Get(id)
	return errdefs.IsNotFound(err)
}

// ListContainers lists the containers that a filter leaves.
func (s *Service) ListContainers(_ context.Context, req *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	filter := req.GetFilter()
	want := selection{ID: filter.GetId(), PodID: filter.GetPodSandboxId(), Labels: filter.GetLabelSelector(), State: filter.GetState()}
	resp := &runtime.ListContainersResponse{}
	for c := range s.selected(want) {
		resp.Containers = append(resp.Containers, containerItemOf(c))
	}
	return resp, nil
}

// ContainerStatus tells what the record says.
func (s *Service) ContainerStatus(ctx context.Context, req *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &runtime.ContainerStatusResponse{Status: containerStatusOf(c)}
	if req.GetVerbose() {
		spec, specErr := s.cfg.Containers.RuntimeSpec(ctx, c.ID)
		if specErr != nil {
			spec = nil // the rest is worth showing
		}
		resp.Info, err = containerInfoOf(c, spec)
	}
	return resp, err
}

// UpdateContainerResources changes limits; what is zero stays as it is.
func (s *Service) UpdateContainerResources(ctx context.Context, req *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	resources, err := resourcesFrom("linux", req.GetLinux())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Containers.Update(ctx, s.fullContainerID(req.GetContainerId()), resources); err != nil {
		return nil, err
	}
	return &runtime.UpdateContainerResourcesResponse{}, nil
}

// ReopenContainerLog makes the log file anew, after a rotation.
func (s *Service) ReopenContainerLog(ctx context.Context, req *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error) {
	if err := s.cfg.Containers.ReopenLog(ctx, s.fullContainerID(req.GetContainerId())); err != nil {
		return nil, err
	}
	return &runtime.ReopenContainerLogResponse{}, nil
}

// container returns the record of a container by its id, maybe shortened.
func (s *Service) container(id string) (*container.Container, error) {
	if id == "" {
		return nil, invalid("container_id is empty")
	}
	return s.cfg.Containers.Get(s.fullContainerID(id))
}

// fullContainerID completes an id that people shortened, if it is of one container only.
func (s *Service) fullContainerID(id string) string {
	return complete(id, func(yield func(string) bool) {
		for _, c := range s.cfg.Containers.List() {
			if !yield(c.ID) {
				return
			}
		}
	})
}

// complete returns the only one of the ids that begins with id, else id itself.
func complete(id string, ids iter.Seq[string]) string {
	const whole = 64
	if id == "" || len(id) >= whole {
		return id
	}
	found := id
	for candidate := range ids {
		if !strings.HasPrefix(candidate, id) {
			continue
		}
		if found != id {
			return id
		}
		found = candidate
	}
	return found
}

// selection is what the filters of lists ask for. Zero fields ask for nothing.
type selection struct {
	ID, PodID string // maybe shortened
	Labels    map[string]string
	State     *runtime.ContainerStateValue
}

// selected yields the containers of a selection that clients may see.
func (s *Service) selected(want selection) iter.Seq[*container.Container] {
	return func(yield func(*container.Container) bool) {
		for _, c := range s.cfg.Containers.List() {
			if c.State != container.Creating && want.has(c) && !yield(c) {
				return
			}
		}
	}
}

func (want selection) has(c *container.Container) bool {
	if !strings.HasPrefix(c.ID, want.ID) || !strings.HasPrefix(c.Spec.PodID, want.PodID) {
		return false
	}
	if want.State != nil && want.State.GetState() != containerStateOf(c) {
		return false
	}
	return hasLabels(c.Spec.Labels, want.Labels)
}

// hasLabels says whether all of the wanted labels are there.
func hasLabels(labels, want map[string]string) bool {
	for key, value := range want {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// seconds is a time that a request gives; less than none is none.
func seconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}
