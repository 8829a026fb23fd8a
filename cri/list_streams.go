package cri

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chunkBytes is how much of a list is sent at once. One thing alone may be more.
const chunkBytes = 1 << 20

// chunks sends a list piece by piece.
type chunks[T proto.Message] struct {
	send    func([]T) error
	pending []T
	bytes   int
}

// add sends what is pending when this would make it too much.
func (c *chunks[T]) add(item T) error {
	size := proto.Size(item)
	if len(c.pending) > 0 && c.bytes+size > chunkBytes {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.pending, c.bytes = append(c.pending, item), c.bytes+size
	return nil
}

func (c *chunks[T]) flush() error {
	if len(c.pending) == 0 {
		return nil
	}
	err := c.send(c.pending)
	c.pending, c.bytes = nil, 0
	return err
}

// sendAll sends a whole list.
func sendAll[T proto.Message](items []T, send func([]T) error) error {
	c := chunks[T]{send: send}
	for _, item := range items {
		if err := c.add(item); err != nil {
			return err
		}
	}
	return c.flush()
}

// StreamPodSandboxes is ListPodSandbox in pieces.
func (s *Service) StreamPodSandboxes(req *runtime.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtime.StreamPodSandboxesResponse]) error {
	list, err := s.ListPodSandbox(stream.Context(), &runtime.ListPodSandboxRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendAll(list.Items, func(items []*runtime.PodSandbox) error {
		return stream.Send(&runtime.StreamPodSandboxesResponse{PodSandboxes: items})
	})
}

// StreamContainers is ListContainers in pieces.
func (s *Service) StreamContainers(req *runtime.StreamContainersRequest, stream grpc.ServerStreamingServer[runtime.StreamContainersResponse]) error {
	list, err := s.ListContainers(stream.Context(), &runtime.ListContainersRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendAll(list.Containers, func(items []*runtime.Container) error {
		return stream.Send(&runtime.StreamContainersResponse{Containers: items})
	})
}

// StreamContainerStats is ListContainerStats in pieces.
func (s *Service) StreamContainerStats(req *runtime.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtime.StreamContainerStatsResponse]) error {
	list, err := s.ListContainerStats(stream.Context(), &runtime.ListContainerStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendAll(list.Stats, func(items []*runtime.ContainerStats) error {
		return stream.Send(&runtime.StreamContainerStatsResponse{ContainerStats: items})
	})
}

// StreamPodSandboxStats is ListPodSandboxStats in pieces.
func (s *Service) StreamPodSandboxStats(req *runtime.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtime.StreamPodSandboxStatsResponse]) error {
	list, err := s.ListPodSandboxStats(stream.Context(), &runtime.ListPodSandboxStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendAll(list.Stats, func(items []*runtime.PodSandboxStats) error {
		return stream.Send(&runtime.StreamPodSandboxStatsResponse{PodSandboxStats: items})
	})
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in pieces, each sent when it is
// read: of many pods the whole is more than kubelets take in one answer.
func (s *Service) StreamPodSandboxMetrics(_ *runtime.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtime.StreamPodSandboxMetricsResponse]) error {
	c := chunks[*runtime.PodSandboxMetrics]{send: func(items []*runtime.PodSandboxMetrics) error {
		return stream.Send(&runtime.StreamPodSandboxMetricsResponse{PodSandboxMetrics: items})
	}}
	if err := s.eachPodMetrics(stream.Context(), c.add); err != nil {
		return err
	}
	return c.flush()
}

// StreamImages is ListImages in pieces.
func (s *Service) StreamImages(req *runtime.StreamImagesRequest, stream grpc.ServerStreamingServer[runtime.StreamImagesResponse]) error {
	list, err := s.ListImages(stream.Context(), &runtime.ListImagesRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendAll(list.Images, func(items []*runtime.Image) error {
		return stream.Send(&runtime.StreamImagesResponse{Images: items})
	})
}
