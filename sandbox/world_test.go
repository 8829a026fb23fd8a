package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
)

// The outside of package sandbox, as a model that keeps count of every resource
// and can fail at every call in every way. The real ones have tests of their own;
// this one exists because a kernel cannot be told to fail at its seventh call.

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

// world is what survives a crash: kernel, engine, disks.
type world struct {
	mu      sync.Mutex // guards all below
	have    map[string]string
	records map[string][]byte
	calls   map[string]int
	faults  []fault
	broken  []string // records that Load cannot read
	dead    bool     // between a crash and the next start
}

func newWorld(faults ...fault) *world {
	return &world{have: map[string]string{}, records: map[string][]byte{}, calls: map[string]int{}, faults: faults}
}

// effects change the world; each is one resource made or unmade.
type effects []func()

func (w *world) gain(kind, name, owner string) func() {
	return func() { w.have[kind+" "+name] = owner }
}
func (w *world) lose(kind, name string) func() { return func() { delete(w.have, kind+" "+name) } }

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

// remains returns what belongs to pods, as "kind name" of each.
func (w *world) remains() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Sorted(maps.Keys(w.have))
	for id := range w.records {
		all = append(all, "record "+id)
	}
	return all
}

// start is a start of the daemon in this world.
func (w *world) start() (*sandbox.Manager, *fakeNetwork) {
	w.mu.Lock()
	w.dead = false
	w.mu.Unlock()
	net := &fakeNetwork{w: w, owners: map[netip.Addr]string{}}
	return sandbox.New(sandbox.Config{
		Networks: map[string]sandbox.Network{"fake": net},
		Choose:   func() []string { return []string{"fake"} },
		Pinner:   fakePinner{w},
		Files:    fakeFiles{w},
		Engine:   fakeEngine{w},
		Store:    fakeStore{w},
		BootID:   "this boot",
		NetnsDir: "/netns",
		Process:  "auto",
		Log:      slog.New(slog.DiscardHandler),
		StopContainers: func(ctx context.Context, id string) error {
			return w.do(ctx, "stop containers", effects{w.lose("running container", id)})
		},
		RemoveContainers: func(ctx context.Context, id string) error {
			return w.do(ctx, "remove containers", effects{w.lose("running container", id), w.lose("container record", id)})
		},
	}), net
}

// contain puts a running container in a pod.
func (w *world) contain(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.have["running container "+id] = id
	w.have["container record "+id] = id
}

// stray returns a pod that is gone from the store though it had containers, or "".
func (w *world) stray() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, owner := range w.have {
		if what == "container record "+owner && w.records[owner] == nil {
			return owner
		}
	}
	return ""
}

// fakeNetwork has four addresses. Who owns them is memory, as in package ipam.
type fakeNetwork struct {
	w      *world
	silent bool // it attaches without an address
	mu     sync.Mutex
	owners map[netip.Addr]string
}

func (f *fakeNetwork) Plan(pod network.Pod, first int) ([]network.Attachment, error) {
	if err := f.w.do(context.Background(), "plan", nil); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := byte(2); i < 6; i++ {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, i})
		if f.owners[addr] == "" {
			f.owners[addr] = pod.ID
			return []network.Attachment{{
				Driver: "fake", Interface: network.InterfaceName(first),
				Addresses: []netip.Prefix{netip.PrefixFrom(addr, 24)},
			}}, nil
		}
	}
	return nil, errors.New("no free address")
}

func (f *fakeNetwork) Attach(ctx context.Context, pod network.Pod, as []network.Attachment, _ network.Save) ([]network.Attachment, error) {
	addr := as[0].Addresses[0].Addr()
	if f.silent {
		return []network.Attachment{{Driver: "fake", Network: "net", Interface: "eth0"}}, nil
	}
	return as, f.w.do(ctx, "attach", effects{
		f.w.gain("link", pod.ID, pod.ID),
		f.w.gain("address", addr.String(), pod.ID),
	})
}

func (f *fakeNetwork) Detach(ctx context.Context, pod network.Pod, as []network.Attachment) error {
	if len(as[0].Addresses) == 0 {
		return f.w.do(ctx, "detach", nil)
	}
	addr := as[0].Addresses[0].Addr()
	err := f.w.do(ctx, "detach", effects{
		f.w.lose("link", pod.ID),
		func() {
			if f.w.have["address "+addr.String()] == pod.ID {
				delete(f.w.have, "address "+addr.String())
			}
		},
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.owners[addr] == pod.ID {
		delete(f.owners, addr)
	}
	return err
}

func (f *fakeNetwork) Restore(ctx context.Context, held []network.Held) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, h := range held {
		addr := h.Attachments[0].Addresses[0].Addr()
		if owner := f.owners[addr]; owner != "" {
			errs = append(errs, fmt.Errorf("%s is of pod %s", addr, owner))
			continue
		}
		f.owners[addr] = h.Pod.ID
	}
	return errors.Join(append(errs, f.w.do(ctx, "restore", nil))...)
}

func (f *fakeNetwork) Status() network.Status { return network.Status{Ready: true} }

type fakePinner struct{ w *world }

func (f fakePinner) Create(ctx context.Context, spec netns.Spec) (netns.Pins, error) {
	pins := netns.Pins{Net: netns.Pin{Path: spec.Net}, IPC: netns.Pin{Path: spec.IPC}, UTS: netns.Pin{Path: spec.UTS}}
	var es effects
	for _, path := range []string{spec.Net, spec.IPC, spec.UTS} {
		if path != "" {
			es = append(es, f.w.gain("pin", path, ""))
		}
	}
	return pins, f.w.do(ctx, "pin", es)
}

func (f fakePinner) Remove(pins netns.Pins) error {
	return f.w.do(timeout(), "unpin", effects{
		f.w.lose("pin", pins.Net.Path), f.w.lose("pin", pins.IPC.Path), f.w.lose("pin", pins.UTS.Path),
	})
}

// timeout stands for the time-out that a system call without a context has: none is needed.
func timeout() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (f fakePinner) Alive(pins netns.Pins) bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, path := range []string{pins.Net.Path, pins.IPC.Path, pins.UTS.Path} {
		if _, ok := f.w.have["pin "+path]; !ok && path != "" {
			return false
		}
	}
	return true
}

func (f fakePinner) Sweep(func(string) bool) error { return f.w.do(timeout(), "sweep pins", nil) }

type fakeFiles struct{ w *world }

func (f fakeFiles) Dir(id string) string { return "/pods/" + id }

func (f fakeFiles) Make(ctx context.Context, pod *sandbox.Pod) error {
	return f.w.do(ctx, "files", effects{f.w.gain("files", pod.ID, pod.ID), f.w.gain("shm", pod.ID, pod.ID)})
}

func (f fakeFiles) Remove(ctx context.Context, id string) error {
	return f.w.do(ctx, "remove files", effects{f.w.lose("shm", id), f.w.lose("files", id)})
}

func (f fakeFiles) List() ([]string, error) { return f.w.owners("files"), nil }

func (w *world) owners(kind string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for what, owner := range w.have {
		if what == kind+" "+owner {
			ids = append(ids, owner)
		}
	}
	return ids
}

type fakeEngine struct{ w *world }

func (f fakeEngine) StartInit(ctx context.Context, pod *sandbox.Pod) (uint32, error) {
	return 42, f.w.do(ctx, "start init", effects{f.w.gain("container", pod.ID, pod.ID), f.w.gain("process", pod.ID, pod.ID)})
}

func (f fakeEngine) StopInit(ctx context.Context, id string) error {
	return f.w.do(ctx, "stop init", effects{f.w.lose("process", id), f.w.lose("container", id)})
}

func (f fakeEngine) InitRunning(_ context.Context, id string) (bool, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.have["process "+id] != "", nil
}

func (f fakeEngine) Inits(context.Context) ([]string, error) { return f.w.owners("container"), nil }

type fakeStore struct{ w *world }

func (f fakeStore) Put(pod *sandbox.Pod) error {
	b, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	return f.w.do(timeout(), "put", effects{func() { f.w.records[pod.ID] = b }})
}

func (f fakeStore) Delete(id string) error {
	return f.w.do(timeout(), "delete", effects{func() { delete(f.w.records, id) }})
}

func (f fakeStore) Load() ([]*sandbox.Pod, []string, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	var pods []*sandbox.Pod
	for id, b := range f.w.records {
		if slices.Contains(f.w.broken, id) {
			continue
		}
		var pod sandbox.Pod
		if err := json.Unmarshal(b, &pod); err != nil {
			return nil, nil, err
		}
		pods = append(pods, &pod)
	}
	return pods, f.w.broken, nil
}
