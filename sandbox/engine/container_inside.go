package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/logpump"
)

// ReopenLog makes the log's writer create the file anew; it exists on return.
// errdefs.ErrNotFound if the container does not run, errdefs.ErrFailedPrecondition
// if it has no log.
func (e *Engine) ReopenLog(ctx context.Context, id string) error {
	err := e.askPump(id, func(c *logpump.Client) error { return c.Reopen(ctx, id) })
	if err != nil {
		return fmt.Errorf("reopening the log of container %s: %w", id, err)
	}
	return nil
}

// LogCounters tells what became of the output of a container that has a task.
func (e *Engine) LogCounters(ctx context.Context, id string) (counters logpump.Counters, err error) {
	err = e.askPump(id, func(c *logpump.Client) (err error) {
		counters, err = c.Counters(ctx, id)
		return err
	})
	if err != nil {
		err = fmt.Errorf("asking for the log of container %s: %w", id, err)
	}
	return counters, err
}

// askPump connects to the shim of a container.
func (e *Engine) askPump(id string, ask func(*logpump.Client) error) error {
	address, err := shimAddress(e.containerDir(id))
	if err != nil {
		return err
	}
	c, err := logpump.Dial(address)
	if err != nil {
		return err
	}
	return errors.Join(ask(c), c.Close())
}

// shimAddress is where the shim of a container listens, from its bundle.
func shimAddress(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, bundleLink, "bootstrap.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("looking for its shim: it has no task: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("looking for its shim: %w", err)
	}
	var bootstrap struct {
		Address string `json:"address"`
	}
	if err := json.Unmarshal(b, &bootstrap); err != nil {
		return "", fmt.Errorf("looking for its shim: %w", err)
	}
	return bootstrap.Address, nil
}

// Attach connects streams to a container's first process until its output ends,
// ctx ends, in which case it returns ctx's error, or the input ends. With
// container.Launch.StdinOnce and without a terminal the end of the input is handed
// to the process instead. A Read or Write of the caller's streams that is in
// progress then is left to its own end. errdefs.ErrNotFound if it does not run.
func (e *Engine) Attach(ctx context.Context, id string, s container.Streams) error {
	p, err := makePipes(e.cfg.State, s.TTY)
	if err != nil {
		return fmt.Errorf("attaching to container %s: %w", id, err)
	}
	defer func() { _ = p.close() }()
	if err := p.openContainerStdin(e.containerDir(id), s.Stdin); err != nil {
		return fmt.Errorf("attaching to container %s: %w", id, err)
	}
	err = e.askPump(id, func(c *logpump.Client) error { return c.Attach(ctx, id, p.path("out"), p.errPath()) })
	if err != nil {
		return fmt.Errorf("attaching to container %s: %w", id, err)
	}
	p.unlink()
	return e.connect(ctx, id, p, s)
}

// connect copies until something ends.
func (e *Engine) connect(ctx context.Context, id string, p *pipes, s container.Streams) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	flow := startFlow(p, s)
	resized := e.followSize(inner, &tasks.ResizePtyRequest{ContainerID: id}, s.Resize)
	defer func() { cancel(); <-resized }()
	input := flow.inputEnded
	for {
		select {
		case <-flow.outputEnded:
			return flow.close(p)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), flow.close(p))
		case <-input:
			if s.TTY || !e.inputIsOnce(id) {
				return flow.close(p)
			}
			input = nil
			if err := e.closeInput(ctx, &tasks.CloseIORequest{ContainerID: id, Stdin: true}); err != nil {
				return errors.Join(err, flow.close(p))
			}
		}
	}
}

// inputIsOnce says whether the container's input ends with the first client's.
func (e *Engine) inputIsOnce(id string) bool {
	b, err := os.ReadFile(filepath.Join(e.containerDir(id), bundleLink, "config.json"))
	if err != nil {
		return false
	}
	var spec specs.Spec
	return json.Unmarshal(b, &spec) == nil && spec.Annotations[annotationStdin] == stdinOnce
}

// closeInput makes the shim let go of the input: with the last writer's end,
// the process reads the end.
func (e *Engine) closeInput(ctx context.Context, r *tasks.CloseIORequest) error {
	_, err := e.client.TaskService().CloseIO(ctx, r)
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("closing the input of container %s: %w", r.ContainerID, err)
	}
	return nil
}

// followSize passes the sizes of a terminal on until ctx or the sizes end, which
// closes the channel that it returns. A size that arrives too late is lost.
func (e *Engine) followSize(ctx context.Context, r *tasks.ResizePtyRequest, sizes <-chan container.Size) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case size, ok := <-sizes:
				if !ok {
					return
				}
				r.Width, r.Height = uint32(size.Width), uint32(size.Height)
				if _, err := e.client.TaskService().ResizePty(ctx, r); err != nil && ctx.Err() == nil {
					e.cfg.Log.Debug("resizing a terminal", "container", r.ContainerID, "error", errgrpc.ToNative(err))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// openContainerStdin opens the writing end of a container's input, if that is wanted.
// A container without input, or whose input has ended, has nothing to write to.
func (p *pipes) openContainerStdin(dir string, wanted io.Reader) (err error) {
	if wanted == nil {
		return nil
	}
	p.stdin, err = os.OpenFile(logpump.StdinPath(dir), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) {
		p.stdin = nil
		return nil
	}
	return err
}
