package engine

import (
	"context"
	"os"

	"github.com/containerd/containerd/v2/core/events/exchange"
	"github.com/containerd/containerd/v2/core/metadata"
	v2 "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
)

// sandboxID is what makes containerd ask for the pod's shim instead of starting one
// for each container.
func (e *Engine) sandboxID(podID string) string {
	if e.server == nil {
		return ""
	}
	return podID
}

// newShims makes containerd's manager of shims, with our pods in place of its
// records of sandboxes.
func (s *server) newShims(ic *plugin.InitContext) (any, error) {
	m, err := ic.GetSingle(plugins.MetadataPlugin)
	if err != nil {
		return nil, err
	}
	events, err := ic.GetByID(plugins.EventPlugin, "exchange")
	if err != nil {
		return nil, err
	}
	return v2.NewShimManager(&v2.ManagerConfig{
		Store:        metadata.NewContainerStore(m.(*metadata.DB)),
		Events:       events.(*exchange.Exchange),
		Address:      ic.Properties[plugins.PropertyGRPCAddress],
		TTRPCAddress: ic.Properties[plugins.PropertyTTRPCAddress],
		SocketDir:    socketDir(s.state),
		SandboxStore: podSandboxes{Store: metadata.NewSandboxStore(m.(*metadata.DB)), server: s},
	})
}

// podSandboxes are the pods that have a shim, as sandboxes. While the engine opens
// there is none: a task that was never started is to be removed then, also an init's,
// whose id is its pod's.
type podSandboxes struct {
	sandbox.Store
	server *server
}

// Get implements sandbox.Store.
func (p podSandboxes) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	if !p.server.open.Load() {
		return p.Store.Get(ctx, id)
	}
	if _, err := os.Stat(shimDir(p.server.state, id)); err != nil {
		return p.Store.Get(ctx, id)
	}
	return sandbox.Sandbox{ID: id}, nil
}
