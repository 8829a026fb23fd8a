package stream

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/crib-runtime/crib/cri"
	"github.com/crib-runtime/crib/sandbox/container"
)

// ExecInContainer is remotecommand.Executor's.
func (e execution) ExecInContainer(ctx context.Context, _, _, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ctx, streams, done := streamsOf(ctx, e.session, ends{in, out, errs, resize})
	defer done()
	code, err := e.server.cfg.Containers.Exec(ctx, id, cmd, streams)
	if err == nil && code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: int(code)}
	}
	return err
}

// AttachContainer is remotecommand.Attacher's.
func (a attachment) AttachContainer(ctx context.Context, _, _, id string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	ctx, streams, done := streamsOf(ctx, a.session, ends{in, out, errs, resize})
	defer done()
	return a.server.cfg.Containers.Attach(ctx, id, streams)
}

// ends are the streams as the library hands them over. Over WebSocket it has all
// of them, whatever was asked for.
type ends struct {
	in        io.Reader
	out, errs io.Writer
	resize    <-chan remotecommand.TerminalSize
}

// streamsOf returns the streams that were asked for. When done is called, nothing
// that it began is left.
func streamsOf(ctx context.Context, session cri.Session, all ends) (context.Context, container.Streams, func()) {
	ctx, cancel := context.WithCancel(ctx)
	streams := container.Streams{TTY: session.TTY}
	if session.Stdin {
		streams.Stdin = all.in
	}
	if session.Stdout {
		streams.Stdout = all.out
	}
	if session.Stderr {
		streams.Stderr = all.errs
	}
	var running sync.WaitGroup
	if all.resize != nil {
		sizes := make(chan container.Size)
		streams.Resize = sizes
		running.Go(func() { passSizes(ctx, all.resize, sizes) })
	}
	return ctx, streams, func() {
		cancel()
		running.Wait()
	}
}

// passSizes passes sizes on until there are no more or ctx ends.
func passSizes(ctx context.Context, from <-chan remotecommand.TerminalSize, to chan<- container.Size) {
	defer close(to)
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-from:
			if !ok {
				return
			}
			select {
			case to <- container.Size{Width: size.Width, Height: size.Height}:
			case <-ctx.Done():
				return
			}
		}
	}
}
