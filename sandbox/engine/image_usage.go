package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/image"
)

// ImageUsage returns the space that images take, packed and unpacked, without the
// writable layers of containers. No disk is walked: containerd knows what it has
// stored.
func (e *Engine) ImageUsage(ctx context.Context) (image.FilesystemUsage, error) {
	usage, err := e.images.usage(inNamespace(ctx))
	if err != nil {
		return image.FilesystemUsage{}, fmt.Errorf("measuring images: %w", err)
	}
	return usage, nil
}

// usageCache is what unpacked layers take, by name; they do not change.
type usageCache struct {
	mu     sync.Mutex // guards layers; held while they are asked for, so that two do not
	layers map[string]snapshots.Usage
}

func (s *imageStore) usage(ctx context.Context) (image.FilesystemUsage, error) {
	usage := image.FilesystemUsage{Mountpoint: s.snap.dir, At: time.Now()}
	layers, err := s.layers(ctx)
	if err != nil {
		return usage, err
	}
	for _, layer := range layers {
		usage.UsedBytes += uint64(layer.Size)
		usage.InodesUsed += uint64(layer.Inodes)
	}
	return usage, s.client.ContentStore().Walk(ctx, func(info content.Info) error {
		usage.UsedBytes += uint64(info.Size)
		usage.InodesUsed++
		return nil
	})
}

// layers returns what each unpacked layer takes.
func (s *imageStore) layers(ctx context.Context) (map[string]snapshots.Usage, error) {
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	sn, now := s.client.SnapshotService(s.snap.name), map[string]snapshots.Usage{}
	var names []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			names = append(names, info.Name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		usage, known := s.used.layers[name]
		if !known {
			if usage, err = sn.Usage(ctx, name); errdefs.IsNotFound(err) {
				continue // removed meanwhile
			}
			if err != nil {
				return nil, err
			}
		}
		now[name] = usage
	}
	s.used.layers = now
	return now, nil
}
