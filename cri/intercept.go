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

	"github.com/crib-runtime/crib/sandbox/image"
)

// answersEarly are the calls that need no pods.
var answersEarly = map[string]bool{"Version": true, "Status": true}

// intercept stands around every call: it holds back what needs the pods until
// they are recovered, logs, and turns classes of errors into codes.
func (s *Service) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = s.around(info.FullMethod, func() (err error) {
		resp, err = handler(ctx, req)
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
