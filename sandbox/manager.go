package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network/ops"
)

// Config is what a [Manager] works with. All of it is required, but for Ops
// and what is for containers.
type Config struct {
	Networks map[string]Network // by the driver's name in the attachments
	Choose   func() []string    // drivers of a new pod; the first one's link is eth0
	Pinner   Pinner
	Files    Files
	Engine   Engine
	Store    Store
	BootID   string // of /proc/sys/kernel/random/boot_id
	NetnsDir string // where network namespaces are pinned
	Process  string // "auto", "always" or "never": which pods get an init
	// UserNamespaces says that pods may have their own.
	UserNamespaces bool
	Log            *slog.Logger
	Ops            *ops.Table // shows what is in flight; nil: one that nobody sees

	// StopContainers kills a pod's containers, RemoveContainers removes what is of
	// them and their records. Both are idempotent, are called for pods without
	// containers too, and may be nil.
	StopContainers, RemoveContainers func(ctx context.Context, podID string) error
}

// Manager runs the lives of all pods. It is safe for concurrent use.
type Manager struct {
	cfg  Config
	keys KeyLock[Key]

	mu    sync.Mutex // guards pods and debts; never held across I/O
	pods  map[string]*Pod
	debts map[string]*Debt
}

// New returns a manager without pods; [Manager.Recover] brings those of the store.
func New(cfg Config) *Manager {
	if cfg.Ops == nil {
		cfg.Ops = &ops.Table{}
	}
	return &Manager{cfg: cfg, pods: map[string]*Pod{}, debts: map[string]*Debt{}}
}

// Ops returns the table of what is in flight, which containers share.
func (m *Manager) Ops() *ops.Table { return m.cfg.Ops }

// lock takes the lock of a pod for an operation.
func (m *Manager) lock(ctx context.Context, op *ops.Op, key Key) (unlock func(), err error) {
	return op.Lock(ctx, key, func(ctx context.Context) (func(), error) { return m.keys.Lock(ctx, key) })
}

// begin notes an operation on a pod, whose id may not be known yet.
func (m *Manager) begin(ctx context.Context, verb string, key Key, id string) *ops.Op {
	return m.cfg.Ops.Begin(ctx, verb, ops.Subject{Pod: key.String(), ID: id})
}

// stage notes a stage of the operation that holds the lock of a pod, if any does.
func (m *Manager) stage(pod *Pod, name string) (done func()) {
	return m.cfg.Ops.Holder(pod.Spec.Key).Stage(name)
}

// List returns all pods that clients may see, oldest first. The records are
// shared: they must not be changed.
func (m *Manager) List() []*Pod {
	var pods []*Pod
	for _, pod := range m.snapshot() {
		if pod.State != Creating {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return pods
}

// Get returns the record of a pod that clients may see, or errdefs.ErrNotFound.
func (m *Manager) Get(id string) (*Pod, error) {
	pod := m.get(id)
	if pod == nil || pod.State == Creating {
		return nil, fmt.Errorf("pod sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	return pod, nil
}

// get returns the record in any state, or nil.
func (m *Manager) get(id string) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[id]
}

func (m *Manager) snapshot() []*Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := make([]*Pod, 0, len(m.pods))
	for _, pod := range m.pods {
		pods = append(pods, pod)
	}
	return pods
}

// put remembers the record, then writes it. Memory comes first: when it is the
// disk that fails, the teardown must still know what there is to undo.
func (m *Manager) put(pod *Pod) error {
	m.mu.Lock()
	m.pods[pod.ID] = pod
	m.mu.Unlock()
	if err := m.cfg.Store.Put(pod); err != nil {
		return fmt.Errorf("record pod %s: %w", pod.Spec.Key, err)
	}
	return nil
}

// forget deletes the record, then the memory of it: if the disk fails, the pod
// is still known and deleting it is tried again.
func (m *Manager) forget(pod *Pod) error {
	if err := m.cfg.Store.Delete(pod.ID); err != nil {
		return fmt.Errorf("delete the record of pod %s: %w", pod.Spec.Key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod.ID)
	delete(m.debts, pod.ID)
	return nil
}

// newest returns the newest record of the key in a state, or nil.
func (m *Manager) newest(key Key, state State) *Pod {
	var found *Pod
	for _, pod := range m.snapshot() {
		if pod.Spec.Key == key && pod.State == state && (found == nil || pod.CreatedAt.After(found.CreatedAt)) {
			found = pod
		}
	}
	return found
}
