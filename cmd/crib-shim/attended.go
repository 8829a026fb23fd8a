package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/logpump"
)

// drainTimeout bounds the wait for the output of a container that has ended:
// something of it may live on in a shared PID namespace and hold the pipe.
const drainTimeout = time.Second

// Annotations by which the engine says what it wishes for a container.
const (
	annotationDir   = "io.crib.dir"      // the directory of the pump; "" wants none
	annotationLog   = "io.crib.log-path" // "" writes no log
	annotationStdin = "io.crib.stdin"    // "" for a container without input
)

// wish is what a spec's annotations say.
type wish struct {
	dir, log string
	stdin    bool
	ownPIDs  bool // it has a PID namespace of its own
}

// readWish reads only what is needed of a bundle's spec.
func readWish(bundle string) (wish, error) {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return wish{}, fmt.Errorf("reading the spec: %w", err)
	}
	defer func() { _ = f.Close() }()
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			Namespaces []specs.LinuxNamespace `json:"namespaces"`
		} `json:"linux"`
	}
	if err := json.NewDecoder(f).Decode(&spec); err != nil {
		return wish{}, fmt.Errorf("reading the spec: %w", err)
	}
	a := spec.Annotations
	return wish{
		dir: a[annotationDir], log: a[annotationLog], stdin: a[annotationStdin] != "",
		ownPIDs: slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace}),
	}, nil
}

// attended is a container that has a pump.
type attended struct {
	id, dir string
	pump    *logpump.Pump
	first   first
	oom     *logpump.OOMWatch  // nil if there is none
	stop    context.CancelFunc // of run, for a container that never ran
	done    chan struct{}      // closed when the end is written and the output is in the log
}

// leaveNotes notes in the container's directory what a daemon wants to find there
// when it comes back: the bundle, which has the address of this process, and where
// the kernel counts OOM kills.
func (a *attended) leaveNotes(ctx context.Context, bundle string, pid int) {
	link := filepath.Join(a.dir, "bundle")
	err := os.Remove(link)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, os.Symlink(bundle, link)); err != nil {
		log.G(ctx).WithError(err).WithField("id", a.id).Error("the daemon will not find this process")
	}
	if a.oom, err = logpump.WatchOOM(a.dir, pid); err != nil {
		log.G(ctx).WithError(err).WithField("id", a.id).Error("OOM kills will not be noticed")
	}
}

// run waits for the end of the container, writes it down and waits for its output.
func (a *attended) run(ctx context.Context, tasks task.TTRPCTaskService) {
	defer close(a.done)
	res, err := tasks.Wait(ctx, &task.WaitRequest{ID: a.id})
	oom := a.oomKilled(ctx)
	if err != nil {
		return // deleted before it ended
	}
	ended := logpump.Ended{At: res.ExitedAt.AsTime(), Code: res.ExitStatus, OOMKilled: oom}
	if err := ended.Write(a.dir); err != nil {
		log.G(ctx).WithError(err).WithField("id", a.id).Error("a daemon that was away will not know the end")
	}
	drain := time.NewTimer(drainTimeout)
	defer drain.Stop()
	select {
	case <-a.pump.Done():
	case <-drain.C:
	}
}

// oomKilled ends the watch for OOM kills.
func (a *attended) oomKilled(ctx context.Context) bool {
	if a.oom == nil {
		return false
	}
	killed, err := a.oom.End()
	if err != nil {
		log.G(ctx).WithError(err).WithField("id", a.id).Error("not known whether it was killed for want of memory")
	}
	return killed
}

// end gives back what belongs to a deleted container.
func (a *attended) end() error {
	a.stop()
	<-a.done
	return errors.Join(a.pump.Close(), a.first.close())
}
