package engine

import (
	"context"
	"fmt"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// API is containerd's API for a server that has other services, too. It is safe for
// concurrent use.
type API struct {
	server *server
	ending context.Context //nolint:containedctx // the life of the API, not of a call
}

// API returns the API of the embedded engine. Its calls end with ctx: a client that
// follows events or waits for a task would hold up a graceful stop for ever. The
// engine may be closed when the server has been stopped. With an external engine it
// fails with errdefs.ErrFailedPrecondition.
func (e *Engine) API(ctx context.Context) (*API, error) {
	if e.server == nil {
		return nil, fmt.Errorf("serving containerd's API: the containerd at %s serves it itself: %w", e.cfg.Address, errdefs.ErrFailedPrecondition)
	}
	return &API{server: e.server, ending: ctx}, nil
}

// Register puts containerd's services on a server that does not serve yet.
func (a *API) Register(server *grpc.Server) error { return a.server.registerGRPC(server) }

// Unary is to stand around the calls of containerd's services, as an interceptor.
func (a *API) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ending, cancel)()
	return a.server.handle(ctx, req, handler)
}

// Stream is what Unary is, for streams. Their handlers wait for the client, whatever
// becomes of their context, until the stream is over; so it ends before they do.
func (a *API) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(a.server.prepare(stream.Context()))
	defer cancel()
	done := make(chan error, 1)
	a.server.rpc.serving.Go(func() { done <- handler(srv, preparedStream{stream, ctx}) })
	select {
	case err := <-done:
		return err
	case <-a.ending.Done():
		return status.Error(codes.Unavailable, "crib is ending, try again")
	}
}

// registerGRPC puts containerd's services on a server.
func (s *server) registerGRPC(server *grpc.Server) error {
	for _, p := range s.loaded.GetAll() {
		instance, err := p.Instance()
		if err != nil {
			return err
		}
		svc, ok := instance.(interface{ Register(*grpc.Server) error })
		if !ok || p.Registration.Type != plugins.GRPCPlugin {
			continue
		}
		if err := svc.Register(server); err != nil {
			return fmt.Errorf("registering containerd's service %s: %w", p.Registration.URI(), err)
		}
	}
	return nil
}

// handle calls a handler of containerd's with what it expects.
func (s *server) handle(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	ctx = s.prepare(ctx)
	if r, ok := req.(*tasks.CreateTaskRequest); ok && r.RuntimePath == "" {
		if err := s.lendShim(ctx, r); err != nil {
			return nil, err
		}
	}
	return handler(ctx, req)
}

// lendShim makes our shim run a task of another client whose container wants runc's.
// Nodes have no other, and the containers of one that Close does not know would end.
func (s *server) lendShim(ctx context.Context, r *tasks.CreateTaskRequest) error {
	instance, err := s.loaded.Get(plugins.ServicePlugin, services.ContainersService).Instance()
	if err != nil {
		return err
	}
	res, err := instance.(containersapi.ContainersClient).Get(ctx, &containersapi.GetContainerRequest{ID: r.ContainerID})
	if err != nil {
		return err
	}
	if res.Container.GetRuntime().GetName() == runtimeName {
		r.RuntimePath = s.link()
	}
	return nil
}

// prepare puts into a call's context what containerd's handlers expect there: the
// caller's namespace and our log.
func (s *server) prepare(ctx context.Context) context.Context {
	ctx = log.WithLogger(ctx, s.log)
	if ns, ok := namespaces.Namespace(ctx); ok {
		// This is what puts it into calls that the handler makes itself.
		ctx = namespaces.WithNamespace(ctx, ns)
	}
	return ctx
}

// newGRPC makes the server of our own client. Its messages are as large as
// containerd's clients expect, 16 MiB.
func (s *server) newGRPC() *grpc.Server {
	return grpc.NewServer(
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
		grpc.MaxSendMsgSize(defaults.DefaultMaxSendMsgSize),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return s.handle(ctx, req, h)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return h(srv, preparedStream{ss, s.prepare(ss.Context())})
		}),
	)
}

// preparedStream is a stream with another context, which gRPC has no other means for.
type preparedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // see above
}

// Context implements grpc.ServerStream.
func (s preparedStream) Context() context.Context { return s.ctx }
