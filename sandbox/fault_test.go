package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crib-runtime/crib/sandbox"
)

// The matrix: the life of a pod with one fault, and with every two faults, at
// every call and of every mode. Whatever happens, in the end
//
//   - a kubelet that retries gets its pod, complete, with an address that no
//     other pod has;
//   - after Stop no container of the pod runs;
//   - a pod's record is not deleted before those of its containers are;
//   - after Remove nothing of any pod is left anywhere.

// ops are the operations of a pod's life and how often one life calls them.
var ops = map[string]int{
	"plan": 1, "pin": 1, "attach": 1, "files": 1, "start init": 1, "put": 4, "delete": 1,
	"stop containers": 1, "remove containers": 1, "detach": 1, "unpin": 1, "remove files": 1, "stop init": 1, "restore": 1, "sweep pins": 1,
}

var modes = []mode{before, half, after, block, crashBefore, crashHalf, crashAfter}

// possible leaves out what cannot happen: pure memory that fails half way, an
// atomic replacement that is done by half, a system call that waits for a context,
// and a creation of namespaces that breaks its promise to leave nothing.
func possible(f fault) bool {
	if f.always && (f.mode == crashBefore || f.mode == crashHalf || f.mode == crashAfter) {
		return false // a daemon that always crashes makes no pods
	}
	switch f.op {
	case "plan":
		return f.mode == before || f.mode == crashBefore
	case "put", "delete":
		return f.mode != half && f.mode != crashHalf && f.mode != block
	case "pin":
		return f.mode != half && f.mode != after
	case "stop containers": // one effect
		return f.mode != half && f.mode != crashHalf
	case "restore", "sweep pins":
		return f.mode == before || f.mode == crashBefore
	}
	return true
}

func allFaults() []fault {
	var all []fault
	for op, n := range ops {
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

func TestPodLifeSurvivesEveryFault(t *testing.T) {
	for _, f := range allFaults() {
		t.Run(f.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { live(t, f) }) })
	}
}

func TestPodLifeSurvivesEveryPairOfFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	all := allFaults()
	for i, f := range all {
		t.Run(f.String(), func(t *testing.T) {
			for _, g := range all[i+1:] {
				synctest.Test(t, func(t *testing.T) { live(t, f, g) })
			}
		})
	}
}

var spec = sandbox.Spec{
	Key:        sandbox.Key{Namespace: "default", Name: "web", UID: "u1"},
	Namespaces: sandbox.Namespaces{SharedPID: true},
}

// driver is a kubelet with patience: it retries each call, and the daemon is
// started again when it crashed.
type driver struct {
	t *testing.T
	w *world
	m *sandbox.Manager
}

func live(t *testing.T, faults ...fault) {
	d := &driver{t: t, w: newWorld(faults...)}
	d.boot()
	id := d.run(spec)
	d.complete(id)
	if again := d.run(spec); again != id {
		t.Errorf("%v: a retry got pod %s, not %s", faults, again, id)
	}
	other := spec
	other.UID = "u2"
	otherID := d.run(other)
	d.distinct(id, otherID)
	d.w.contain(id)
	d.w.contain(otherID)
	d.retry("stop", func() error { return d.m.Stop(t.Context(), id) })
	if owners := d.w.owners("running container"); !slices.Equal(owners, []string{otherID}) {
		t.Errorf("%v: containers run in %q, want them in %s only", faults, owners, otherID)
	}
	d.removeAll()
	if left := d.w.remains(); len(left) > 0 {
		t.Errorf("%v: left behind: %q", faults, left)
	}
}

// boot starts the daemon until it stays up. Faults that would go on for ever end
// after some calls: somebody freed the disk.
func (d *driver) boot() {
	for range 5 {
		d.m, _ = d.w.start()
		if err := d.m.Recover(d.t.Context()); err == nil && !d.crashed() {
			return
		}
		d.mend()
	}
	d.t.Fatalf("%v: does not come up", d.w.faults)
}

func (d *driver) crashed() bool {
	if id := d.w.stray(); id != "" {
		d.t.Errorf("%v: pod %s has no record, its containers have", d.w.faults, id)
	}
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
		if d.crashed() {
			d.boot()
			continue
		}
		if err == nil {
			return
		}
		if !errors.Is(err, errFault) && !errors.Is(err, context.DeadlineExceeded) {
			d.t.Logf("%v: %s: %v", d.w.faults, what, err)
		}
		d.mend()
		d.serve()
		if d.crashed() {
			d.boot()
		}
	}
	d.t.Fatalf("%v: %s never succeeds", d.w.faults, what)
}

// serve lets the daemon work for two minutes of the bubble's clock.
func (d *driver) serve() {
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	if err := d.m.Serve(ctx); err != nil {
		d.t.Errorf("%v: serve: %v", d.w.faults, err)
	}
}

func (d *driver) run(spec sandbox.Spec) (id string) {
	d.retry("run", func() (err error) {
		id, err = d.m.Run(d.t.Context(), spec)
		return err
	})
	return id
}

// complete checks that a Ready pod has all that a pod has.
func (d *driver) complete(id string) {
	pod, err := d.m.Get(id)
	if err != nil || pod.State != sandbox.Ready {
		d.t.Fatalf("%v: pod is %+v, %v", d.w.faults, pod, err)
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, what := range []string{
		"link " + id, "files " + id, "shm " + id, "process " + id, "address " + pod.IPs()[0].String(),
		"pin " + pod.Pins.Net.Path, "pin " + pod.Pins.IPC.Path, "pin " + pod.Pins.UTS.Path,
	} {
		if _, ok := d.w.have[what]; !ok {
			d.t.Errorf("%v: a Ready pod lacks its %s", d.w.faults, what)
		}
	}
}

func (d *driver) distinct(a, b string) {
	var ips []string
	for _, id := range []string{a, b} {
		pod, err := d.m.Get(id)
		if err != nil {
			d.t.Fatalf("%v: %v", d.w.faults, err)
		}
		ips = append(ips, fmt.Sprint(pod.IPs()))
	}
	if ips[0] == ips[1] {
		d.t.Errorf("%v: two pods have %s", d.w.faults, ips[0])
	}
}

// removeAll removes every pod that is listed, as the kubelet's garbage collection does.
func (d *driver) removeAll() {
	d.retry("remove", func() error {
		var errs []error
		for _, pod := range d.m.List() {
			errs = append(errs, d.m.Stop(d.t.Context(), pod.ID), d.m.Remove(d.t.Context(), pod.ID))
		}
		return errors.Join(errs...)
	})
	d.serve()
	if d.crashed() {
		d.boot()
		d.removeAll()
	}
}
