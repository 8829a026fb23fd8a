package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// Foreign returns the tasks that other clients of the engine have, in all of its
// namespaces, as "namespace/id", sorted. Nothing of crib ever touches them.
func (e *Engine) Foreign(ctx context.Context) ([]string, error) {
	spaces, err := e.client.NamespaceService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	var found []string
	for _, space := range spaces {
		of, err := e.foreignIn(namespaces.WithNamespace(ctx, space))
		if err != nil {
			return nil, fmt.Errorf("listing tasks in namespace %s: %w", space, err)
		}
		for _, id := range of {
			found = append(found, space+"/"+id)
		}
	}
	slices.Sort(found)
	return found, nil
}

func (e *Engine) foreignIn(ctx context.Context) (ids []string, err error) {
	ours, err := e.client.ContainerService().List(ctx, fmt.Sprintf("labels.%q", labelPod))
	if err != nil {
		return nil, err
	}
	all, err := e.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, errgrpc.ToNative(err)
	}
	known := make(map[string]bool, len(ours))
	for _, c := range ours {
		known[c.ID] = true
	}
	for _, t := range all.Tasks {
		if !known[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}
