package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/network/ops"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/image"
)

// Config is what a [Manager] works with. All of it is required but for Strays.
type Config struct {
	Images Images
	Roots  Roots
	Tasks  Tasks
	Inside Inside
	Store  Store
	Pods   Pods
	// Spec returns what the OCI runtime is told, given the container's root as it
	// is mounted while the call lasts.
	Spec func(ctx context.Context, c *Container, pod *sandbox.Pod, img image.Image, root string) (*specs.Spec, EffectiveUser, error)
	// Limits returns resources as the OCI runtime wants them.
	Limits func(r Resources) *specs.LinuxResources
	// Process returns a further process of a container: with the user, environment
	// and limits of its first one.
	Process func(ctx context.Context, id string, cmd []string, tty bool) (*specs.Process, error)
	// RemoveVolumes removes what Spec made for the volumes of the image. Idempotent.
	RemoveVolumes func(ctx context.Context, id string) error
	// Release gives back what the engine has for the containers of a pod, none of
	// which runs. Idempotent.
	Release func(ctx context.Context, podID string) error
	// Strays returns the ids of the containers that the engine has; may be nil.
	Strays func(ctx context.Context) ([]string, error)
	BootID string // of /proc/sys/kernel/random/boot_id
	Log    *slog.Logger
}

// Manager runs the lives of all containers. It is safe for concurrent use.
type Manager struct {
	cfg    Config
	keys   sandbox.KeyLock[Key]
	writes sandbox.KeyLock[string] // by id: of two changes the later is on disk
	watch  watch

	mu         sync.Mutex // guards all below; never held across I/O
	containers map[string]*Container
	runs       map[string]*run // by id, of what is running
	debts      map[string]*Debt
}

// New returns a manager without containers; [Manager.Recover] brings those of the
// store. [Manager.Close] ends it.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, containers: map[string]*Container{}, runs: map[string]*run{}, debts: map[string]*Debt{}}
	m.watch.life, m.watch.end = context.WithCancel(context.Background())
	return m
}

// Close ends the goroutines that wait for the ends of containers and leaves the
// containers alone. No other call may run or follow.
func (m *Manager) Close() {
	m.mu.Lock()
	m.watch.end()
	m.mu.Unlock()
	m.watch.group.Wait()
}

// List returns all containers that clients may see, oldest first. The records
// are shared: they must not be changed.
func (m *Manager) List() []*Container {
	all := slices.DeleteFunc(m.snapshot(), func(c *Container) bool { return c.State == Creating })
	slices.SortFunc(all, func(a, b *Container) int {
		if order := a.CreatedAt.Compare(b.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Get returns the record of a container that clients may see, or
// errdefs.ErrNotFound.
func (m *Manager) Get(id string) (*Container, error) {
	c := m.get(id)
	if c == nil || c.State == Creating {
		return nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	return c, nil
}

// get returns the record in any state, or nil.
func (m *Manager) get(id string) *Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.containers[id]
}

func (m *Manager) snapshot() []*Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*Container, 0, len(m.containers))
	for _, c := range m.containers {
		all = append(all, c)
	}
	return all
}

// ofPod returns the containers of a pod in any state.
func (m *Manager) ofPod(podID string) []*Container {
	return slices.DeleteFunc(m.snapshot(), func(c *Container) bool { return c.Spec.PodID != podID })
}

// claim takes the lock of a container for an operation and returns its record of that moment, nil
// for one that does not exist (any more).
func (m *Manager) claim(ctx context.Context, op *ops.Op, id string) (*Container, func(), error) {
	c := m.get(id)
	if c == nil {
		return nil, nil, nil
	}
	unlock, err := m.lock(ctx, op, c.Spec.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the call that works on container %s: %w", label(c), err)
	}
	if c = m.get(id); c == nil {
		unlock()
		return nil, nil, nil
	}
	return c, unlock, nil
}

// claimKnown is claim for calls that need the container to exist for clients.
func (m *Manager) claimKnown(ctx context.Context, op *ops.Op, id string) (*Container, func(), error) {
	c, unlock, err := m.claim(ctx, op, id)
	if err == nil && c != nil && c.State == Creating {
		unlock()
		c = nil
	}
	if err == nil && c == nil {
		err = fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
	}
	return c, unlock, err
}

// add remembers a new record, then writes it.
func (m *Manager) add(c *Container) error {
	m.mu.Lock()
	m.containers[c.ID] = c
	m.mu.Unlock()
	_, err := m.change(c.ID, func(*Container) {})
	return err
}

// change replaces a record by one that f changed, in memory and then on disk.
// Memory comes first: when it is the disk that fails, the truth must still be
// told, and the undo must know what there is. The record is nil if it is gone.
func (m *Manager) change(id string, f func(*Container)) (*Container, error) {
	unlock, err := m.writes.Lock(context.Background(), id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	m.mu.Lock()
	old := m.containers[id]
	if old == nil {
		m.mu.Unlock()
		return nil, nil
	}
	c := *old
	f(&c)
	m.containers[id] = &c
	m.mu.Unlock()
	return &c, wrap("write the record", &c, m.cfg.Store.PutContainer(&c))
}

// forget deletes the record, then the memory of it: if the disk fails, the
// container is still known and deleting it is tried again.
func (m *Manager) forget(c *Container) error {
	unlock, err := m.writes.Lock(context.Background(), c.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.cfg.Store.DeleteContainer(c.Spec.PodID, c.ID); err != nil {
		return wrap("delete the record", c, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.containers, c.ID)
	delete(m.debts, c.ID)
	return nil
}

// label names a container in logs and errors.
func label(c *Container) string { return fmt.Sprintf("%s (%.12s)", c.Spec.Name, c.ID) }

func wrap(doing string, c *Container, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of container %s: %w", doing, label(c), err)
}

// stepTime bounds each step of an undo, so that one which hangs does not use up
// the time of the others.
const stepTime = 30 * time.Second

// step runs one step of an undo under a context of its own.
func (m *Manager) step(doing string, c *Container, do func(context.Context, string) error) error {
	defer m.stage(c, doing)()
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	return wrap(doing, c, do(ctx, c.ID))
}

// parallel runs all functions, waits for all of them and joins their errors.
func parallel(fs ...func() error) error {
	errs := make([]error, len(fs))
	var group sync.WaitGroup
	for i, f := range fs {
		group.Go(func() { errs[i] = f() })
	}
	group.Wait()
	return errors.Join(errs...)
}
