package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/crib-runtime/crib/sandbox/logpump"
)

// execDrain bounds the deletion of an exec whose output somebody still holds
// open. The client has waited for the output already.
const execDrain = 100 * time.Millisecond

// envPath tells a shim that it is the pod's and ends when the engine says so; and by
// which path the engine knows the program. sandbox/engine has the same name.
const envPath = "CRIB_SHIM_PATH"

// service is containerd's task service, with a pump beside each container that
// asks for one.
type service struct {
	task.TTRPCTaskService
	path string // "" for a shim that ends with its last container

	mu       sync.Mutex // guards held and attended
	held     map[string]bool
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
	if err == nil && s.path != "" {
		// What containerd leaves there for itself when it starts a shim.
		err = os.WriteFile(filepath.Join(r.Bundle, "shim-binary-path"), []byte(s.path), 0o600)
	}
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	s.hold(r.ID, true)
	res, err := s.create(ctx, w, r)
	if err != nil {
		s.hold(r.ID, false)
	}
	return res, err
}

// markDeleted leaves a note for cleaner. A bundle that is not known gets none.
func markDeleted(bundle string) error {
	if bundle == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(bundle, deletedFile), nil, 0o600)
}

func (s *service) hold(id string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held {
		s.held[id] = true
	} else {
		delete(s.held, id)
	}
}

func (s *service) create(ctx context.Context, w wish, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
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
	a := &attended{id: r.ID, dir: w.dir, pump: pump, first: openFirst(int(res.Pid), w.ownPIDs)}
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
	bundle := s.bundle(ctx, r.ID)
	res, err := s.TTRPCTaskService.Delete(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := markDeleted(bundle); err != nil {
		log.G(ctx).WithError(err).WithField("id", r.ID).Warn("a deleted container is cleaned up again")
	}
	s.mu.Lock()
	a := s.attended[r.ID]
	delete(s.attended, r.ID)
	delete(s.held, r.ID)
	s.mu.Unlock()
	if a != nil {
		if err := a.end(); err != nil {
			log.G(ctx).WithError(err).WithField("id", r.ID).Error("closing the pump of a container")
		}
	}
	return res, nil
}

// bundle is where the engine keeps a container; "" if it is not known here.
func (s *service) bundle(ctx context.Context, id string) string {
	res, err := s.State(ctx, &task.StateRequest{ID: id})
	if err != nil {
		return ""
	}
	return res.Bundle
}

// Kill signals a container's first process itself where that is all there is to do.
// The rest is the OCI runtime's: all processes of a container that shares its PID
// namespace, and one that is paused.
func (s *service) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	a := s.find(r.ID)
	if a == nil || r.ExecID != "" || !a.first.enough(r) {
		return s.TTRPCTaskService.Kill(ctx, r)
	}
	state, err := s.State(ctx, &task.StateRequest{ID: r.ID})
	if err != nil || state.Status != tasktypes.Status_RUNNING {
		return s.TTRPCTaskService.Kill(ctx, r)
	}
	if err := a.first.signal(r.Signal); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &emptypb.Empty{}, nil
}

// Shutdown ends the process if it has no container. containerd asks after each
// container; the pod's shim waits for the engine, which asks for it now.
func (s *service) Shutdown(ctx context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	if s.path != "" && !r.Now {
		return &emptypb.Empty{}, nil
	}
	s.mu.Lock()
	held := len(s.held)
	s.mu.Unlock()
	if s.path != "" && held > 0 {
		return nil, errgrpc.ToGRPC(fmt.Errorf("ending the shim: it has %d containers: %w", held, errdefs.ErrFailedPrecondition))
	}
	return s.TTRPCTaskService.Shutdown(ctx, r)
}

func (s *service) find(id string) *attended {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attended[id]
}
