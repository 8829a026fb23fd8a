package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crib-runtime/crib/network/ops"
	"github.com/crib-runtime/crib/sandbox/image"
)

// answersEarly are the calls that need no pods.
var answersEarly = map[string]bool{"Version": true, "Status": true}

// ownServices is how the methods of CRI begin, and no others.
const ownServices = "/runtime.v1."

// unary sends a call through the interceptor of whoever it belongs to.
func (s *Service) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s.cfg.Beside == nil || strings.HasPrefix(info.FullMethod, ownServices) {
		return s.intercept(ctx, req, info, handler)
	}
	return s.cfg.Beside.Unary(ctx, req, info, handler)
}

// stream does what unary does.
func (s *Service) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.cfg.Beside == nil || strings.HasPrefix(info.FullMethod, ownServices) {
		return s.interceptStream(srv, stream, info, handler)
	}
	return s.cfg.Beside.Stream(srv, stream, info, handler)
}

// intercept stands around every call of CRI: it holds back what needs the pods until
// they are recovered, logs, and turns classes of errors into codes.
func (s *Service) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = s.around(info.FullMethod, func() (err error) {
		resp, err = s.inTime(ctx, func(ctx context.Context) (any, error) { return handler(ctx, req) })
		return err
	})
	return resp, err
}

// interceptStream does the same for calls whose answers are many.
func (s *Service) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.around(info.FullMethod, func() error { return handler(srv, stream) })
}

func (s *Service) around(fullMethod string, call func() error) error {
	method := fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
	if !answersEarly[method] && !s.cfg.Ready() {
		return statusFrom(fmt.Errorf("crib is recovering its pods, try again: %w", errdefs.ErrUnavailable))
	}
	start := time.Now()
	err := call()
	log := s.cfg.Log.With("method", method, "took", time.Since(start))
	switch {
	case err == nil:
		log.Debug("call")
	case errdefs.IsNotImplemented(err), errdefs.IsNotFound(err) && strings.HasSuffix(method, "Status"):
		log.Debug("call", "error", err) // the kubelet asks for what it has just removed
	case method == "GetContainerEvents":
		log.Debug("call", "error", err) // it has no other end
	default:
		log.Warn("call", "error", err)
	}
	return statusFrom(err)
}

// answerEarly is how long before the client's deadline a call is answered that is
// not done: after it the client has an error of its own, without a text.
const answerEarly = 500 * time.Millisecond

// inTime answers a call shortly before its deadline with what it is doing. The call is
// then one whose client went away: most go on. Config.Calls counts it until it ends.
func (s *Service) inTime(ctx context.Context, handle func(context.Context) (any, error)) (any, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return handle(ctx)
	}
	type answer struct {
		resp any
		err  error
	}
	ctx, call := ops.WithCall(ctx)
	done := make(chan answer, 1)
	s.cfg.Calls.Go(func() {
		resp, err := handle(ctx)
		done <- answer{resp, err}
	})
	left := time.Until(deadline)
	late := time.NewTimer(left - min(left/20, answerEarly))
	defer late.Stop()
	for {
		select {
		case a := <-done:
			return a.resp, a.err
		case <-late.C:
			if now, ok := call.Now(); ok {
				return nil, fmt.Errorf("not done yet, call again: %s: %w", now, context.DeadlineExceeded)
			}
		}
	}
}

// statusFrom turns classes of errors into codes. Those that the kubelet knows by
// name it finds by the beginning of the text, and under the code Unknown only.
func statusFrom(err error) error {
	if !errors.Is(err, image.ErrRegistryUnavailable) {
		return errgrpc.ToGRPC(err)
	}
	text, name := err.Error(), image.ErrRegistryUnavailable.Error()
	if !strings.HasPrefix(text, name) {
		text = name + ": " + text
	}
	return status.Error(codes.Unknown, text)
}
