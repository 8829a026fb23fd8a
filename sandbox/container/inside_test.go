package container_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/container"
)

func TestExecSyncReturnsOutputAndCode(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		stdout, stderr, code, err := m.ExecSync(t.Context(), id, []string{"flood"}, 0)
		if err != nil || code != 3 || len(stdout) != 16<<20 || !bytes.Equal(stderr, []byte("to stderr")) {
			t.Errorf("%d bytes, %q, %d, %v", len(stdout), stderr, code, err)
		}
	})
}

func TestExecSyncEndsWithItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		begin := time.Now()
		_, _, _, err := m.ExecSync(t.Context(), id, []string{"sleep"}, 2*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsDeadlineExceeded(err) || time.Since(begin) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, _, err := m.ExecSync(ctx, id, []string{"sleep"}, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("whose caller is gone: %v", err)
		}
	})
}

func TestWhatReachesInsideNeedsARunningContainer(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	id := mustCreate(t, m, spec)
	calls := map[string]func(id string) error{
		"exec":   func(id string) error { _, _, _, err := m.ExecSync(t.Context(), id, []string{"true"}, 0); return err },
		"attach": func(id string) error { return m.Attach(t.Context(), id, container.Streams{}) },
		"reopen": func(id string) error { return m.ReopenLog(t.Context(), id) },
	}
	for name, call := range calls {
		if err := call("unknown"); !errdefs.IsNotFound(err) {
			t.Errorf("%s of an unknown one: %v", name, err)
		}
		if err := call(id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s of a created one: %v", name, err)
		}
	}
	if err := m.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
