package engine

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/diff"
	mnt "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/plugin"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// noted is a differ that notes what it is asked for.
type noted struct {
	diff.Comparer
	config diff.ApplyConfig
}

func (n *noted) Apply(ctx context.Context, layer ocispec.Descriptor, _ []mnt.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	for _, opt := range opts {
		if err := opt(ctx, layer, &n.config); err != nil {
			return layer, err
		}
	}
	return layer, nil
}

// TestLayersAreSyncedWhoeverUnpacksThem: after a power cut nobody looks at them.
func TestLayersAreSyncedWhoeverUnpacksThem(t *testing.T) {
	n := &noted{}
	instance, err := syncedDiffs(func(*plugin.InitContext) (any, error) { return n, nil })(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := instance.(diff.Applier).Apply(t.Context(), ocispec.Descriptor{}, nil, diff.WithSyncFs(false)); err != nil || !n.config.SyncFs {
		t.Errorf("asked for %+v, %v", n.config, err)
	}
}
