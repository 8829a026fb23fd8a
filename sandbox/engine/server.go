package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/events/exchange"
	v2 "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

// closeTimeout bounds the wait for the connections to shims.
const closeTimeout = 10 * time.Second

// server is containerd in our process: its plugins, and the two servers that
// they register on. All of it belongs to the goroutine that opens and closes.
type server struct {
	state  string
	log    *log.Entry
	lock   *os.File
	trust  *trust // nil until lock is held
	loaded *plugin.Set
	stop   context.CancelFunc // ends the plugins' goroutines
	rpc    rpcServers
	open   atomic.Bool // set when what was there before has been loaded
}

// address is that of the gRPC socket; shims get it with ".ttrpc" behind it.
func (s *server) address() string { return filepath.Join(s.state, "containerd.sock") }

// link is the name by which containerd knows the shim's program: see disconnect.
func (s *server) link() string { return filepath.Join(s.state, "crib-shim") }

// rpcServers are the servers and the goroutines that serve.
type rpcServers struct {
	grpc    *grpc.Server
	ttrpc   *ttrpc.Server
	serving sync.WaitGroup
}

// startServer loads the plugins and serves them.
func startServer(ctx context.Context, cfg Config) (*server, error) {
	s := &server{
		state:  cfg.State,
		log:    newEngineLog(cfg.Log),
		loaded: plugin.NewPluginSet(),
	}
	// The plugins live as long as the engine, not as long as the call of Open.
	ctx, s.stop = context.WithCancel(log.WithLogger(context.WithoutCancel(ctx), s.log))
	if err := s.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) start(ctx context.Context, cfg Config) (err error) {
	if s.lock, err = lockRoot(cfg.Root); err != nil {
		return err
	}
	if err := endOrphans(ctx, cfg.State, s.address()); err != nil {
		s.log.WithError(err).Warn("shims of an engine that was killed are left")
	}
	if s.trust, err = openTrust(cfg.Root); err != nil {
		return err
	}
	if err := linkShim(s.link(), cfg.Shim); err != nil {
		return err
	}
	for _, p := range registry.Graph(func(*plugin.Registration) bool { return false }) {
		if err := s.load(ctx, cfg, p); err != nil {
			return err
		}
	}
	s.open.Store(true)
	return s.serve(cfg.Listen)
}

// load makes one plugin. A snapshotter that cannot work here is left out, as
// overlayfs on some file systems; any other failure is fatal.
func (s *server) load(ctx context.Context, cfg Config, r plugin.Registration) error {
	uri := r.URI()
	ic := plugin.NewContext(ctx, s.loaded, map[string]string{
		plugins.PropertyRootDir:      filepath.Join(cfg.Root, uri),
		plugins.PropertyStateDir:     filepath.Join(cfg.State, uri),
		plugins.PropertyGRPCAddress:  s.address(),
		plugins.PropertyTTRPCAddress: s.address() + ".ttrpc",
	})
	ic.Config = r.Config
	if r.Type == plugins.ShimPlugin {
		r.InitFn = s.newShims
	}
	p := r.Init(ic)
	err := p.Err()
	switch {
	case err == nil:
		s.sweep(ctx, p)
		return s.loaded.Add(p)
	case plugin.IsSkipPlugin(err):
		return nil
	case r.Type == plugins.SnapshotPlugin:
		s.log.WithError(err).WithField("plugin", uri).Warn("snapshotter does not work here")
		return nil
	}
	return fmt.Errorf("loading containerd's plugin %s: %w", uri, err)
}

// sweep removes directories of snapshots without a record, as a crash leaves
// them. The next snapshot gets the number of such a one and would fail, and so
// would all after it.
func (s *server) sweep(ctx context.Context, p *plugin.Plugin) {
	instance, _ := p.Instance() // it came up
	c, ok := instance.(snapshots.Cleaner)
	if !ok {
		return
	}
	err := c.Cleanup(ctx)
	if errdefs.IsNotFound(err) {
		// Nothing was ever recorded: the crash was at the very first one.
		err = removeContent(filepath.Join(p.Meta.Exports[plugins.SnapshotterRootDir], "snapshots"))
	}
	if err != nil && !errdefs.IsNotImplemented(err) {
		s.log.WithError(err).WithField("plugin", p.Registration.URI()).Warn("abandoned snapshots are not removed")
	}
}

// serve registers the plugins and listens for ourselves, for shims and, where
// listen is set, for everybody.
func (s *server) serve(listen string) (err error) {
	s.rpc.grpc = s.newGRPC()
	if s.rpc.ttrpc, err = ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser())); err != nil {
		return fmt.Errorf("making the events server: %w", err)
	}
	if err := s.register(); err != nil {
		return err
	}
	ours, err := listenUnix(s.address())
	if err != nil {
		return err
	}
	s.goServe(func() error { return s.rpc.grpc.Serve(ours) })
	shims, err := listenUnix(s.address() + ".ttrpc")
	if err != nil {
		return err
	}
	s.goServe(func() error { return s.rpc.ttrpc.Serve(context.Background(), shims) })
	if listen == "" {
		return nil
	}
	public, err := listenUnix(listen)
	if err != nil {
		return err
	}
	s.goServe(func() error { return s.rpc.grpc.Serve(public) })
	return nil
}

// register puts every plugin that has a service on its server.
func (s *server) register() error {
	for _, p := range s.loaded.GetAll() {
		instance, err := p.Instance()
		if err != nil {
			return err
		}
		if svc, ok := instance.(interface{ Register(*grpc.Server) error }); ok && p.Registration.Type == plugins.GRPCPlugin {
			err = svc.Register(s.rpc.grpc)
		}
		if svc, ok := instance.(interface{ RegisterTTRPC(*ttrpc.Server) error }); ok {
			err = errors.Join(err, svc.RegisterTTRPC(s.rpc.ttrpc))
		}
		if err != nil {
			return fmt.Errorf("registering containerd's service %s: %w", p.Registration.URI(), err)
		}
	}
	return nil
}

// goServe runs serve until its server is stopped; close waits for it.
func (s *server) goServe(serve func() error) {
	s.rpc.serving.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, grpc.ErrServerStopped) &&
			!errors.Is(err, ttrpc.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.WithError(err).Error("engine's API is no longer served")
		}
	})
}

// newGRPC makes the server that containerd's clients expect: 16 MiB messages,
// the caller's namespace and our log in every context.
func (s *server) newGRPC() *grpc.Server {
	prepare := func(ctx context.Context) context.Context {
		ctx = log.WithLogger(ctx, s.log)
		if ns, ok := namespaces.Namespace(ctx); ok {
			// This is what puts it into calls that the handler makes itself.
			ctx = namespaces.WithNamespace(ctx, ns)
		}
		return ctx
	}
	return grpc.NewServer(
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
		grpc.MaxSendMsgSize(defaults.DefaultMaxSendMsgSize),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(prepare(ctx), req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return h(srv, preparedStream{ss, prepare(ss.Context())})
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

// close undoes whatever start did, in reverse order.
func (s *server) close() error {
	var errs []error
	if s.rpc.grpc != nil {
		s.rpc.grpc.Stop()
	}
	if s.rpc.ttrpc != nil {
		errs = append(errs, s.rpc.ttrpc.Close())
	}
	s.rpc.serving.Wait()
	errs = append(errs, s.disconnect())
	for _, p := range slices.Backward(s.loaded.GetAll()) {
		instance, _ := p.Instance() // those that failed were not kept
		switch c := instance.(type) {
		case io.Closer:
			errs = append(errs, c.Close())
		case *exchange.Exchange:
			errs = append(errs, closeExchange(c))
		}
	}
	// Last: the collector of garbage must take what was reported to it, else the
	// goroutines that report wait for ever. Closing the database waits for it.
	s.drain()
	s.stop()
	if s.trust != nil {
		errs = append(errs, s.trust.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// drain returns when the collector of garbage has taken what was reported before.
// That it then cannot collect, without a database, is meant so.
func (s *server) drain() {
	p := s.loaded.Get(plugins.GCPlugin, "scheduler")
	if p == nil {
		return
	}
	instance, _ := p.Instance() // it came up
	if c, ok := instance.(interface {
		ScheduleAndWait(ctx context.Context) (gc.Stats, error)
	}); ok {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_, _ = c.ScheduleAndWait(ctx)
	}
}

// disconnect closes the connections to the shims and leaves them and their
// containers alone. containerd takes a closed connection for a dead shim and
// runs `shim delete`, which kills the container; there is no call to close one
// otherwise. So the name by which it knows the binary goes first: the attempt
// fails, nothing is deleted, and the connection's goroutines end all the same.
// The next start brings the name back before it loads the shims.
func (s *server) disconnect() error {
	tasks, shims := s.loaded.Get(plugins.RuntimePluginV2, "task"), s.loaded.Get(plugins.ShimPlugin, "manager")
	if tasks == nil || shims == nil {
		return nil
	}
	if err := os.Remove(s.link()); err != nil {
		return fmt.Errorf("leaving the shims (their connections stay open): %w", err)
	}
	s.log.Logger.SetLevel(logrus.PanicLevel) // a warning for each would be wrong and alarming
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return disconnectAll(ctx, tasks, shims)
}

func disconnectAll(ctx context.Context, tasks, shims *plugin.Plugin) error {
	ti, err := tasks.Instance()
	if err != nil {
		return err
	}
	si, err := shims.Instance()
	if err != nil {
		return err
	}
	all, err := ti.(*v2.TaskManager).Tasks(ctx, true)
	if err != nil {
		return fmt.Errorf("listing the shims: %w", err)
	}
	var errs []error
	for _, t := range all {
		shim, err := si.(*v2.ShimManager).Get(namespaces.WithNamespace(ctx, t.Namespace()), t.ID())
		if err != nil {
			if !errdefs.IsNotFound(err) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, shim.Close())
		if c, ok := shim.Client().(interface{ UserOnCloseWait(context.Context) error }); ok {
			errs = append(errs, c.UserOnCloseWait(ctx))
		}
	}
	return errors.Join(errs...)
}
