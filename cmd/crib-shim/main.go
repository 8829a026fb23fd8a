package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// runtimeName is what clients find in a container's record. cAdvisor and
// nerdctl know this one, so ours is not another.
const runtimeName = "io.containerd.runc.v2"

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newService,
	})
	shim.RunShim(context.Background(), manager.NewShimManager(runtimeName))
}

// newService makes the task service of this process.
func newService(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	down, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	tasks, err := task.NewTaskService(ic.Context, publisher.(shim.Publisher), down.(shutdown.Service))
	if err != nil {
		return nil, err
	}
	return &service{TTRPCTaskService: tasks, attended: map[string]*attended{}}, nil
}
