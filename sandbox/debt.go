package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/crib-runtime/crib/network/ops"
)

// Waiting times between two attempts at an owed teardown.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// noticeEvery is how often it is looked for pods that died.
const noticeEvery = 5 * time.Second

// Debt is a teardown that could not be finished yet.
type Debt struct {
	Pod      *Pod
	Since    time.Time
	Attempts int
	Err      error // of the last attempt
	next     time.Time
}

// Debts returns what the teardown still owes.
func (m *Manager) Debts() []Debt {
	m.mu.Lock()
	defer m.mu.Unlock()
	debts := make([]Debt, 0, len(m.debts))
	for _, d := range m.debts {
		debts = append(debts, *d)
	}
	return debts
}

func (m *Manager) debt(id string) *Debt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.debts[id]
}

// owe notes, or with a nil error cancels, what a pod's teardown owes.
func (m *Manager) owe(pod *Pod, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.debts, pod.ID)
		return
	}
	now := time.Now()
	debt := Debt{Pod: pod, Since: now}
	if old := m.debts[pod.ID]; old != nil {
		debt = *old
	}
	debt.Attempts++
	debt.Err = err
	debt.next = now.Add(min(firstRetry<<min(debt.Attempts-1, 10), lastRetry))
	m.debts[pod.ID] = &debt
}

// Serve retries what is owed and notices pods that died, until ctx ends. The two
// do not wait for each other: a teardown may hang.
func (m *Manager) Serve(ctx context.Context) error {
	return parallel(
		func() error { return every(ctx, firstRetry, m.retryDebts) },
		func() error { return every(ctx, noticeEvery, m.notice) },
	)
}

func every(ctx context.Context, pause time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do(ctx)
		}
	}
}

// retryDebts runs the teardowns that are due. A pod whose Run failed stays listed
// as NotReady after that, until the client removes it.
func (m *Manager) retryDebts(ctx context.Context) {
	due := slices.DeleteFunc(m.Debts(), func(d Debt) bool { return time.Now().Before(d.next) })
	each(due, func(d Debt) { m.retryDebt(ctx, d) })
}

func (m *Manager) retryDebt(ctx context.Context, debt Debt) {
	op := m.beginKnown(ctx, "owed teardown", debt.Pod.ID)
	defer func() { op.End(nil) }()
	pod, unlock, err := m.claimSoon(ctx, op, debt.Pod.ID)
	if err != nil || pod == nil {
		return
	}
	defer unlock()
	if err := m.stop(pod); err == nil && m.debt(pod.ID) == nil {
		m.cfg.Log.Info("an owed teardown is done", "event", "PodSettled", "pod", pod.Spec.Key, "id", pod.ID, "attempts", debt.Attempts+1)
	}
}

// claimSoon is claim for the loops, which do not wait for a call that takes long:
// they come again.
func (m *Manager) claimSoon(ctx context.Context, op *ops.Op, id string) (*Pod, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, firstRetry)
	defer cancel()
	return m.claim(ctx, op, id)
}

// notice marks pods NotReady that are not alive any more. Their addresses stay
// taken until Stop, since the kubelet still counts with them.
func (m *Manager) notice(ctx context.Context) {
	for _, pod := range m.snapshot() {
		if pod.State != Ready || m.alive(ctx, pod) {
			continue
		}
		pod, unlock, err := m.claimSoon(ctx, nil, pod.ID)
		if err != nil || pod == nil {
			continue
		}
		if pod.State == Ready {
			m.bury(pod)
		}
		unlock()
	}
}

// bury records that a pod is dead.
func (m *Manager) bury(pod *Pod) {
	dead := *pod
	dead.State = NotReady
	err := m.put(&dead)
	m.cfg.Log.Warn("a pod died: its namespaces or its init are gone", "event", "PodDied", "pod", pod.Spec.Key, "id", pod.ID, "recorded", err == nil)
}

// alive tells whether a Ready pod's namespaces, and its init if it has one, are
// those of its record. An engine that does not answer is no death.
func (m *Manager) alive(ctx context.Context, pod *Pod) bool {
	if pod.BootID != m.cfg.BootID || !m.cfg.Pinner.Alive(pod.Pins) {
		return false
	}
	if pod.InitPID == 0 { // none, or one that EnsureInit is about to start
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	running, err := m.cfg.Engine.InitRunning(ctx, pod.ID)
	return running || err != nil
}
