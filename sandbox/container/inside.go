package container

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// maxOutput is how much of each stream ExecSync keeps, in bytes.
const maxOutput = 16 << 20

// running returns the record of a container that runs; else the error is
// errdefs.ErrNotFound or errdefs.ErrFailedPrecondition.
func (m *Manager) running(id string) (*Container, error) {
	c, err := m.Get(id)
	if err != nil {
		return nil, err
	}
	if c.State != Running {
		return nil, fmt.Errorf("container %s is %s, it has to run for this: %w", label(c), c.State, errdefs.ErrFailedPrecondition)
	}
	return c, nil
}

// ExecSync runs a command in a running container and returns what it wrote and
// its exit code. Of each stream 16 MiB are kept and the rest is dropped. When the
// timeout is over, 0 is none, all of its processes are killed and the error is
// context.DeadlineExceeded.
func (m *Manager) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error) {
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errs capped
	code, err = m.Exec(limited, id, cmd, Streams{Stdout: &out, Stderr: &errs})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("command %q in container %.12s ran longer than %s and was killed: %w", cmd, id, timeout, context.DeadlineExceeded)
	}
	return out.take(), errs.take(), code, err
}

// Exec runs a command in a running container until it ends, connected to the
// streams, and returns its exit code. The end of ctx kills all of its processes.
func (m *Manager) Exec(ctx context.Context, id string, cmd []string, streams Streams) (int32, error) {
	c, err := m.running(id)
	if err != nil {
		return 0, err
	}
	if len(cmd) == 0 {
		return 0, fmt.Errorf("execute in container %s: cmd is empty: %w", label(c), errdefs.ErrInvalidArgument)
	}
	process, err := m.cfg.Process(ctx, id, cmd, streams.TTY)
	if err != nil {
		return 0, wrap("execute in the namespaces", c, err)
	}
	code, err := m.cfg.Inside.Exec(ctx, id, process, streams)
	return code, wrap("execute in the namespaces", c, err)
}

// Attach connects streams to the process of a running container until it, ctx or
// the input ends.
func (m *Manager) Attach(ctx context.Context, id string, streams Streams) error {
	c, err := m.running(id)
	if err != nil {
		return err
	}
	return wrap("attach to the process", c, m.cfg.Inside.Attach(ctx, id, streams))
}

// ReopenLog makes the writer of a running container's log make its file anew.
func (m *Manager) ReopenLog(ctx context.Context, id string) error {
	c, err := m.running(id)
	if err != nil {
		return err
	}
	return wrap("reopen the log", c, m.cfg.Inside.ReopenLog(ctx, id))
}

// capped keeps the first maxOutput bytes that are written to it. A copier that
// outlives its process may still write while the result is taken.
type capped struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (w *capped) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p[:min(len(p), maxOutput-w.buf.Len())])
	return len(p), nil
}

func (w *capped) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.buf.Bytes())
}
