package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/cmd/crib/config"
	"github.com/crib-runtime/crib/cmd/crib/events"
	"github.com/crib-runtime/crib/cmd/crib/host"
	"github.com/crib-runtime/crib/cmd/crib/tracing"
	"github.com/crib-runtime/crib/network/counters"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/engine"
	"github.com/crib-runtime/crib/sandbox/feed"
	"github.com/crib-runtime/crib/sandbox/files"
	"github.com/crib-runtime/crib/sandbox/store"
	"github.com/crib-runtime/crib/sandbox/usage"
)

// Daemon is all of crib in one process.
type Daemon struct {
	setup
	parts
	metrics   *admin.Metrics
	inFlight  ops.Table
	events    events.Hub
	watchdog  watchdog
	harvested map[string]container.Ended // ends of containers while there was no daemon
	ready     atomic.Bool
}

// parts are what a daemon consists of; those that were not opened are nil.
type parts struct {
	lock       *os.File // of the state directory; closed last
	store      *store.Store
	engine     *engine.Engine
	nets       *networks
	pods       *sandbox.Manager
	containers *container.Manager
	meter      *usage.Meter
	feed       *feed.Feed // of CRI; events are for people
	tracing    *tracing.Tracing
}

// setup is what a daemon is opened with.
type setup struct {
	cfg     config.Config
	version string
	log     *slog.Logger
}

// Open makes the parts of a daemon. It is an error if another one has the root or
// the state directory.
func Open(ctx context.Context, cfg config.Config, version string, log *slog.Logger) (*Daemon, error) {
	d := &Daemon{setup: setup{cfg, version, log}}
	d.log = d.events.Log(log)
	err := d.open(ctx)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(d.cfg.State, 0o711); err != nil {
		return err
	}
	if d.store, err = store.Open(d.cfg.Root); err != nil {
		return err
	}
	// Another root alone does not make it another crib: sockets and the pods'
	// directories would be taken from one that runs.
	if d.lock, err = store.Lock(d.cfg.State); err != nil {
		return err
	}
	if err := netns.Share(d.cfg.Network.NetnsDir); err != nil {
		return fmt.Errorf("prepare %s for the pins of namespaces: %w", d.cfg.Network.NetnsDir, err)
	}
	lacking := loadModules(ctx, host.Modules())
	if lacking != nil {
		d.log.Debug("parts of the kernel that are built in or missing", "error", lacking)
	}
	if d.nets, err = openNetworks(d.cfg, d.store, d.log); err != nil {
		if errdefs.IsUnavailable(err) && lacking != nil {
			return fmt.Errorf("%w; %w", err, lacking)
		}
		return err
	}
	if err := d.nets.start(ctx); err != nil {
		d.log.Error("the built-in network has no ranges", "error", err)
	}
	if d.engine, err = d.openEngine(ctx); err != nil {
		return fmt.Errorf("open the engine: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	bootID := strings.TrimSpace(string(boot))
	d.feed = feed.New(d.log.With("part", "events"))
	if err := d.observe(ctx); err != nil {
		return err
	}
	d.openPods(bootID)
	d.openContainers(bootID)
	d.openMeter()
	return nil
}

// observe has operations measured and traced.
func (d *Daemon) observe(ctx context.Context) (err error) {
	d.metrics = admin.NewMetrics(d)
	d.inFlight.Observe = d.metrics.Stage
	cfg := d.cfg.Tracing
	if cfg.Endpoint == "" {
		return nil
	}
	if d.tracing, err = tracing.Open(ctx, cfg.Endpoint, cfg.Sampling, d.version); err == nil {
		d.inFlight.Span = d.tracing.Span
	}
	return err
}

// openPods makes the life of pods.
func (d *Daemon) openPods(bootID string) {
	d.pods = sandbox.New(sandbox.Config{
		Networks: d.nets.drivers(),
		Choose:   d.nets.choose,
		Pinner:   newPinner(d.cfg.Network.NetnsDir),
		Files:    d.podFiles(),
		Engine:   inits{engine: d.engine, systemd: d.SystemdCgroup()},
		Store:    d.feed.Pods(d.store),
		BootID:   bootID,
		NetnsDir: d.cfg.Network.NetnsDir,
		Process:  d.process(),
		Ops:      &d.inFlight,

		UserNamespaces: d.engine.Info().IDMap,

		Log: d.log,

		StopContainers:   func(ctx context.Context, id string) error { return d.containers.StopAll(ctx, id) },
		RemoveContainers: func(ctx context.Context, id string) error { return d.containers.RemoveAll(ctx, id) },
	})
}

func (d *Daemon) podFiles() files.Pods { return files.Pods{Root: filepath.Join(d.cfg.State, "pods")} }

// openEngine opens containerd, ours or the one of the configuration.
func (d *Daemon) openEngine(ctx context.Context) (*engine.Engine, error) {
	shim, err := helper(d.cfg.Engine.Shim, "crib-shim")
	if err != nil {
		return nil, err
	}
	init, err := helper(d.cfg.Engine.Init, "crib-init")
	if err != nil {
		return nil, err
	}
	cfg := engine.Config{
		Root:          filepath.Join(d.cfg.Root, "engine"),
		State:         filepath.Join(d.cfg.State, "engine"),
		Address:       d.cfg.Engine.Address,
		Listen:        d.engineListen(),
		Shim:          shim,
		Init:          init,
		OCIRuntime:    d.cfg.Engine.OCIRuntime,
		SystemdCgroup: d.SystemdCgroup(),
		CertsDirs:     d.cfg.Images.CertsDirs,
		PullIdle:      d.cfg.Images.PullIdle,
		PullMinRate:   uint64(d.cfg.Images.PullMinRate),
		Log:           d.log.With("part", "engine"),
	}
	// Before it opens: then it forgets what ended while it was not there.
	if d.harvested, err = engine.Harvest(ctx, cfg); err != nil {
		d.log.Warn("the ends of some containers are not known", "error", err)
	}
	return engine.Open(ctx, cfg)
}

// engineListen is the engine's own socket for others; the one of CRI is made by Serve.
func (d *Daemon) engineListen() string {
	if d.cfg.Engine.ServedAt(d.cfg.Listen) {
		return ""
	}
	return d.cfg.Engine.Listen
}

// process says which pods get an init: all of them where cAdvisor asks for it.
func (d *Daemon) process() string {
	if d.cfg.Sandbox.Process == "auto" && d.cfg.Engine.ServedAt(config.ContainerdSocket) {
		return "always"
	}
	return d.cfg.Sandbox.Process
}

// SystemdCgroup tells whether systemd makes the cgroups: where it is the init,
// unless the configuration says otherwise.
func (d *Daemon) SystemdCgroup() bool {
	if d.cfg.Sandbox.CgroupDriver != "auto" {
		return d.cfg.Sandbox.CgroupDriver == "systemd"
	}
	_, err := os.Lstat("/run/systemd/system") // as sd_booted(3)
	return err == nil
}

// openMeter makes what reads the usage of pods.
func (d *Daemon) openMeter() {
	systemd := d.SystemdCgroup()
	d.meter = usage.NewMeter(usage.Config{
		Root: cgroup.Root,
		Path: func(pod *sandbox.Pod, id string) string {
			return cgroup.Path(cgroupsPath(systemd, pod.Spec.CgroupParent, id), systemd)
		},
		Links:  counters.Read,
		Layers: d.engine,
		Log:    d.log.With("part", "usage"),
	})
}

// Close ends the parts and leaves the pods alone. [Daemon.Serve] calls it.
func (d *Daemon) Close() error {
	var errs []error
	if d.containers != nil {
		d.containers.Close()
	}
	if d.engine != nil {
		errs = append(errs, d.engine.Close())
	}
	if d.nets != nil {
		errs = append(errs, d.nets.close())
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	if d.tracing != nil {
		errs = append(errs, d.tracing.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}
