package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/engine"
)

type duration = time.Duration

// pinner is network/netns as package sandbox wants it.
type pinner struct{ dir string }

func (pinner) Create(ctx context.Context, spec netns.Spec) (netns.Pins, error) {
	return netns.Create(ctx, spec)
}
func (pinner) Remove(pins netns.Pins) error { return netns.Remove(pins) }

// Alive mends pins that somebody unmounted, as long as a process is in the
// namespace.
func (pinner) Alive(pins netns.Pins) bool { return netns.Alive(pins) || netns.Heal(pins) == nil }

func (p pinner) Sweep(keep func(name string) bool) error {
	names, err := netns.List(p.dir)
	errs := []error{err}
	for _, name := range names {
		if !keep(name) {
			errs = append(errs, netns.Remove(netns.Pins{Net: netns.Pin{Path: filepath.Join(p.dir, name)}}))
		}
	}
	return errors.Join(errs...)
}

// inits is sandbox/engine as package sandbox wants it.
type inits struct {
	engine  *engine.Engine
	systemd bool
}

func (i inits) StartInit(ctx context.Context, pod *sandbox.Pod) (uint32, error) {
	return i.engine.StartInit(ctx, engine.Init{
		PodID:       pod.ID,
		Netns:       pod.Pins.Net.Path,
		IPC:         pod.Pins.IPC.Path,
		UTS:         pod.Pins.UTS.Path,
		User:        pod.Pins.User.Path,
		Users:       pod.Spec.Namespaces.Users,
		Hostname:    pod.Spec.Hostname,
		CgroupsPath: cgroupsPath(i.systemd, pod.Spec.CgroupParent, pod.ID),
		OOMScoreAdj: initOOMScore,
		Labels:      pod.Spec.Labels,
		Annotations: pod.Spec.Annotations,
	})
}

// initOOMScore is what the kubelet gives to processes that hold a pod together.
const initOOMScore = -998

func (i inits) StopInit(ctx context.Context, id string) error { return i.engine.StopInit(ctx, id) }
func (i inits) InitRunning(ctx context.Context, id string) (bool, error) {
	return i.engine.InitRunning(ctx, id)
}
func (i inits) Inits(ctx context.Context) ([]string, error) { return i.engine.Inits(ctx) }

// cgroupsPath names a process's cgroup below its pod's: a path for cgroupfs,
// slice:prefix:name for systemd. Without a parent it stands alone, so that no
// parent of ours stays behind.
func cgroupsPath(systemd bool, parent, id string) string {
	if !systemd && parent == "" {
		return "/crib-" + id
	}
	if !systemd {
		return filepath.Join("/", parent, id)
	}
	slice := filepath.Base(parent)
	if parent == "" {
		slice = "system.slice"
	}
	return slice + ":crib:" + id
}
