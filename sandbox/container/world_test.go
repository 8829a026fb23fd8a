package container_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

// The outside of package container, as a model that keeps count of every resource
// and can fail at every call in every way. The real ones have tests of their own.

var (
	errFault = errors.New("injected fault")
	errCrash = errors.New("the process is dead")
)

// mode is a way to fail.
type mode string

const (
	before      mode = "error before the effect"
	half        mode = "error after half of the effect"
	after       mode = "error after the effect"
	block       mode = "blocks until its context ends"
	crashBefore mode = "crash before the effect"
	crashHalf   mode = "crash after half of the effect"
	crashAfter  mode = "crash after the effect"
)

// fault strikes the nth call of an operation, or with always set also all later ones.
type fault struct {
	op     string
	n      int
	mode   mode
	always bool
}

func (f fault) String() string {
	return fmt.Sprintf("%s call %d: %s, always=%v", f.op, f.n, f.mode, f.always)
}

// process is the first process of a container.
type process struct {
	ended chan struct{} // closed when it has
	how   container.Ended
}

// world is what survives a crash: the engine and the disks.
type world struct {
	inFlight ops.Table

	mu        sync.Mutex // guards all below
	have      map[string]bool
	processes map[string]*process // of started tasks
	records   map[string][]byte   // by "<pod>/<id>"
	calls     map[string]int
	signals   []syscall.Signal
	pods      map[string]sandbox.State
	faults    []fault
	limits    container.Resources // of the last update
	deaf      bool                // processes ignore all signals but SIGKILL
	immortal  bool                // processes ignore SIGKILL as well
	dead      bool                // between a crash and the next start
}

func newWorld(faults ...fault) *world {
	return &world{
		have: map[string]bool{}, processes: map[string]*process{}, records: map[string][]byte{},
		calls: map[string]int{}, faults: faults, pods: map[string]sandbox.State{"pod": sandbox.Ready},
	}
}

// effects change the world; each is one resource made or unmade.
type effects []func()

func (w *world) gain(kind, id string) func() { return func() { w.have[kind+" "+id] = true } }
func (w *world) lose(kind, id string) func() { return func() { delete(w.have, kind+" "+id) } }

// do performs an operation, or fails it as the faults say.
func (w *world) do(ctx context.Context, op string, es effects) error {
	w.mu.Lock()
	if w.dead {
		w.mu.Unlock()
		return errCrash
	}
	w.calls[op]++
	m := w.modeOf(op, w.calls[op])
	if m == block {
		w.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	defer w.mu.Unlock()
	for i, e := range es {
		if m == before || m == crashBefore || (m == half || m == crashHalf) && i >= len(es)/2 {
			break
		}
		e()
	}
	switch m {
	case crashBefore, crashHalf, crashAfter:
		w.dead = true
		return errCrash
	case before, half, after:
		return fmt.Errorf("%s: %w", op, errFault)
	}
	return nil
}

func (w *world) modeOf(op string, n int) mode {
	for _, f := range w.faults {
		if f.op == op && (f.n == n || f.always && n > f.n) {
			return f.mode
		}
	}
	return ""
}

// remains returns what belongs to containers, as "kind id" of each.
func (w *world) remains() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Sorted(maps.Keys(w.have))
	for name := range w.records {
		all = append(all, "record "+name)
	}
	return all
}

func (w *world) has(kind, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.have[kind+" "+id]
}

// end ends a process, if it runs.
func (w *world) end(id string, code uint32, oom bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(id, code, oom)
}

func (w *world) endLocked(id string, code uint32, oom bool) {
	if p := w.processes[id]; p != nil && w.have["process "+id] {
		p.how = container.Ended{At: time.Now(), Code: code, OOMKilled: oom}
		delete(w.have, "process "+id)
		close(p.ended)
	}
}

// harvest returns the ends of tasks that were not deleted.
func (w *world) harvest() map[string]container.Ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := map[string]container.Ended{}
	for id, p := range w.processes {
		if w.have["container "+id] && !w.have["process "+id] {
			ends[id] = p.how
		}
	}
	return ends
}

// forget removes tasks that ended, as an engine does that starts.
func (w *world) forget(ends map[string]container.Ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range ends {
		delete(w.have, "task "+id)
	}
}

// rise ends a crash.
func (w *world) rise() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = false
}

// start is a start of the daemon in this world.
func (w *world) start() *container.Manager {
	return container.New(container.Config{
		Images: w, Roots: w, Tasks: tasks{w}, Inside: inside{w}, Store: w, Pods: w,
		Spec: w.spec,
		Process: func(_ context.Context, _ string, cmd []string, tty bool) (*specs.Process, error) {
			return &specs.Process{Args: cmd, Terminal: tty}, nil
		},
		Limits:        w.limitsOf,
		RemoveVolumes: w.removeVolumes,
		Release:       w.release,
		Strays:        w.strays,
		BootID:        "this boot",
		Log:           slog.New(slog.DiscardHandler),
	})
}

func (w *world) Ops() *ops.Table { return &w.inFlight }

func (w *world) Get(id string) (*sandbox.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[id] == "" {
		return nil, fmt.Errorf("pod %s: %w", id, errdefs.ErrNotFound)
	}
	return &sandbox.Pod{ID: id, Spec: sandbox.Spec{Key: sandbox.Key{Name: "web"}}, State: w.pods[id]}, nil
}

func (w *world) Image(ctx context.Context, ref string) (image.Image, error) {
	if ref == "missing" {
		return image.Image{}, errdefs.ErrNotFound
	}
	img := image.Image{ID: "sha256:1", Digests: []string{"docker.io/library/busybox@sha256:2"}, Config: image.Config{StopSignal: "SIGINT"}}
	return img, w.do(ctx, "image", nil)
}

func (w *world) PrepareRoot(ctx context.Context, id, _ string, _ netns.Users, use func(root string) error) error {
	err := w.do(ctx, "root", effects{w.gain("snapshot", id), w.gain("root", id)})
	if err == nil {
		err = use("/root/" + id)
	}
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dead { // it promises to leave nothing
		delete(w.have, "snapshot "+id)
		delete(w.have, "root "+id)
	}
	return err
}

func (w *world) MountImage(ctx context.Context, id string, n int, _ string, _ netns.Users) (string, error) {
	return fmt.Sprintf("/volumes/%s/%d", id, n), w.do(ctx, "mount image", effects{w.gain("root", id)})
}

func (w *world) RemoveRoot(ctx context.Context, id string) error {
	return w.do(ctx, "remove root", effects{w.lose("root", id), w.lose("snapshot", id)})
}

func (w *world) spec(ctx context.Context, c *container.Container, _ *sandbox.Pod, _ image.Image, _ string) (*specs.Spec, container.EffectiveUser, error) {
	return &specs.Spec{}, container.EffectiveUser{UID: 1000}, w.do(ctx, "spec", effects{w.gain("volumes", c.ID)})
}

func (w *world) removeVolumes(ctx context.Context, id string) error {
	return w.do(ctx, "remove volumes", effects{w.lose("volumes", id)})
}

func (w *world) release(ctx context.Context, podID string) error {
	return w.do(ctx, "release", effects{w.lose("shim", podID)})
}

func (w *world) strays(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for what := range w.have {
		if id, ok := strings.CutPrefix(what, "container "); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// never is the context of a call that has none: what blocks it is not modelled.
func never() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (w *world) PutContainer(c *container.Container) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return w.do(never(), "put", effects{func() { w.records[c.Spec.PodID+"/"+c.ID] = b }})
}

func (w *world) DeleteContainer(podID, id string) error {
	return w.do(never(), "delete record", effects{func() { delete(w.records, podID+"/"+id) }})
}

func (w *world) LoadContainers() (all []*container.Container, broken []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, b := range w.records {
		var c container.Container
		if err := json.Unmarshal(b, &c); err != nil {
			broken = append(broken, name)
			continue
		}
		all = append(all, &c)
	}
	return all, broken, nil
}

// tasks is the engine.
type tasks struct{ w *world }

func (t tasks) Create(ctx context.Context, c container.Launch) error {
	return t.w.do(ctx, "create", effects{t.w.gain("container", c.ID)})
}

func (t tasks) Start(ctx context.Context, id string) (uint32, error) {
	if !t.w.has("container", id) {
		return 0, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	return 42, t.w.do(ctx, "start", effects{t.w.gain("task", id), func() {
		t.w.have["process "+id] = true
		t.w.processes[id] = &process{ended: make(chan struct{})}
	}})
}

func (t tasks) Kill(ctx context.Context, id string, signal syscall.Signal, _ bool) error {
	if !t.w.has("process", id) {
		return fmt.Errorf("process of %s: %w", id, errdefs.ErrNotFound)
	}
	return t.w.do(ctx, "kill", effects{func() {
		t.w.signals = append(t.w.signals, signal)
		if !t.w.immortal && (signal == syscall.SIGKILL || !t.w.deaf) {
			t.w.endLocked(id, 128+uint32(signal), false)
		}
	}})
}

func (t tasks) Wait(ctx context.Context, id string) (container.Ended, error) {
	if err := t.w.do(ctx, "wait", nil); err != nil {
		return container.Ended{}, err
	}
	if !t.w.has("task", id) {
		return container.Ended{}, fmt.Errorf("task %s: %w", id, errdefs.ErrNotFound)
	}
	t.w.mu.Lock()
	p := t.w.processes[id]
	t.w.mu.Unlock()
	select {
	case <-ctx.Done():
		return container.Ended{}, ctx.Err()
	case <-p.ended:
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if t.w.dead {
		return container.Ended{}, errCrash // of which the new daemon hears
	}
	return p.how, nil
}

func (t tasks) Delete(ctx context.Context, id string) error {
	return t.w.do(ctx, "delete", effects{
		func() { t.w.endLocked(id, 137, false) }, t.w.lose("task", id), t.w.lose("container", id),
	})
}

// inside executes "sleep" until its context ends, "flood" with more output than
// is kept, and anything else with code 3.
type inside struct{ w *world }

func (i inside) Exec(ctx context.Context, _ string, p *specs.Process, s container.Streams) (int32, error) {
	switch p.Args[0] {
	case "sleep":
		<-ctx.Done()
		return 0, ctx.Err()
	case "flood":
		for range 20 {
			_, _ = s.Stdout.Write(make([]byte, 1<<20))
		}
	}
	_, _ = s.Stderr.Write([]byte("to stderr"))
	return 3, i.w.do(ctx, "exec", nil)
}
