package usage

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crib-runtime/crib/network/counters"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
)

// Layers measures writable layers; sandbox/engine does it.
type Layers interface {
	// Layer returns the size of a container's, given the time of processors that it
	// used: without any nothing was written.
	Layer(ctx context.Context, id string, spent cgroup.Figure) (Layer, error)
	// LayersDir is a directory on the filesystem on which they are.
	LayersDir() string
}

// Layer is the size of a writable layer at a moment.
type Layer struct {
	Bytes, Inodes uint64
	At            time.Time // zero: it is not known
}

// Config is what a [Meter] works with. All of it is required.
type Config struct {
	Root string // where cgroups are mounted: [cgroup.Root]
	// Path is where the cgroup of a container, or of the init, is below the root of a
	// hierarchy. Its parent is the pod's, if it is named after the pod's UID.
	Path   func(pod *sandbox.Pod, id string) string
	Links  func() (map[string]counters.Counters, error) // of the host, by name
	Layers Layers
	Log    *slog.Logger
}

// Meter reads what pods and containers use. It is safe for concurrent use.
type Meter struct {
	cfg  Config
	host *cgroup.Host

	mu     sync.Mutex // guards all below
	rates  map[string]rate
	layers map[string]idle // of containers
}

// NewMeter returns a meter that has no samples yet.
func NewMeter(cfg Config) *Meter {
	return &Meter{cfg: cfg, host: cgroup.NewHost(cfg.Root), rates: map[string]rate{}, layers: map[string]idle{}}
}

// Container is what one container uses.
type Container struct {
	cgroup.Usage
	Layer Layer
}

// Pod is what one pod uses: its cgroup where the kubelet made one for it, else the
// sum of its containers.
type Pod struct {
	cgroup.Usage
	Links []Link // the first one is the pod's own for the kubelet
}

// Link is what went over one link, as the pod sees it.
type Link struct {
	Name string
	counters.Counters
}

// Round is one pass over pods: all links are read by one dump, at its first pod.
// It is for one goroutine.
type Round struct {
	m      *Meter
	links  map[string]counters.Counters
	dumped bool
}

// Round begins a pass.
func (m *Meter) Round() *Round { return &Round{m: m} }

// Container reads what a running container uses. errdefs.ErrNotFound if its cgroup
// is gone. A layer that cannot be measured is missing, with a word in the log.
func (r *Round) Container(ctx context.Context, pod *sandbox.Pod, id string) (Container, error) {
	u, err := r.m.host.Read(r.m.cfg.Path(pod, id))
	if err != nil {
		return Container{}, fmt.Errorf("reading what container %s uses: %w", id, err)
	}
	u.CPU.Rate = r.m.rate(id, u.At, u.CPU.Total)
	return Container{Usage: u, Layer: r.m.layer(ctx, id, u.CPU.Total)}, nil
}

// idle is the layer of a container that has used no more time of processors since.
type idle struct {
	Layer
	spent cgroup.Figure
}

// layer asks for the size of a layer, unless nothing can have been written.
func (m *Meter) layer(ctx context.Context, id string, spent cgroup.Figure) Layer {
	now := time.Now()
	m.mu.Lock()
	last := m.layers[id]
	m.mu.Unlock()
	if spent.Known && last.spent == spent {
		last.At = now
		return last.Layer
	}
	layer, err := m.cfg.Layers.Layer(ctx, id, spent)
	if err != nil {
		m.cfg.Log.Warn("the statistics lack a writable layer", "container", id, "error", err)
		return Layer{}
	}
	if spent.Known && !layer.At.Before(now) { // else it is of a time before this work
		m.mu.Lock()
		defer m.mu.Unlock()
		m.layers[id] = idle{layer, spent}
	}
	return layer
}

// Pod reads what a pod uses, given what its containers do. What cannot be read is
// missing.
func (r *Round) Pod(pod *sandbox.Pod, containers []Container) Pod {
	var p Pod
	for _, c := range containers {
		p.Add(c.Usage)
	}
	own := r.m.cfg.Path(pod, pod.ID)
	if pod.InitPID != 0 {
		if init, err := r.m.host.Read(own); err == nil {
			p.Add(init)
		}
	}
	if dir := filepath.Dir(own); isOf(pod, dir) {
		if all, err := r.m.host.Read(dir); err == nil {
			p.Usage = all
		}
	}
	if p.At.IsZero() {
		p.At = time.Now()
	}
	p.CPU.Rate = r.m.rate(pod.ID, p.At, p.CPU.Total)
	p.Links = r.linksOf(pod)
	return p
}

// isOf tells whether a cgroup was made for one pod alone: kubelets name it after the
// UID, in which systemd has underscores.
func isOf(pod *sandbox.Pod, dir string) bool {
	name, uid := strings.TrimSuffix(filepath.Base(dir), ".slice"), "pod"+pod.Spec.UID
	return uid != "pod" && (strings.HasSuffix(name, uid) || strings.HasSuffix(name, strings.ReplaceAll(uid, "-", "_")))
}

// linksOf returns the counters of those of a pod's links whose other end is known.
func (r *Round) linksOf(pod *sandbox.Pod) []Link {
	if len(pod.Attachments) == 0 || pod.Released {
		return nil
	}
	if !r.dumped {
		r.dumped = true
		var err error
		if r.links, err = r.m.cfg.Links(); err != nil {
			r.m.cfg.Log.Warn("the statistics lack networks", "error", err)
		}
	}
	var links []Link
	for _, a := range pod.Attachments {
		if c, ok := r.links[a.HostInterface]; ok {
			links = append(links, Link{Name: a.Interface, Counters: c.Swapped()})
		}
	}
	return links
}

// rate is two samples of what something used of processors.
type rate struct{ old, last sample }

type sample struct {
	at    time.Time
	nanos uint64
}

const (
	// rateWindow is the least time over which a rate is told, and rateKept how long a
	// sample is kept that nobody adds to.
	rateWindow = time.Second
	rateKept   = 15 * time.Minute
)

// rate adds a sample and returns the rate since an earlier one, unknown without one.
func (m *Meter) rate(id string, at time.Time, total cgroup.Figure) cgroup.Figure {
	if !total.Known {
		return cgroup.Figure{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, found := m.rates[id]
	if !found {
		m.forgetLocked(at)
	}
	if found && total.Value < r.last.nanos { // a pod's sum, when a container is gone
		r = rate{}
	}
	if r.last.at.IsZero() || at.Sub(r.last.at) >= rateWindow {
		r = rate{old: r.last, last: sample{at, total.Value}}
		m.rates[id] = r
	}
	if r.old.at.IsZero() {
		return cgroup.Figure{}
	}
	return cgroup.Figure{Value: uint64(float64(total.Value-r.old.nanos) / at.Sub(r.old.at).Seconds()), Known: true}
}

// forgetLocked drops what has not been read for long.
func (m *Meter) forgetLocked(now time.Time) {
	for id, r := range m.rates {
		if now.Sub(r.last.at) > rateKept {
			delete(m.rates, id)
			delete(m.layers, id)
		}
	}
}

// Path is where the cgroup of a container is below the root of a hierarchy.
func (m *Meter) Path(pod *sandbox.Pod, id string) string { return m.cfg.Path(pod, id) }
