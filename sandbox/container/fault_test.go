package container_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// The matrix: the life of three containers with one fault, and with every two
// faults, at every call and of every mode. Whatever happens, in the end
//
//   - a kubelet that retries gets its container created, started and stopped;
//   - a container that ended shows the code that it ended with;
//   - one that is shown as running has a process, any other has none;
//   - after Remove nothing of any container is left anywhere.

// operations are those of the three lives and at which calls they are struck.
var operations = map[string]int{
	"image": 1, "root": 2, "spec": 1, "create": 2, "start": 2, "kill": 2, "wait": 2, "delete": 4,
	"remove root": 2, "remove volumes": 1, "release": 1, "put": 8, "delete record": 2,
}

var modes = []mode{before, half, after, block, crashBefore, crashHalf, crashAfter}

// possible leaves out what cannot happen, or happens in another mode already.
func possible(f fault) bool {
	if f.always && f.mode != before && f.mode != block {
		return false // what lasts has no effect; a daemon that always crashes makes no containers
	}
	switch f.op {
	case "image":
		return f.mode == before || f.mode == block || f.mode == crashBefore
	case "wait": // one that hangs is an engine that hangs
		return f.mode == before || f.mode == crashBefore
	case "put", "delete record": // atomic
		return f.mode != half && f.mode != crashHalf && f.mode != block
	case "spec", "create", "kill", "remove volumes", "release": // one effect
		return f.mode != half && f.mode != crashHalf
	}
	return true
}

func allFaults() []fault {
	var all []fault
	for op, n := range operations {
		for i := 1; i <= n; i++ {
			for _, m := range modes {
				for _, always := range []bool{false, true} {
					if f := (fault{op, i, m, always}); possible(f) {
						all = append(all, f)
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b fault) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func TestContainerLifeSurvivesEveryFault(t *testing.T) {
	for _, f := range allFaults() {
		t.Run(f.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { live(t, true, f) }) })
	}
}

// TestContainerLifeSurvivesEveryFaultWithoutHarvest: an engine that keeps ended
// tasks over a restart of the daemon tells their ends itself.
func TestContainerLifeSurvivesEveryFaultWithoutHarvest(t *testing.T) {
	for _, f := range allFaults() {
		t.Run(f.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { live(t, false, f) }) })
	}
}

func TestContainerLifeSurvivesEveryPairOfFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	all := allFaults()
	for i, f := range all {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			for _, g := range all[i+1:] {
				synctest.Test(t, func(t *testing.T) { live(t, true, f, g) })
			}
		})
	}
}

var spec = container.Spec{
	Key:   container.Key{PodID: "pod", Name: "main"},
	Image: container.ImageSpec{Image: "busybox"},
}

// driver is a kubelet with patience: it retries each call, and the daemon is
// started again when it crashed.
type driver struct {
	t       *testing.T
	w       *world
	m       *container.Manager
	harvest bool
	attempt uint32
}

func live(t *testing.T, harvest bool, faults ...fault) {
	d := &driver{t: t, w: newWorld(faults...), harvest: harvest}
	d.boot()
	defer func() { d.m.Close() }()

	first := d.startOne()
	d.w.end(first, 7, false)
	d.ended(first, 7, container.ReasonError)
	d.attempt++
	second := d.startOne()
	d.newer(second, first)
	d.retry("stop", func() error { return d.m.Stop(t.Context(), second, time.Minute) })
	d.ended(second, 128+2, container.ReasonError) // the image's SIGINT
	d.attempt++
	third := d.create()
	if again := d.create(); again != third {
		t.Errorf("%v: a retry got container %s, not %s", faults, again, third)
	}
	d.retry("remove", func() error { return d.m.Remove(t.Context(), first) })
	d.attempt++
	d.startOne()

	d.w.mu.Lock()
	d.w.pods["pod"] = sandbox.NotReady
	d.w.mu.Unlock()
	d.retry("stop all", func() error { return d.m.StopAll(t.Context(), "pod") })
	d.truthful()
	d.retry("remove all", func() error { return d.m.RemoveAll(t.Context(), "pod") })
	d.mend()
	d.serve()
	if left := d.w.remains(); len(left) > 0 || len(d.m.Debts()) > 0 {
		t.Errorf("%v: left behind: %q, owed: %v", faults, left, d.m.Debts())
	}
}

// boot starts the daemon until it stays up. Faults that would go on for ever end
// after some calls: somebody freed the disk.
func (d *driver) boot() {
	for range 5 {
		if d.m != nil {
			d.m.Close()
		}
		d.w.rise()
		var harvested map[string]container.Ended
		if d.harvest {
			harvested = d.w.harvest()
			d.w.forget(harvested)
		}
		d.m = d.w.start()
		if err := d.m.Recover(d.t.Context(), harvested); err == nil && !d.crashed() {
			return
		}
		d.mend()
	}
	d.t.Fatalf("%v: does not come up", d.w.faults)
}

func (d *driver) crashed() bool {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.w.dead
}

// mend ends faults that last.
func (d *driver) mend() {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for i := range d.w.faults {
		d.w.faults[i].always = false
	}
}

// retry calls until it succeeds, lets the daemon work off its debts in between,
// and restarts it when it died.
func (d *driver) retry(what string, call func() error) {
	for range 8 {
		err := call()
		if !d.rebooted() && err == nil {
			return
		}
		if err != nil && !errors.Is(err, errCrash) {
			d.mend()
			d.serve()
		}
	}
	d.t.Fatalf("%v: %s never succeeds", d.w.faults, what)
}

// rebooted starts the daemon again if it crashed.
func (d *driver) rebooted() bool {
	if !d.crashed() {
		return false
	}
	d.boot()
	return true
}

// serve lets the daemon work for two minutes of the bubble's clock.
func (d *driver) serve() {
	for {
		ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
		if err := d.m.Serve(ctx); err != nil {
			d.t.Errorf("%v: serve: %v", d.w.faults, err)
		}
		cancel()
		if !d.rebooted() {
			return
		}
	}
}

func (d *driver) create() (id string) {
	d.retry("create", func() (err error) {
		s := spec
		s.Attempt = d.attempt
		id, err = d.m.Create(d.t.Context(), s)
		return err
	})
	for _, kind := range []string{"container", "root", "snapshot", "volumes"} {
		if !d.w.has(kind, id) {
			d.t.Errorf("%v: a created container lacks its %s", d.w.faults, kind)
		}
	}
	return id
}

// startOne makes a container and starts it; as the kubelet does, it makes another
// one in the place of one whose start failed.
func (d *driver) startOne() string {
	for range 8 {
		id := d.create()
		err := d.m.Start(d.t.Context(), id)
		rebooted := d.rebooted()
		c, getErr := d.m.Get(id)
		if getErr != nil {
			d.t.Fatalf("%v: a created container is gone: %v", d.w.faults, getErr)
		}
		switch {
		case c.State == container.Running && (err == nil || rebooted):
			d.truthful()
			return id
		case c.State == container.Exited && (c.Exit.Code == 128 && c.Exit.Reason == container.ReasonStartError && c.Exit.Message != "" ||
			rebooted && c.Exit.Code == 137): // it was up, and killed when its start was undone
			d.attempt++
		case c.State != container.Created:
			d.t.Fatalf("%v: after a start with %v it is %+v", d.w.faults, err, c)
		}
		d.mend()
		d.serve()
	}
	d.t.Fatalf("%v: start never succeeds", d.w.faults)
	return ""
}

// ended waits until a container is shown as ended and checks how.
func (d *driver) ended(id string, code int32, reason string) {
	var c *container.Container
	for range 5 {
		synctest.Wait()
		d.rebooted()
		if c, _ = d.m.Get(id); c != nil && c.State == container.Exited {
			break
		}
		d.serve()
	}
	if c == nil || c.State != container.Exited || c.Exit.Code != code || c.Exit.Reason != reason || !c.Exit.At.After(c.StartedAt) {
		d.t.Fatalf("%v: want %d %s, it is %+v", d.w.faults, code, reason, c)
	}
	d.truthful()
}

// truthful checks that what is shown as running runs, and nothing else.
func (d *driver) truthful() {
	d.mend()
	synctest.Wait()
	if d.rebooted() || d.unsettled() {
		d.serve()
	}
	for _, c := range d.m.List() {
		if runs := d.w.has("process", c.ID); runs != (c.State == container.Running) {
			d.t.Errorf("%v: a container that is %s has a process: %v", d.w.faults, c.State, runs)
		}
		if c.State == container.Exited && (d.w.has("task", c.ID) || d.w.has("container", c.ID)) {
			d.t.Errorf("%v: the engine still has a container that ended", d.w.faults)
		}
	}
}

// unsettled tells whether the daemon has something to do.
func (d *driver) unsettled() bool {
	return len(d.m.Debts()) > 0 || slices.ContainsFunc(d.m.List(), func(c *container.Container) bool {
		return c.State == container.Exited && d.w.has("container", c.ID)
	})
}

func (d *driver) newer(id, than string) {
	a, errA := d.m.Get(id)
	b, errB := d.m.Get(than)
	if err := errors.Join(errA, errB); err != nil || !a.CreatedAt.After(b.CreatedAt) {
		d.t.Errorf("%v: created at %v, the one before at %v, %v", d.w.faults, a, b, err)
	}
}
