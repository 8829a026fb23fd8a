package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

const (
	// startTimeout bounds the start of an exec, which is not broken off in the
	// middle: a process might run that nobody knows.
	startTimeout = 2 * time.Minute
	// killTimeout bounds the wait for an exec that was killed.
	killTimeout = 10 * time.Second
)

// Exec runs a process in a container and returns its exit code, 128 and the
// signal if it was one. The end of ctx kills the process and all that it has
// started, and returns ctx's error. Output that a child holds open is waited for
// for a second after the process's end. A Read of the caller's Stdin that is in
// progress when Exec returns is left to its own end.
func (e *Engine) Exec(ctx context.Context, id string, process *specs.Process, s container.Streams) (code int32, err error) {
	x := &execution{engine: e, container: id, id: rand.Text()}
	if x.pipes, err = makePipes(e.cfg.State, s.TTY); err != nil {
		return 0, fmt.Errorf("executing in container %s: %w", id, err)
	}
	defer func() { _ = x.pipes.close() }()
	if err := x.start(ctx, process, s); err != nil {
		return 0, fmt.Errorf("executing in container %s: %w", id, err)
	}
	code, err = x.run(ctx, s)
	if err = errors.Join(err, x.remove(ctx)); err != nil {
		return 0, fmt.Errorf("executing in container %s: %w", id, err)
	}
	return code, nil
}

// execution is one exec.
type execution struct {
	engine    *Engine
	container string
	id        string
	pid       int
	pipes     *pipes
}

// start starts the process; on an error nothing is left.
func (x *execution) start(ctx context.Context, process *specs.Process, s container.Streams) error {
	r := &tasks.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Terminal: s.TTY,
		Stdout: x.pipes.path("out"), Stderr: x.pipes.errPath(),
	}
	var err error
	if s.Stdin != nil {
		r.Stdin = x.pipes.path("in")
		// For both ways, as a FIFO cannot be opened for writing before it is read.
		if x.pipes.stdin, err = x.pipes.make("in", os.O_RDWR); err != nil {
			return err
		}
	}
	p := *process
	p.Terminal = s.TTY
	if r.Spec, err = typeurl.MarshalAnyToProto(&p); err != nil {
		return fmt.Errorf("encoding the process: %w", err)
	}
	svc := x.engine.client.TaskService()
	if _, err := svc.Exec(ctx, r); err != nil {
		return errors.Join(errgrpc.ToNative(err), x.remove(ctx))
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	res, err := svc.Start(whole, &tasks.StartRequest{ContainerID: x.container, ExecID: x.id})
	if err != nil {
		return errors.Join(errgrpc.ToNative(err), x.remove(ctx))
	}
	x.pid = int(res.Pid)
	x.pipes.unlink()
	return nil
}

// run copies the streams until the process has ended.
func (x *execution) run(ctx context.Context, s container.Streams) (int32, error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	flow := startFlow(x.pipes, s)
	resized := x.engine.followSize(inner, &tasks.ResizePtyRequest{ContainerID: x.container, ExecID: x.id}, s.Resize)
	ended := x.wait(inner)
	end := x.follow(ctx, flow, ended, s.TTY)
	cancel()
	<-resized
	<-ended // closed when its goroutine has ended
	return end.code, errors.Join(end.err, flow.close(x.pipes))
}

// follow returns how the process ended, or after killing it, that ctx did.
func (x *execution) follow(ctx context.Context, flow *flow, ended <-chan execEnd, tty bool) execEnd {
	input := flow.inputEnded
	for {
		select {
		case end := <-ended:
			flow.drain(ctx.Done())
			return end
		case <-ctx.Done():
			return execEnd{err: errors.Join(ctx.Err(), x.kill(ended))}
		case <-input:
			input = nil
			if tty {
				continue // it would hang up the terminal
			}
			r := &tasks.CloseIORequest{ContainerID: x.container, ExecID: x.id, Stdin: true}
			if err := x.engine.closeInput(ctx, r); err != nil && ctx.Err() == nil {
				x.engine.cfg.Log.Warn("the input of an exec does not end", "container", x.container, "error", err)
			}
		}
	}
}

// execEnd is how an exec ended.
type execEnd struct {
	code int32
	err  error
}

// wait waits in the background; the channel has one end, and is then closed.
func (x *execution) wait(ctx context.Context) <-chan execEnd {
	ended := make(chan execEnd, 1)
	go func() {
		defer close(ended)
		res, err := x.engine.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: x.container, ExecID: x.id})
		if err != nil {
			ended <- execEnd{err: errgrpc.ToNative(err)}
			return
		}
		ended <- execEnd{code: int32(res.ExitStatus)}
	}()
	return ended
}

// kill kills the process and all that it has started, and waits for its end.
func (x *execution) kill(ended <-chan execEnd) error {
	select {
	case <-ended: // by itself; its pid may be another's by now
		return nil
	default:
	}
	err := killTree(x.pid)
	late := time.NewTimer(killTimeout)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("killing process %d: it has not ended: %w", x.pid, errdefs.ErrUnavailable), err)
	}
}

// remove deletes what the shim has of the exec. It is idempotent.
func (x *execution) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_, err := x.engine.client.TaskService().DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: x.container, ExecID: x.id})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing an exec: %w", err)
	}
	return nil
}
