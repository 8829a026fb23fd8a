package container_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/sandbox/container"
)

// edit changes a record behind the manager's back.
func (w *world) edit(t *testing.T, id string, change func(*container.Container)) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var c container.Container
	if err := json.Unmarshal(w.records["pod/"+id], &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	b, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	w.records["pod/"+id] = b
}

// restart is a restart of the daemon.
func restart(t *testing.T, w *world, m *container.Manager, harvested map[string]container.Ended) *container.Manager {
	t.Helper()
	m.Close()
	m = w.start()
	t.Cleanup(m.Close)
	if err := m.Recover(t.Context(), harvested); err != nil {
		t.Fatal(err)
	}
	return m
}

func reboot(c *container.Container) { c.BootID = "another boot" }

func TestRecoverFollowsWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		m = restart(t, w, m, nil)
		is(t, m, id, container.Running)
		w.end(id, 7, false)
		synctest.Wait()
		if c := is(t, m, id, container.Exited); c.Exit.Code != 7 {
			t.Errorf("its end: %+v", c.Exit)
		}
	})
}

func TestRecoverTellsTheEndsOfTheTimeWithoutADaemon(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		harvested, waited, lost := mustStart(t, m, attempt(0)), mustStart(t, m, attempt(1)), mustStart(t, m, attempt(2))
		m.Close()
		w.end(harvested, 137, true)
		ends := w.harvest()
		w.forget(ends)
		w.end(waited, 7, false)
		w.end(lost, 7, false)
		w.mu.Lock()
		delete(w.have, "task "+lost)
		w.mu.Unlock()
		m = restart(t, w, m, ends)
		synctest.Wait()
		for id, want := range map[string]container.Exit{
			harvested: {Code: 137, Reason: container.ReasonOOMKilled},
			waited:    {Code: 7, Reason: container.ReasonError},
			lost:      {Code: 255, Reason: "Unknown"},
		} {
			c := is(t, m, id, container.Exited)
			if c.Exit.Code != want.Code || c.Exit.Reason != want.Reason {
				t.Errorf("got %+v, want %+v", c.Exit, want)
			}
			if w.has("container", id) {
				t.Error("the engine still has it")
			}
		}
	})
}

func TestRecoverAfterARebootSaysWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		ran, created, ended := mustStart(t, m, attempt(0)), mustCreate(t, m, attempt(1)), mustStart(t, m, attempt(2))
		w.end(ended, 7, false)
		synctest.Wait()
		m.Close()
		w.mu.Lock()
		delete(w.have, "task "+ran)
		delete(w.have, "process "+ran)
		w.mu.Unlock()
		for _, id := range []string{ran, created, ended} {
			w.edit(t, id, reboot)
		}
		m = restart(t, w, m, nil)
		if c := is(t, m, ran, container.Exited); c.Exit.Code != 255 || c.Exit.Reason != "Unknown" || c.PID != 0 {
			t.Errorf("what ran: %+v", c)
		}
		if c := is(t, m, created, container.Exited); c.Exit.Code != 128 || c.Exit.Reason != container.ReasonStartError {
			t.Errorf("what was created: %+v", c)
		}
		if c := is(t, m, ended, container.Exited); c.Exit.Code != 7 {
			t.Errorf("what had ended: %+v", c)
		}
		if err := m.RemoveAll(t.Context(), "pod"); err != nil || len(w.remains()) > 0 {
			t.Errorf("left: %q, %v", w.remains(), err)
		}
	})
}

func TestRecoverKeepsWhatWasCreatedAndCanStartIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustCreate(t, m, spec)
		m = restart(t, w, m, nil)
		is(t, m, id, container.Created)
		if err := m.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		lost := mustCreate(t, m, attempt(1))
		w.mu.Lock()
		delete(w.have, "container "+lost)
		w.mu.Unlock()
		m = restart(t, w, m, nil)
		if err := m.Start(t.Context(), lost); err == nil {
			t.Error("a container that the engine lost was started")
		}
		is(t, m, lost, container.Exited)
	})
}

func TestRecoverUndoesAnInterruptedStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		w.edit(t, id, func(c *container.Container) { c.State, c.PID = container.Created, 0 })
		m = restart(t, w, m, nil)
		if c := is(t, m, id, container.Exited); c.Exit.Code != 128 || c.Exit.Reason != container.ReasonStartError || w.has("process", id) {
			t.Errorf("it is %+v", c)
		}
	})
}

func TestRecoverRemovesWhatWasHalfMadeUnreadableOrBeingRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		half, torn, going := mustCreate(t, m, attempt(0)), mustStart(t, m, attempt(1)), mustStart(t, m, attempt(2))
		w.edit(t, half, func(c *container.Container) { c.State = container.Creating })
		w.edit(t, going, func(c *container.Container) { c.Removing = true })
		w.mu.Lock()
		w.records["pod/"+torn] = []byte(`{"id":"`)
		w.have["container stray"], w.have["root stray"] = true, true
		w.mu.Unlock()
		m = restart(t, w, m, nil)
		if left := w.remains(); len(left) > 0 || len(m.List()) > 0 {
			t.Errorf("left: %q, listed: %v", left, m.List())
		}
	})
}

func TestRecoverShowsAStateThatItDoesNotKnowAsUnknownAndRemovable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *container.Manager) {
		id := mustStart(t, m, spec)
		w.edit(t, id, func(c *container.Container) { c.State = "Paused" })
		m = restart(t, w, m, nil)
		is(t, m, id, container.Unknown)
		if err := m.Remove(t.Context(), id); err != nil || len(w.remains()) > 0 {
			t.Errorf("left: %q, %v", w.remains(), err)
		}
	})
}

func TestAnEngineThatDoesNotAnswerMakesNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(fault{op: "wait", n: 1, mode: before, always: true})
		m := start(t, w)
		id := mustStart(t, m, spec)
		time.Sleep(time.Hour)
		is(t, m, id, container.Running)
		w.mu.Lock()
		w.faults = nil
		w.mu.Unlock()
		w.end(id, 3, false)
		time.Sleep(time.Minute)
		if c := is(t, m, id, container.Exited); c.Exit.Code != 3 {
			t.Errorf("its end: %+v", c.Exit)
		}
	})
}

func TestWhatRemoveOwesIsDoneByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := start(t, w)
		id := mustStart(t, m, attempt(0))
		w.mu.Lock()
		w.faults = []fault{{op: "remove root", n: 1, mode: before}}
		w.mu.Unlock()
		if err := m.Remove(t.Context(), id); err == nil || len(m.Debts()) != 1 {
			t.Errorf("Remove says %v, owed: %v", err, m.Debts())
		}
		serve(t, m, 10*time.Second)
		if left := w.remains(); len(left) > 0 || len(m.Debts()) > 0 {
			t.Errorf("left: %q, owed: %v", left, m.Debts())
		}
	})
}
