package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"

	"github.com/crib-runtime/crib/sandbox/logpump"
)

// execDrain bounds the deletion of an exec whose output somebody still holds
// open. The client has waited for the output already.
const execDrain = 100 * time.Millisecond

// service is containerd's task service, with a pump beside each container that
// asks for one.
type service struct {
	task.TTRPCTaskService

	mu       sync.Mutex // guards attended
	attended map[string]*attended
}

// RegisterTTRPC makes both services answer.
func (s *service) RegisterTTRPC(server *ttrpc.Server) error {
	task.RegisterTTRPCTaskService(server, s)
	logpump.Register(server, func(id string) (*logpump.Pump, error) {
		if a := s.find(id); a != nil {
			return a.pump, nil
		}
		return nil, fmt.Errorf("looking for container %s: it has no pump here: %w", id, errdefs.ErrNotFound)
	})
	return nil
}

// Create creates the container with its streams at the pump.
func (s *service) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	w, err := readWish(r.Bundle)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if w.dir == "" {
		return s.TTRPCTaskService.Create(ctx, r)
	}
	pump, err := logpump.Open(logpump.Config{Dir: w.dir, LogPath: w.log, Stdin: w.stdin, TTY: r.Terminal})
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	files := pump.Files()
	r.Stdin, r.Stdout, r.Stderr = files.Stdin, files.Stdout, files.Stderr
	res, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil {
		if err := pump.Close(); err != nil {
			log.G(ctx).WithError(err).Error("closing the pump of a container that was not created")
		}
		return nil, err
	}
	a := &attended{id: r.ID, dir: w.dir, pump: pump}
	a.leaveNotes(ctx, r.Bundle, int(res.Pid))
	s.attend(ctx, a)
	return res, nil
}

// attend stays with a container until its end.
func (s *service) attend(ctx context.Context, a *attended) {
	a.done = make(chan struct{})
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.attended[a.id] = a
	s.mu.Unlock()
	a.pump.Run()
	go a.run(ctx, s.TTRPCTaskService)
}

// Wait returns, for a container, when its output is in the log as well.
func (s *service) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	res, err := s.TTRPCTaskService.Wait(ctx, r)
	a := s.find(r.ID)
	if err != nil || a == nil || r.ExecID != "" {
		return res, err
	}
	select {
	case <-a.done:
		return res, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(ctx.Err())
	}
}

// Delete deletes a container and its pump, or an exec.
func (s *service) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ExecID != "" {
		ctx, cancel := context.WithTimeout(ctx, execDrain)
		defer cancel()
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	res, err := s.TTRPCTaskService.Delete(ctx, r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	a := s.attended[r.ID]
	delete(s.attended, r.ID)
	s.mu.Unlock()
	if a != nil {
		if err := a.end(); err != nil {
			log.G(ctx).WithError(err).WithField("id", r.ID).Error("closing the pump of a container")
		}
	}
	return res, nil
}

func (s *service) find(id string) *attended {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attended[id]
}
