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
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
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
	serving sync.WaitGroup // also the streams of [API] that their clients have left
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
	if err := s.bundlesBack(); err != nil {
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
	switch r.Type {
	case plugins.ShimPlugin:
		r.InitFn = s.newShims
	case plugins.DiffPlugin:
		r.InitFn = syncedDiffs(r.InitFn)
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
	if err := s.registerGRPC(s.rpc.grpc); err != nil {
		return err
	}
	for _, p := range s.loaded.GetAll() {
		instance, err := p.Instance()
		if err != nil {
			return err
		}
		if svc, ok := instance.(interface{ RegisterTTRPC(*ttrpc.Server) error }); ok {
			err = svc.RegisterTTRPC(s.rpc.ttrpc)
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
