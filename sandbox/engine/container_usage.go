package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/crib-runtime/crib/sandbox/container"
)

const (
	// writableFresh is how old the size of a writable layer may be at least, and
	// writableShare how much longer than the walk took: big layers are walked less often.
	writableFresh = 10 * time.Second
	writableShare = 20
	// noLimit is what is no limit of memory: the kernel writes the largest number
	// of pages for none.
	noLimit = 1 << 60
)

// Usage reads what a running container uses. The size of the writable layer is
// some seconds old. errdefs.ErrNotFound if it does not run.
func (e *Engine) Usage(ctx context.Context, id string) (container.Usage, error) {
	u, err := e.metrics(ctx, id)
	if err == nil {
		err = e.writable(ctx, id, &u)
	}
	if err != nil {
		return container.Usage{}, fmt.Errorf("reading what container %s uses: %w", id, err)
	}
	return u, nil
}

// metrics asks the shim for what the cgroup says.
func (e *Engine) metrics(ctx context.Context, id string) (container.Usage, error) {
	res, err := e.client.TaskService().Metrics(ctx, &tasks.MetricsRequest{Filters: []string{"id==" + id}})
	if err != nil {
		return container.Usage{}, errgrpc.ToNative(err)
	}
	if len(res.Metrics) == 0 || res.Metrics[0].Data == nil {
		return container.Usage{}, fmt.Errorf("it has no cgroup: %w", errdefs.ErrNotFound)
	}
	data, err := typeurl.UnmarshalAny(res.Metrics[0].Data)
	if err != nil {
		return container.Usage{}, fmt.Errorf("decoding metrics: %w", err)
	}
	var u container.Usage
	switch m := data.(type) {
	case *v1.Metrics:
		u = usageV1(m)
	case *v2.Metrics:
		u = usageV2(m)
	default:
		return u, fmt.Errorf("decoding metrics: %T is not known: %w", data, errdefs.ErrNotImplemented)
	}
	u.At = res.Metrics[0].Timestamp.AsTime()
	if u.At.Unix() <= 0 {
		u.At = time.Now()
	}
	if u.MemoryLimit >= noLimit {
		u.MemoryLimit = 0
	}
	return u, nil
}

// usageV1 reads cgroup v1; what is not there is zero.
func usageV1(m *v1.Metrics) container.Usage {
	memory := m.GetMemory()
	usage, inactive := memory.GetUsage().GetUsage(), memory.GetTotalInactiveFile()
	u := container.Usage{
		CPUNanos:         m.GetCPU().GetUsage().GetTotal(),
		MemoryUsage:      usage,
		MemoryWorkingSet: usage - min(usage, inactive),
		MemoryRSS:        memory.GetTotalRSS(),
		MemoryLimit:      memory.GetUsage().GetLimit(),
		PageFaults:       memory.GetTotalPgFault(),
		MajorPageFaults:  memory.GetTotalPgMajFault(),
	}
	if both := memory.GetSwap().GetUsage(); both > usage { // memory and swap together
		u.SwapUsage = both - usage
	}
	return u
}

// usageV2 reads cgroup v2; what is not there is zero.
func usageV2(m *v2.Metrics) container.Usage {
	memory := m.GetMemory()
	usage, inactive := memory.GetUsage(), memory.GetInactiveFile()
	return container.Usage{
		CPUNanos:         m.GetCPU().GetUsageUsec() * 1000,
		MemoryUsage:      usage,
		MemoryWorkingSet: usage - min(usage, inactive),
		MemoryRSS:        memory.GetAnon(),
		MemoryLimit:      memory.GetUsageLimit(),
		PageFaults:       memory.GetPgfault(),
		MajorPageFaults:  memory.GetPgmajfault(),
		SwapUsage:        memory.GetSwapUsage(),
	}
}

// writableSize is the size of a writable layer as it was found, kept in a file so
// that it is not lost with the daemon, and gone with the container.
type writableSize struct {
	Bytes  uint64        `json:"bytes"`
	Inodes uint64        `json:"inodes"`
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took"`
}

// writable adds the size of the writable layer, walking it only if what is known
// is too old.
func (e *Engine) writable(ctx context.Context, id string, u *container.Usage) error {
	path := filepath.Join(e.containerDir(id), "size.json")
	var size writableSize
	if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &size) != nil {
		size = writableSize{}
	}
	if time.Since(size.At) > max(writableFresh, writableShare*size.Took) {
		start := time.Now()
		found, err := e.client.SnapshotService(e.images.snap.name).Usage(ctx, id)
		if err != nil {
			return fmt.Errorf("measuring the writable layer: %w", err)
		}
		size = writableSize{Bytes: uint64(found.Size), Inodes: uint64(found.Inodes), At: start, Took: time.Since(start)}
		if err := keepSize(path, size); err != nil {
			return err
		}
	}
	u.WritableBytes, u.WritableInodes, u.WritableAt = size.Bytes, size.Inodes, size.At
	return nil
}

// keepSize replaces the file. Of two that write at once, either may win.
func keepSize(path string, size writableSize) error {
	b, err := json.Marshal(size)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".size")
	if err != nil {
		return fmt.Errorf("keeping the size of the writable layer: %w", err)
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
		return fmt.Errorf("keeping the size of the writable layer: %w", err)
	}
	return nil
}
