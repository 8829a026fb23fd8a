package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Recover reads the records of an earlier process and makes them true again. What
// was half made or half removed is removed; those that run are followed; the ends
// of those that do not are recorded, from the harvest if it has them: that is made
// before the engine is opened, and must tell of an end until [Tasks].Delete. It never
// fails for one container: what it cannot do is owed. It must return before the
// first other call, also before the recovery of pods, which may stop containers.
func (m *Manager) Recover(ctx context.Context, harvested map[string]Ended) error {
	records, broken, err := m.cfg.Store.LoadContainers()
	if err != nil {
		return fmt.Errorf("load the records of containers: %w", err)
	}
	for _, name := range broken {
		records = append(records, m.unreadable(name))
	}
	m.mu.Lock()
	for _, c := range records {
		m.containers[c.ID] = c
	}
	m.mu.Unlock()
	each(records, func(c *Container) {
		ended, known := harvested[c.ID]
		m.resume(c, ended, known)
	})
	if err := m.sweep(ctx); err != nil {
		m.cfg.Log.Warn("recovery of containers left something behind", "error", err)
	}
	return nil
}

// unreadable returns a record that has a container removed of which only the name
// of the record, "<pod>/<id>", is known.
func (m *Manager) unreadable(name string) *Container {
	m.cfg.Log.Warn("the record of a container cannot be read; the container is removed", "record", name)
	podID, id, _ := strings.Cut(name, "/")
	key := Key{PodID: podID, Name: "unreadable-" + id}
	return &Container{ID: id, Spec: Spec{Key: key}, State: Unknown, BootID: m.cfg.BootID, CreatedAt: m.createdAt(key), Removing: true}
}

// resume brings a container to where its record says it belongs.
func (m *Manager) resume(c *Container, ended Ended, known bool) {
	tried := c.tried()
	here := c.BootID == m.cfg.BootID
	switch {
	case c.Removing, c.State == Creating:
		_ = m.remove(c) // logged and owed there
	case c.State == Exited:
		m.clear(c, nil)
	case tried && known:
		m.bury(c.ID, exitOf(ended))
	case c.State == Running && here:
		m.follow(c.ID)
	case c.State == Running:
		m.bury(c.ID, unknownExit("the node was restarted while it ran"))
	case tried:
		// Nobody was told that it runs, so it is undone. It may be at any point.
		m.bury(c.ID, startError("crib ended while it was being started"))
	case c.State == Created && !here:
		m.bury(c.ID, startError("the node was restarted before it was started"))
	case c.State != Created:
		_, err := m.change(c.ID, func(c *Container) { c.State = Unknown })
		m.owe(c, err)
	}
}

// sweep removes the containers of the engine that have no record.
func (m *Manager) sweep(ctx context.Context) error {
	if m.cfg.Strays == nil {
		return nil
	}
	ids, err := m.cfg.Strays(ctx)
	errs := []error{err}
	for _, id := range slices.DeleteFunc(ids, func(id string) bool { return m.get(id) != nil }) {
		errs = append(errs, m.teardown(&Container{ID: id, Spec: Spec{Key: Key{Name: "without a record"}}}))
	}
	return errors.Join(errs...)
}
