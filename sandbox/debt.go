package sandbox

import (
	"context"
	"time"
)

// Waiting times between two attempts at an owed teardown.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

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

// Serve retries what is owed and notices pods that died, until ctx ends.
func (m *Manager) Serve(ctx context.Context) error {
	tick := time.NewTicker(firstRetry)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.retryDebts(ctx)
			if n%5 == 0 {
				m.notice(ctx)
			}
		}
	}
}

// retryDebts runs the teardowns that are due. A failed Run leaves nothing but
// its debt, so a pod that was never Ready and is released now is forgotten; a
// client that saw it NotReady gets OK for its Remove.
func (m *Manager) retryDebts(ctx context.Context) {
	for _, debt := range m.Debts() {
		if time.Now().Before(debt.next) {
			continue
		}
		pod, unlock, err := m.claim(ctx, debt.Pod.ID)
		if err != nil || pod == nil {
			continue
		}
		if err := m.stop(pod); err == nil && m.debt(pod.ID) == nil {
			m.cfg.Log.Info("an owed teardown is done", "pod", pod.Spec.Key, "id", pod.ID, "attempts", debt.Attempts+1)
		}
		unlock()
	}
}

// notice marks pods NotReady that are not alive any more. Their addresses stay
// taken until Stop, since the kubelet still counts with them.
func (m *Manager) notice(ctx context.Context) {
	for _, pod := range m.snapshot() {
		if pod.State != Ready || m.alive(ctx, pod) {
			continue
		}
		pod, unlock, err := m.claim(ctx, pod.ID)
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
	m.cfg.Log.Warn("a pod died: its namespaces or its init are gone", "pod", pod.Spec.Key, "id", pod.ID, "recorded", err == nil)
}

// alive tells whether a Ready pod's namespaces, and its init if it has one, are
// those of its record. An engine that does not answer is no death.
func (m *Manager) alive(ctx context.Context, pod *Pod) bool {
	if pod.BootID != m.cfg.BootID || !m.cfg.Pinner.Alive(pod.Pins) {
		return false
	}
	if !pod.Init {
		return true
	}
	running, err := m.cfg.Engine.InitRunning(ctx, pod.ID)
	return running || err != nil
}
