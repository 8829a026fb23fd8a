package container

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Waiting times between two attempts at what is owed.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// workers is how many containers are recovered, or worked off from the debts, at once.
const workers = 4

// Debt is what could not be removed or recorded of a container yet.
type Debt struct {
	Container *Container
	Since     time.Time
	Attempts  int
	Err       error // of the last attempt
	next      time.Time
}

// Debts returns what is owed.
func (m *Manager) Debts() []Debt {
	m.mu.Lock()
	defer m.mu.Unlock()
	debts := make([]Debt, 0, len(m.debts))
	for _, d := range m.debts {
		debts = append(debts, *d)
	}
	return debts
}

// owe notes, or with a nil error cancels, what is owed for a container.
func (m *Manager) owe(c *Container, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.debts, c.ID)
		return
	}
	now := time.Now()
	debt := Debt{Container: c, Since: now}
	if old := m.debts[c.ID]; old != nil {
		debt = *old
	} else {
		m.cfg.Log.Warn("something of a container is owed", "event", "ContainerOwed", "container", label(c), "error", err)
	}
	debt.Attempts++
	debt.Err = err
	debt.next = now.Add(min(firstRetry<<min(debt.Attempts-1, 10), lastRetry))
	m.debts[c.ID] = &debt
}

// Serve retries what is owed until ctx ends.
func (m *Manager) Serve(ctx context.Context) error {
	tick := time.NewTicker(firstRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			due := slices.DeleteFunc(m.Debts(), func(d Debt) bool { return time.Now().Before(d.next) })
			each(due, func(d Debt) { m.retryDebt(ctx, d) })
		}
	}
}

// retryDebt does not wait for a call that takes long: it comes again.
func (m *Manager) retryDebt(ctx context.Context, debt Debt) {
	if ctx.Err() != nil {
		return
	}
	soon, cancel := context.WithTimeout(ctx, firstRetry)
	defer cancel()
	op := m.beginKnown(ctx, "owed removal", debt.Container.ID)
	defer func() { op.End(nil) }()
	c, unlock, err := m.claim(soon, op, debt.Container.ID)
	if err != nil || c == nil {
		return
	}
	defer unlock()
	if err := m.settle(c); err == nil {
		m.cfg.Log.Info("what a container owed is done", "event", "ContainerSettled", "container", label(c), "attempts", debt.Attempts+1)
	}
}

// settle does what can be owed for a container: its removal, or its record and
// the removal of its task.
func (m *Manager) settle(c *Container) error {
	if c.Removing || c.State == Creating {
		return m.remove(c)
	}
	_, err := m.change(c.ID, func(*Container) {})
	if err == nil && c.State == Exited {
		err = m.step("delete the task", c, m.cfg.Tasks.Delete)
	}
	m.owe(c, err)
	return err
}

// each runs f for every item, a few at once, and waits for all.
func each[T any](items []T, f func(T)) {
	limit := make(chan struct{}, workers)
	var group sync.WaitGroup
	for _, item := range items {
		limit <- struct{}{}
		group.Go(func() {
			f(item)
			<-limit
		})
	}
	group.Wait()
}
