package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
)

// answersEarly are the calls that need no pods.
var answersEarly = map[string]bool{"Version": true, "Status": true}

// intercept stands around every call: it holds back what needs the pods until
// they are recovered, logs, and turns classes of errors into codes.
func (s *Service) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	if !answersEarly[method] && !s.cfg.Ready() {
		return nil, errgrpc.ToGRPC(fmt.Errorf("crib is recovering its pods, try again: %w", errdefs.ErrUnavailable))
	}
	start := time.Now()
	resp, err := handler(ctx, req)
	log := s.cfg.Log.With("method", method, "took", time.Since(start))
	switch {
	case err == nil:
		log.Debug("call")
	case errdefs.IsNotImplemented(err), errdefs.IsNotFound(err) && strings.HasSuffix(method, "Status"):
		log.Debug("call", "error", err) // the kubelet asks for what it has just removed
	default:
		log.Warn("call", "error", err)
	}
	return resp, errgrpc.ToGRPC(err)
}
