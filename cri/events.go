package cri

import (
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/feed"
)

// GetContainerEvents sends what happens until the client leaves, or crib ends.
func (s *Service) GetContainerEvents(_ *runtime.GetEventsRequest, stream grpc.ServerStreamingServer[runtime.ContainerEventResponse]) error {
	if err := stream.SendHeader(nil); err != nil { // so that the client knows it is heard
		return err
	}
	return s.cfg.Events.Stream(stream.Context(), func(e feed.Event) error { return stream.Send(eventOf(e)) })
}

var eventTypes = map[feed.Kind]runtime.ContainerEventType{
	feed.Created: runtime.ContainerEventType_CONTAINER_CREATED_EVENT,
	feed.Started: runtime.ContainerEventType_CONTAINER_STARTED_EVENT,
	feed.Stopped: runtime.ContainerEventType_CONTAINER_STOPPED_EVENT,
	feed.Deleted: runtime.ContainerEventType_CONTAINER_DELETED_EVENT,
}

func eventOf(e feed.Event) *runtime.ContainerEventResponse {
	resp := &runtime.ContainerEventResponse{
		ContainerId:        e.ID,
		ContainerEventType: eventTypes[e.Kind],
		CreatedAt:          e.At.UnixNano(),
		ContainersStatuses: statusesOf(e.Containers),
	}
	if e.Pod != nil {
		resp.PodSandboxStatus = statusOf(e.Pod)
	}
	return resp
}

func statusesOf(containers []*container.Container) []*runtime.ContainerStatus {
	var statuses []*runtime.ContainerStatus
	for _, c := range containers {
		statuses = append(statuses, containerStatusOf(c))
	}
	return statuses
}
