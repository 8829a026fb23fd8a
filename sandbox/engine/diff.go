package engine

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/diff"
	mnt "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// syncedDiffs makes the plugin that unpacks layers sync each of them, whoever asks:
// CheckImages does not look at unpacked layers, and ctr and kind do not ask for it.
func syncedDiffs(plain func(*plugin.InitContext) (any, error)) func(*plugin.InitContext) (any, error) {
	return func(ic *plugin.InitContext) (any, error) {
		instance, err := plain(ic)
		if err != nil {
			return nil, err
		}
		d, ok := instance.(differ)
		if !ok {
			return nil, fmt.Errorf("%T cannot unpack layers: %w", instance, errdefs.ErrNotImplemented)
		}
		return synced{d}, nil
	}
}

// differ is what containerd wants of such a plugin.
type differ interface {
	diff.Comparer
	diff.Applier
}

type synced struct{ differ }

// Apply implements diff.Applier.
func (s synced) Apply(ctx context.Context, layer ocispec.Descriptor, mounts []mnt.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	return s.differ.Apply(ctx, layer, mounts, append(opts, diff.WithSyncFs(true))...)
}
