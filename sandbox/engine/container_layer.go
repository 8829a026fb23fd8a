package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/usage"
)

const (
	// layerFresh is how old the size of a writable layer may be at least, and
	// layerShare how much longer than the walk took: big layers are walked less often.
	layerFresh = 10 * time.Second
	layerShare = 20
)

// layerSize is the size of a writable layer as it was found, kept in a file so
// that it is not lost with the daemon, and gone with the container.
type layerSize struct {
	Bytes  uint64        `json:"bytes"`
	Inodes uint64        `json:"inodes"`
	Spent  cgroup.Figure `json:"spent"` // what the container had used of processors
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took"`
}

// Layer returns the size of a container's writable layer, given the nanoseconds of
// processors that the container has used. It is walked again only if some were
// used since: nobody else writes there. The size is some seconds old.
func (e *Engine) Layer(ctx context.Context, id string, spent cgroup.Figure) (usage.Layer, error) {
	now := time.Now()
	path := filepath.Join(e.containerDir(id), "size.json")
	var size layerSize
	if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &size) != nil {
		size = layerSize{}
	}
	layer := func() usage.Layer { return usage.Layer{Bytes: size.Bytes, Inodes: size.Inodes, At: size.At} }
	if !size.At.IsZero() && spent.Known && size.Spent == spent {
		size.At = now
		return layer(), nil
	}
	if now.Sub(size.At) <= max(layerFresh, layerShare*size.Took) {
		return layer(), nil
	}
	found, err := e.client.SnapshotService(e.images.snap.name).Usage(ctx, id)
	if err != nil {
		return usage.Layer{}, fmt.Errorf("measuring the writable layer of container %s: %w", id, err)
	}
	size = layerSize{Bytes: uint64(found.Size), Inodes: uint64(found.Inodes), Spent: spent, At: now, Took: time.Since(now)}
	if err := keepSize(path, size); err != nil {
		return usage.Layer{}, fmt.Errorf("keeping the size of the writable layer of container %s: %w", id, err)
	}
	return layer(), nil
}

// LayersDir is a directory on the filesystem on which writable layers are.
func (e *Engine) LayersDir() string { return e.images.snap.dir }

// keepSize replaces the file. Of two that write at once, either may win.
func keepSize(path string, size layerSize) error {
	b, err := json.Marshal(size)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".size")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
