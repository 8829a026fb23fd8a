package integration

import (
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAListenerHearsAPodsLife(t *testing.T) {
	c := startWithImage(t)
	stream, err := c.GetContainerEvents(t.Context(), &runtime.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	id := c.launch(podID, pod, c.Container("short", "true"))
	c.exited(id)
	if err := c.Remove(t.Context(), podID); err != nil {
		t.Fatal(err)
	}
	const created, started = runtime.ContainerEventType_CONTAINER_CREATED_EVENT, runtime.ContainerEventType_CONTAINER_STARTED_EVENT
	const stopped, deleted = runtime.ContainerEventType_CONTAINER_STOPPED_EVENT, runtime.ContainerEventType_CONTAINER_DELETED_EVENT
	for i, want := range []struct {
		id    string
		kind  runtime.ContainerEventType
		state runtime.ContainerState
	}{
		{podID, created, -1}, {podID, started, -1},
		{id, created, runtime.ContainerState_CONTAINER_CREATED}, {id, started, runtime.ContainerState_CONTAINER_RUNNING},
		{id, stopped, runtime.ContainerState_CONTAINER_EXITED}, {podID, stopped, runtime.ContainerState_CONTAINER_EXITED},
		{id, deleted, -1}, {podID, deleted, -1},
	} {
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got.ContainerId != want.id || got.ContainerEventType != want.kind || got.CreatedAt == 0 || got.PodSandboxStatus.GetMetadata().GetName() != "a" {
			t.Errorf("event %d: %v, want %v of %s", i, got, want.kind, want.id)
		}
		statuses := got.ContainersStatuses
		if want.state < 0 && len(statuses) > 0 || want.state >= 0 && (len(statuses) != 1 || statuses[0].State != want.state) {
			t.Errorf("event %d: containers %v, want %v", i, statuses, want.state)
		}
	}
	if err := c.Terminate(); err != nil { // which does not wait for the listener
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("when crib ends: %v", err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAPodsStatusHasItsContainers(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	id := c.launch(podID, pod, c.Container("one", "sleep", "1000"))
	other, _ := c.pod(c.Pod("b"))
	resp, err := c.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: podID})
	if err != nil || len(resp.ContainersStatuses) != 1 || resp.ContainersStatuses[0].Id != id || resp.Timestamp <= resp.Status.CreatedAt {
		t.Errorf("%v, %v", resp, err)
	}
	resp, err = c.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: other})
	if err != nil || len(resp.ContainersStatuses) != 0 {
		t.Errorf("of one without: %v, %v", resp, err)
	}
}

func TestStreamsHaveWhatListsHave(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	c.launch(podID, pod, c.Container("one", "sleep", "1000"))
	ctx := t.Context()
	count := map[string]func() (int, error){
		"pods": func() (int, error) {
			s, err := c.StreamPodSandboxes(ctx, &runtime.StreamPodSandboxesRequest{})
			return counted(s, err, func(r *runtime.StreamPodSandboxesResponse) int { return len(r.PodSandboxes) })
		},
		"containers": func() (int, error) {
			s, err := c.StreamContainers(ctx, &runtime.StreamContainersRequest{})
			return counted(s, err, func(r *runtime.StreamContainersResponse) int { return len(r.Containers) })
		},
		"container stats": func() (int, error) {
			s, err := c.StreamContainerStats(ctx, &runtime.StreamContainerStatsRequest{})
			return counted(s, err, func(r *runtime.StreamContainerStatsResponse) int { return len(r.ContainerStats) })
		},
		"pod stats": func() (int, error) {
			s, err := c.StreamPodSandboxStats(ctx, &runtime.StreamPodSandboxStatsRequest{})
			return counted(s, err, func(r *runtime.StreamPodSandboxStatsResponse) int { return len(r.PodSandboxStats) })
		},
		"metrics": func() (int, error) {
			s, err := c.StreamPodSandboxMetrics(ctx, &runtime.StreamPodSandboxMetricsRequest{})
			return counted(s, err, func(r *runtime.StreamPodSandboxMetricsResponse) int { return len(r.PodSandboxMetrics) })
		},
		"images": func() (int, error) {
			s, err := c.Images().StreamImages(ctx, &runtime.StreamImagesRequest{})
			return counted(s, err, func(r *runtime.StreamImagesResponse) int { return len(r.Images) })
		},
	}
	for name, of := range count {
		if n, err := of(); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// counted counts what comes through a stream.
func counted[T any](stream interface{ Recv() (*T, error) }, err error, of func(*T) int) (n int, _ error) {
	for err == nil {
		var r *T
		if r, err = stream.Recv(); err == nil {
			n += of(r)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}
