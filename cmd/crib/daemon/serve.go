package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/crib-runtime/crib/cmd/crib/admin"
	"github.com/crib-runtime/crib/cri"
	"github.com/crib-runtime/crib/network/netns"
)

// drainTime is how long calls that run at the end may take. The work of those
// which take longer is on record, and the next start finishes or unwinds it.
const drainTime = 20 * time.Second

// Serve listens, recovers and serves until ctx ends, then closes the daemon.
func (d *Daemon) Serve(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.Close()) }()
	criListener, err := listen(d.cfg.Listen, d.cfg.Group, 0o660)
	if err != nil {
		return err
	}
	adminListener, err := listen(d.cfg.Admin.Listen, "", 0o600)
	if err != nil {
		return errors.Join(err, criListener.Close())
	}
	streams, err := d.newStreams()
	if err != nil {
		return errors.Join(err, criListener.Close(), adminListener.Close())
	}
	adminServer := &http.Server{Handler: admin.NewHandler(d, d.metrics), ReadHeaderTimeout: time.Minute}

	group, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, d.feed.Close) // or the end would wait for who listens
	var calls sync.WaitGroup
	criServer, err := d.newServer(ctx, streams, &calls)
	if err != nil {
		return errors.Join(err, criListener.Close(), adminListener.Close(), streams.Close())
	}
	group.Go(func() error {
		defer awaitCalls(&calls)
		return serveCRI(ctx, criServer, criListener)
	})
	group.Go(func() error { return serveAdmin(ctx, adminServer, adminListener) })
	group.Go(func() error { return streams.Serve(ctx) })
	group.Go(func() error { return d.work(ctx) })
	return group.Wait()
}

// newServer makes the server of CRI; on the same socket it may have containerd's API,
// whose calls end with ctx.
func (d *Daemon) newServer(ctx context.Context, streams cri.Streams, calls *sync.WaitGroup) (*grpc.Server, error) {
	cfg := cri.Config{
		Pods: d.pods, Containers: lives{d.containers, d.pods, d.engine}, Images: d.engine, Streams: streams,
		Node: d, Usage: d.meter, Events: d.feed, Version: d.version, Ready: d.ready.Load, Trouble: d.Trouble, Calls: calls, Log: d.log.With("part", "cri"),
	}
	if d.tracing != nil {
		cfg.Tracer = d.tracing.Handler()
	}
	if d.cfg.Engine.ServedAt(d.cfg.Listen) {
		api, err := d.engine.API(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Beside = api
	}
	return cri.NewServer(cfg)
}

// work brings the pods back and then runs the loops.
func (d *Daemon) work(ctx context.Context) error {
	start := time.Now()
	if err := d.recover(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // told to end meanwhile
	}
	d.ready.Store(true)
	d.log.Info("crib is ready", "version", d.version, "socket", d.cfg.Listen, "pods", len(d.pods.List()), "recovery", time.Since(start))
	if _, err := sd.SdNotify(false, sd.SdNotifyReady); err != nil {
		d.log.Warn("systemd was not told that crib is ready", "error", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.pods.Serve(ctx) })
	group.Go(func() error { return d.containers.Serve(ctx) })
	group.Go(func() error { return d.nets.serve(ctx) })
	group.Go(func() error { return d.watch(ctx) })
	group.Go(func() error { return d.syncRecords(ctx) })
	return group.Wait()
}

// recover brings back what earlier processes recorded: the containers first, since
// the recovery of a pod may stop its own.
func (d *Daemon) recover(ctx context.Context) error {
	if damaged, err := d.engine.CheckImages(ctx); err != nil || len(damaged) > 0 {
		d.log.Warn("images were damaged, by a power cut as a rule; the next pull fetches what is missing", "content", damaged, "error", err)
	}
	if err := d.containers.Recover(ctx, d.harvested); err != nil {
		return err
	}
	return d.pods.Recover(ctx)
}

// syncRecords goes on when the disk fails: pods live without it.
func (d *Daemon) syncRecords(ctx context.Context) error {
	for {
		err := d.store.Serve(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		d.log.Error("the records of pods are not on disk yet; it is tried again", "error", err)
	}
}

// serveCRI serves until ctx ends and then lets the calls that run finish.
func serveCRI(ctx context.Context, server *grpc.Server, l net.Listener) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
		force := time.AfterFunc(drainTime, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	}()
	err := server.Serve(l)
	if ctx.Err() == nil {
		server.Stop()
		return fmt.Errorf("serve CRI: %w", err)
	}
	<-stopped
	return nil
}

// awaitCalls waits for the calls that were answered before they were done. What
// takes longer ends with the process, and the next start finishes or unwinds it.
func awaitCalls(calls *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		calls.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
	}
}

func serveAdmin(ctx context.Context, server *http.Server, l net.Listener) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_ = server.Close()
	}()
	err := server.Serve(l)
	if ctx.Err() == nil {
		return fmt.Errorf("serve the admin API: %w", err)
	}
	<-stopped
	return nil
}

// Reset removes all pods and what crib made on the host, and closes the daemon.
// The engine's content stays, and so does the configuration. While other clients have
// containers in the engine its state stays, too, and the error, of class
// ErrFailedPrecondition, names them.
func (d *Daemon) Reset(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.recover(ctx); err != nil {
		return err
	}
	var errs []error
	for _, pod := range d.pods.List() {
		errs = append(errs, d.pods.Stop(ctx, pod.ID), d.pods.Remove(ctx, pod.ID))
	}
	errs = append(errs, d.nets.reset(ctx), netns.GiveBack(d.cfg.Network.NetnsDir), d.nothingForeign(ctx))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = errors.Join(d.engine.Close(), d.removeState())
	d.engine = nil
	return err
}

// nothingForeign fails while others have containers in the embedded engine: without
// it nobody could end them any more.
func (d *Daemon) nothingForeign(ctx context.Context) error {
	if !d.engine.Info().Embedded {
		return nil
	}
	foreign, err := d.engine.Foreign(ctx)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("containers of other clients run in the engine: %s; start crib and remove them with those clients, as by `ctr -n NAMESPACE tasks rm -f ID`: %w",
			strings.Join(foreign, ", "), errdefs.ErrFailedPrecondition)
	}
	return err
}

// removeState removes what crib has in the state directory, by name: the
// configuration may name one in which others have something, too.
func (d *Daemon) removeState() error {
	var errs []error
	for _, name := range []string{"pods", "networks", "engine", "cni", "sysctls.json", "LOCK"} {
		errs = append(errs, os.RemoveAll(filepath.Join(d.cfg.State, name)))
	}
	for _, socket := range []string{d.cfg.Listen, d.cfg.Admin.Listen} {
		errs = append(errs, clearStale(socket))
	}
	if err := os.Remove(d.cfg.State); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
