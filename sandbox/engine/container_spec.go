package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Spec returns the specification that a container was made with.
func (e *Engine) Spec(ctx context.Context, id string) (*specs.Spec, error) {
	c, err := e.client.ContainerService().Get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the record of container %s: %w", id, errgrpc.ToNative(err))
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(c.Spec.GetValue(), spec); err != nil {
		return nil, fmt.Errorf("reading the spec of container %s: %w", id, err)
	}
	return spec, nil
}

// kernelMakesRecursiveReadOnly asks for mount_setattr(2), which is of Linux 5.12.
// No descriptor is -1, so that only the call itself can be missing.
func kernelMakesRecursiveReadOnly() bool {
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return !errors.Is(err, unix.ENOSYS)
}
