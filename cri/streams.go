package cri

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// ExecSync runs a command in a container and returns what it wrote. When the
// time-out ends it, the code is DeadlineExceeded: probes tell the two apart.
func (s *Service) ExecSync(ctx context.Context, req *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, invalid("cmd is empty")
	}
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	stdout, stderr, code, err := s.cfg.Containers.ExecSync(ctx, c.ID, req.Cmd, seconds(req.GetTimeout()))
	if err != nil {
		return nil, err
	}
	stdout, stderr = fit(stdout, stderr)
	return &runtime.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: code}, nil
}

// fit cuts two outputs so that one message holds both; the longer one loses first.
func fit(stdout, stderr []byte) ([]byte, []byte) {
	const room = maxMessage - 1<<10 // some is for the message itself
	const half = room / 2
	stdout = stdout[:min(len(stdout), room-min(len(stderr), half))]
	stderr = stderr[:min(len(stderr), room-len(stdout))]
	return stdout, stderr
}

// Exec returns where to find the streams of a new process of a container.
func (s *Service) Exec(_ context.Context, req *runtime.ExecRequest) (*runtime.ExecResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, invalid("cmd is empty")
	}
	session, err := s.session(req)
	if err != nil {
		return nil, err
	}
	session.Command = req.Cmd
	url, err := s.cfg.Streams.ExecURL(session)
	return &runtime.ExecResponse{Url: url}, err
}

// Attach returns where to find the streams of a container's first process.
func (s *Service) Attach(_ context.Context, req *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	session, err := s.session(req)
	if err != nil {
		return nil, err
	}
	url, err := s.cfg.Streams.AttachURL(session)
	return &runtime.AttachResponse{Url: url}, err
}

// PortForward returns where to find streams to ports of a pod.
func (s *Service) PortForward(_ context.Context, req *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	for i, port := range req.GetPort() {
		if port <= 0 || port > 65535 {
			return nil, invalid("port[%d]: %d is not a port", i, port)
		}
	}
	pod, err := s.cfg.Pods.Get(s.fullID(req.GetPodSandboxId()))
	if err != nil {
		return nil, err
	}
	if pod.State != sandbox.Ready {
		return nil, fmt.Errorf("pod %s is not ready: %w", pod.Spec.Key, errdefs.ErrFailedPrecondition)
	}
	url, err := s.cfg.Streams.PortForwardURL(pod.ID, req.GetPort())
	return &runtime.PortForwardResponse{Url: url}, err
}

// streaming are the requests for a session.
type streaming interface {
	GetContainerId() string
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func (s *Service) session(req streaming) (Session, error) {
	session := Session{Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr(), TTY: req.GetTty()}
	switch {
	case session.TTY && session.Stderr:
		return session, invalid("stderr: a tty has one output, ask for stdout alone")
	case !session.Stdin && !session.Stdout && !session.Stderr:
		return session, invalid("one of stdin, stdout and stderr must be true")
	}
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return session, err
	}
	session.ContainerID = c.ID
	return session, nil
}

// running returns the record of a container that runs.
func (s *Service) running(id string) (*container.Container, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	if c.State != container.Running {
		return nil, fmt.Errorf("container %s of pod %s is %s, not Running: %w", c.Spec.Name, c.Spec.PodID, c.State, errdefs.ErrFailedPrecondition)
	}
	return c, nil
}
