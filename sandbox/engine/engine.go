package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox"
)

const (
	// namespace is where Kubernetes' containers are, for every tool that looks.
	namespace = "k8s.io"
	// runtimeName is kept from containerd, so that tools know the containers;
	// the shim's binary is ours, by path.
	runtimeName = "io.containerd.runc.v2"
	// openTimeout bounds the first answers of an external containerd and of the
	// OCI runtime.
	openTimeout = 10 * time.Second
)

// Config says which engine to open. Root, State and Shim are required.
type Config struct {
	Root          string       // content, snapshots, metadata: /var/lib/crib/engine
	State         string       // gone after a reboot: /run/crib/engine; at most 40 characters
	Address       string       // socket of a running containerd; "" embeds one
	Shim          string       // absolute path of crib-shim
	Init          string       // absolute path of crib-init; "" if no pod shares its PID namespace
	OCIRuntime    string       // name or path; "" takes crun from 1.27 on, else runc
	SystemdCgroup bool         // systemd makes the cgroups
	Listen        string       // additional socket for the containerd API; embedded only
	Log           *slog.Logger // nil discards

	CertsDirs   []string      // directories of hosts.toml, the first that knows a registry counts; nil: /etc/crib/certs.d, /etc/containerd/certs.d
	PullIdle    time.Duration // a pull ends when nothing comes for so long; 0: 5 min
	PullMinRate uint64        // bytes a second that a pull must make, on average over PullIdle; 0: any
}

// Info is what Status tells about the engine.
type Info struct {
	Embedded   bool   `json:"embedded"`
	Containerd string `json:"containerd"` // version
	Runtime    string `json:"runtime"`    // name, as containers' records have it
	OCIRuntime string `json:"ociRuntime"` // path
	OCIVersion string `json:"ociVersion"` // of the specs that we write
	// RecursiveReadOnly says that runtime and kernel can make a mount read-only
	// with all that is mounted below it.
	RecursiveReadOnly bool `json:"recursiveReadOnly"`
	// IDMap says that runtime, kernel and snapshotter can map the ids of files, which
	// user namespaces need.
	IDMap bool `json:"idMap"`
}

// Engine is containerd, in our process or beside it. It is safe for concurrent
// use; operations on one pod wait for each other.
type Engine struct {
	cfg    Config
	info   Info
	client *client.Client
	server *server // nil when containerd is external
	root   string  // of every init; "" without Config.Init
	pods   pods
	images *imageStore

	clamped sync.Once // the note that a wish for oom_score_adj was not granted
}

// pods is what operations on tasks share: the locks of pods, and what makes starts
// quick.
type pods struct {
	sandbox.KeyLock[string]
	grace grace
}

// Open starts the embedded engine or connects to the external one. Tasks that
// ran before run on. It fails with errdefs.ErrInvalidArgument for an unusable
// configuration, errdefs.ErrNotFound without an OCI runtime,
// errdefs.ErrUnavailable if nothing answers at Address or another process has
// Root, and errdefs.ErrFailedPrecondition if the containerd there serves CRI.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := validate(cfg); err != nil {
		return nil, err
	}
	probe, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	oci, err := findRuntime(probe, cfg.OCIRuntime)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, pods: pods{grace: grace{log: cfg.Log}}}
	e.info = Info{Embedded: cfg.Address == "", Runtime: runtimeName, OCIRuntime: oci.path, OCIVersion: oci.specVersion(), RecursiveReadOnly: oci.rro && kernelMakesRecursiveReadOnly(), IDMap: oci.idMap}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	cfg.Log.Info("engine is open", "containerd", e.info.Containerd, "embedded", e.info.Embedded,
		"runtime", oci.path, "version", oci.version)
	return e, nil
}

// open makes what e needs; on an error the caller closes e.
func (e *Engine) open(ctx context.Context) (err error) {
	if err := makeDirs(e.cfg); err != nil {
		return err
	}
	if e.cfg.Init != "" {
		if e.root, err = buildInitRoot(e.cfg.State, e.cfg.Init); err != nil {
			return err
		}
	}
	address := e.cfg.Address
	if address == "" {
		if e.server, err = startServer(ctx, e.cfg); err != nil {
			return err
		}
		address = e.server.address()
	}
	e.client, err = client.New(address, client.WithDefaultNamespace(namespace), client.WithTimeout(openTimeout))
	if err != nil {
		return fmt.Errorf("connecting to containerd at %s: %w", address, err)
	}
	// Not before: starting takes longer when many shims died meanwhile.
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	v, err := e.client.Version(ctx)
	if err != nil {
		return fmt.Errorf("asking containerd at %s for its version (is it running?): %w: %w", address, errdefs.ErrUnavailable, err)
	}
	e.info.Containerd = v.Version
	if e.server == nil {
		if err := refuseCRI(ctx, e.client, address); err != nil {
			return err
		}
	}
	if e.images, err = openImages(ctx, e.client, e.cfg); err != nil {
		return err
	}
	e.info.IDMap = e.info.IDMap && e.images.snap.idMap
	return nil
}

// Info tells what was opened. It does not block.
func (e *Engine) Info() Info { return e.info }

// Close ends the engine's goroutines and gives its files and sockets back.
// Tasks and their shims go on. It is not to be called while another method runs.
func (e *Engine) Close() error {
	var errs []error
	if e.images != nil {
		e.images.close()
	}
	if e.client != nil {
		errs = append(errs, e.client.Close())
		e.client = nil
	}
	if e.server != nil {
		errs = append(errs, e.server.close())
		e.server = nil
	}
	return errors.Join(errs...)
}

// validate finds what would otherwise fail later and be harder to understand.
func validate(c Config) error {
	paths := map[string]string{"root": c.Root, "state": c.State, "shim": c.Shim}
	if c.Init != "" {
		paths["init"] = c.Init
	}
	for name, path := range paths {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("checking engine.%s: %q is not an absolute path: %w", name, path, errdefs.ErrInvalidArgument)
		}
	}
	if len(c.State) > maxState {
		return fmt.Errorf("checking engine.state: %s is longer than %d characters, sockets below it could not be bound: %w",
			c.State, maxState, errdefs.ErrInvalidArgument)
	}
	if c.Address != "" && c.Listen != "" {
		return fmt.Errorf("checking engine.listen: %s already serves the API, leave engine.listen empty: %w",
			c.Address, errdefs.ErrInvalidArgument)
	}
	return nil
}
