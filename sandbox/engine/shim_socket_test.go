package engine

import (
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/typeurl/v2"
)

// TestShimThatContainerdStartedRemovesItsSocket: one socket was left for each container
// that another client of the API had run. The lab looks for it.
func TestShimThatContainerdStartedRemovesItsSocket(t *testing.T) {
	l := newLab(t)
	e := l.open()
	ctx := namespaces.WithNamespace(t.Context(), "moby")
	spec, err := typeurl.MarshalAny(initSpec(Init{CgroupsPath: l.cg}, e.info.OCIVersion))
	if err != nil {
		t.Fatal(err)
	}
	c := containers.Container{ID: l.pod, Spec: spec, Runtime: containers.RuntimeInfo{Name: e.shimPath()}}
	if _, err := e.client.ContainerService().Create(ctx, c); err != nil {
		t.Fatal(err)
	}
	root := []*types.Mount{{Type: "bind", Source: e.root, Options: []string{"rbind", "ro"}}}
	if _, err := e.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: c.ID, Rootfs: root}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: c.ID}); err != nil {
		t.Fatal(err)
	}
	shims := l.shims()
	if len(shims) != 1 {
		t.Errorf("shims %v", shims)
	}
	l.must(e.deleteTask(ctx, c.ID))
	for _, pid := range shims {
		l.awaitEnd(pid)
	}
}
