package engine

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
)

// criPlugin is the plugin that owns the namespace k8s.io where it is active: it
// takes in every container there at start and stops what it does not know.
const criPlugin = "cri"

// refuseCRI fails with errdefs.ErrFailedPrecondition if the containerd of c
// serves CRI. One whose CRI plugin was disabled or did not come up is welcome.
func refuseCRI(ctx context.Context, c *client.Client, address string) error {
	res, err := c.IntrospectionService().Plugins(ctx)
	if err != nil {
		return fmt.Errorf("asking containerd at %s for its plugins: %w", address, err)
	}
	for _, p := range res.Plugins {
		if p.Type == string(plugins.GRPCPlugin) && p.ID == criPlugin && p.InitErr == nil {
			return fmt.Errorf("using containerd at %s: its CRI plugin owns the namespace %s; "+
				"put disabled_plugins = [%q] into its configuration and restart it: %w",
				address, namespace, p.Type+"."+p.ID, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}
