package container_test

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

func (i inside) Attach(ctx context.Context, _ string, _ container.Streams) error {
	return i.w.do(ctx, "attach", nil)
}
func (i inside) ReopenLog(ctx context.Context, _ string) error { return i.w.do(ctx, "reopen", nil) }
func (i inside) Update(ctx context.Context, _ string, _ container.Change) error {
	return i.w.do(ctx, "update", nil)
}

func (w *world) limitsOf(r container.Resources) *specs.LinuxResources {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = r
	return &specs.LinuxResources{}
}
