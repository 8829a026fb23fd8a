package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox"
)

// start returns a recovered manager in a world.
func start(t *testing.T, w *world) *sandbox.Manager {
	t.Helper()
	m, _ := w.start()
	if err := m.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func mustRun(t *testing.T, m *sandbox.Manager, spec sandbox.Spec) *sandbox.Pod {
	t.Helper()
	id, err := m.Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := m.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// edit changes a record behind the manager's back.
func (w *world) edit(t *testing.T, id string, change func(*sandbox.Pod)) {
	t.Helper()
	var pod sandbox.Pod
	if err := json.Unmarshal(w.records[id], &pod); err != nil {
		t.Fatal(err)
	}
	change(&pod)
	b, err := json.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	w.records[id] = b
}

func TestRecoverKeepsALivingPod(t *testing.T) {
	w := newWorld()
	pod := mustRun(t, start(t, w), spec)
	m := start(t, w)
	again, err := m.Get(pod.ID)
	if err != nil || again.State != sandbox.Ready || again.IPs()[0] != pod.IPs()[0] {
		t.Errorf("after a restart the pod is %+v, %v", again, err)
	}
	if !slices.Equal(again.Timeline, pod.Timeline) {
		t.Errorf("the repair changed the timeline of the start from %v to %v", pod.Timeline, again.Timeline)
	}
}

func TestRecoverMarksADeadPodAndHoldsItsAddressUntilStop(t *testing.T) {
	w := newWorld()
	pod := mustRun(t, start(t, w), spec)
	delete(w.have, "pin "+pod.Pins.Net.Path)
	m := start(t, w)
	dead, err := m.Get(pod.ID)
	if err != nil || dead.State != sandbox.NotReady {
		t.Fatalf("after its namespace went the pod is %+v, %v", dead, err)
	}
	next := mustRun(t, m, spec)
	if next.ID == pod.ID || next.IPs()[0] == pod.IPs()[0] {
		t.Errorf("the new pod %s has %v, the dead one %s still has it", next.ID, next.IPs(), pod.ID)
	}
}

func TestRecoverAfterRebootFreesAddressesAtOnceAndTheRestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		pod := mustRun(t, start(t, w), spec)
		clear(w.have)
		w.have["container "+pod.ID] = pod.ID // the engine's metadata is on disk,
		w.have["link "+pod.ID] = pod.ID      // and so is what network plugins keep
		w.edit(t, pod.ID, func(p *sandbox.Pod) { p.BootID = "another boot" })
		m := start(t, w)
		if gone, err := m.Get(pod.ID); err != nil || gone.State != sandbox.NotReady || gone.InitPID != 0 {
			t.Fatalf("after a reboot the pod is %+v, %v", gone, err)
		}
		next := mustRun(t, m, spec)
		if next.IPs()[0] != pod.IPs()[0] {
			t.Errorf("the next pod has %v, though %v is free", next.IPs(), pod.IPs())
		}
		serve(t, m, 10*time.Second)
		if gone, err := m.Get(pod.ID); err != nil || !gone.Released || len(m.Debts()) > 0 {
			t.Errorf("ten seconds later the pod is %+v, %v; owed: %v", gone, err, m.Debts())
		}
		if left := append(w.owners("container"), w.owners("link")...); !slices.Equal(left, []string{next.ID, next.ID}) {
			t.Errorf("left: %v", left)
		}
	})
}

// TestRestartDoesNotHoldAddressesOfStoppedPods: a stopped pod stays listed until
// the kubelet's garbage collection, and its address is another pod's by then.
func TestRestartDoesNotHoldAddressesOfStoppedPods(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	old := mustRun(t, m, spec)
	if err := m.Stop(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	living := mustRun(t, m, spec)
	if living.IPs()[0] != old.IPs()[0] {
		t.Fatalf("the model does not give %v again", old.IPs())
	}
	m, net := w.start()
	if err := m.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if owner := net.owners[living.IPs()[0]]; owner != living.ID {
		t.Errorf("after a restart %v is of pod %s, not of %s", living.IPs(), owner, living.ID)
	}
	if err := errors.Join(m.Remove(t.Context(), old.ID), m.Remove(t.Context(), living.ID)); err != nil {
		t.Fatal(err)
	}
	if len(net.owners) > 0 {
		t.Errorf("still held: %v", net.owners)
	}
}

func TestAnAddressInTwoRecordsIsOfTheNewerPod(t *testing.T) {
	for range 10 { // records come in no order
		w := newWorld()
		m := start(t, w)
		older := mustRun(t, m, spec)
		other := spec
		other.UID = "u2"
		newer := mustRun(t, m, other)
		// The older one was stopped while the disk was full.
		w.edit(t, newer.ID, func(p *sandbox.Pod) { p.Attachments = older.Attachments })
		m, net := w.start()
		if err := m.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if owner := net.owners[older.IPs()[0]]; owner != newer.ID {
			t.Fatalf("%v is of pod %s, not of the newer one %s", older.IPs(), owner, newer.ID)
		}
	}
}

func TestRecoverForgetsAPodThatWasBeingMadeBeforeAReboot(t *testing.T) {
	w := newWorld()
	pod := mustRun(t, start(t, w), spec)
	clear(w.have)
	w.edit(t, pod.ID, func(p *sandbox.Pod) { p.BootID, p.State = "another boot", sandbox.Creating })
	if pods := start(t, w).List(); len(pods) > 0 || len(w.records) > 0 {
		t.Errorf("left: %v, %d records", pods, len(w.records))
	}
}

func TestRecoverSweepsStrays(t *testing.T) {
	w := newWorld()
	w.have["container stray"], w.have["process stray"] = "stray", "stray"
	w.have["files stray"], w.have["shm stray"] = "stray", "stray"
	start(t, w)
	if left := w.remains(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestRecoverResumesAStopThatACrashInterrupted(t *testing.T) {
	w := newWorld()
	pod := mustRun(t, start(t, w), spec)
	w.edit(t, pod.ID, func(p *sandbox.Pod) { p.State, p.Stopping = sandbox.NotReady, true })
	start(t, w)
	if left := w.remains(); len(left) != 1 || !strings.HasPrefix(left[0], "record") {
		t.Errorf("left: %q", left)
	}
}

func TestRecoverRemovesTheContainersOfAPodWithABrokenRecord(t *testing.T) {
	w := newWorld()
	w.broken = []string{"torn"}
	w.contain("torn")
	w.records["torn"] = []byte("{}")
	start(t, w)
	if left := w.remains(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestRunGoesOnWhenItsCallerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, newWorld(fault{op: "attach", n: 1, mode: block}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := m.Run(ctx, spec)
			done <- err
		}()
		synctest.Wait()
		cancel()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Errorf("Run ended with its caller: %v", err)
		default:
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run ended by its own deadline with %v", err)
		}
	})
}

func TestRetryWaitsForTheFirstCallAndGetsItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(fault{op: "attach", n: 1, mode: block})
		m := start(t, w)
		first := make(chan error)
		go func() {
			_, err := m.Run(t.Context(), spec)
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Run(ctx, spec); err == nil || !strings.Contains(err.Error(), "earlier call") {
			t.Errorf("a retry with a short deadline got %v", err)
		}
		if _, err := m.Get("x"); !errdefs.IsNotFound(err) {
			t.Errorf("Get of an unknown id: %v", err)
		}
		if pods := m.List(); len(pods) != 0 {
			t.Errorf("a pod that is being made is listed: %v", pods)
		}
		if id, err := m.Run(t.Context(), spec); err != nil || id == "" {
			t.Errorf("a patient retry got %q, %v", id, err)
		}
		if err := <-first; err == nil {
			t.Error("the blocked call succeeded")
		}
	})
}

func TestCreatedAtNeverGoesBack(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	old := mustRun(t, m, spec)
	future := time.Now().Add(time.Hour)
	w.edit(t, old.ID, func(p *sandbox.Pod) { p.CreatedAt = future })
	m = start(t, w)
	next := spec
	next.Attempt = 1
	if pod := mustRun(t, m, next); !pod.CreatedAt.After(future) {
		t.Errorf("attempt 1 was created at %v, attempt 0 at %v", pod.CreatedAt, future)
	}
}

func TestRunFailsWhenTheNetworkGivesNoAddress(t *testing.T) {
	w := newWorld()
	m, net := w.start()
	net.silent = true
	_, err := m.Run(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "no address on eth0") {
		t.Errorf("got %v", err)
	}
	if left := w.remains(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestEnsureInitGivesAPodOneInit(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	plain := spec
	plain.Namespaces.SharedPID = false
	pod := mustRun(t, m, plain)
	for range 2 {
		if err := m.EnsureInit(t.Context(), pod.ID); err != nil {
			t.Fatal(err)
		}
	}
	if with, err := m.Get(pod.ID); err != nil || with.InitPID == 0 || w.calls["start init"] != 1 {
		t.Errorf("after two calls: %+v, %v, %d inits started", with, err, w.calls["start init"])
	}
	if again, err := start(t, w).Get(pod.ID); err != nil || again.State != sandbox.Ready || again.InitPID == 0 {
		t.Errorf("after a restart: %+v, %v", again, err)
	}
	delete(w.have, "process "+pod.ID)
	if err := m.EnsureInit(t.Context(), pod.ID); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("after its init ended: %v", err)
	}
	if err := m.Remove(t.Context(), pod.ID); err != nil {
		t.Fatal(err)
	}
	if left := w.remains(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := m.EnsureInit(t.Context(), pod.ID); !errdefs.IsNotFound(err) {
		t.Errorf("for a pod that is gone: %v", err)
	}
}

func TestEnsureInitLeavesThePodAsItWasWhenItFails(t *testing.T) {
	for _, mode := range []mode{before, half, after} {
		w := newWorld(fault{op: "start init", n: 1, mode: mode})
		m := start(t, w)
		plain := spec
		plain.Namespaces.SharedPID = false
		pod := mustRun(t, m, plain)
		if err := m.EnsureInit(t.Context(), pod.ID); !errors.Is(err, errFault) {
			t.Errorf("%s: %v", mode, err)
		}
		if now, err := m.Get(pod.ID); err != nil || now.State != sandbox.Ready || now.Init || len(w.owners("container")) > 0 {
			t.Errorf("%s: %+v, %v, engine has %v", mode, now, err, w.owners("container"))
		}
	}
}

func TestRunRefusesBadInputAndChangesNothing(t *testing.T) {
	w := newWorld()
	m := start(t, w)
	for field, change := range map[string]func(*sandbox.Spec){
		"metadata.name":      func(s *sandbox.Spec) { s.Name = "" },
		"metadata.namespace": func(s *sandbox.Spec) { s.Namespace = "" },
		"metadata.uid":       func(s *sandbox.Spec) { s.UID = "" },
		"runtime_handler":    func(s *sandbox.Spec) { s.Handler = "kata" },
		"hostname":           func(s *sandbox.Spec) { s.Hostname = strings.Repeat("h", 65) },
		"dns_config":         func(s *sandbox.Spec) { s.DNS.Servers = []string{"10.0.0.1\nnameserver 6.6.6.6"} },
		"config.hostname":    func(s *sandbox.Spec) { s.Hostname = "a\nb" },
		"log_directory":      func(s *sandbox.Spec) { s.LogDirectory = "logs" },
		"sysctls":            func(s *sandbox.Spec) { s.Sysctls = map[string]string{"vm.swappiness": "1"} },
	} {
		bad := spec
		change(&bad)
		_, err := m.Run(t.Context(), bad)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if left := w.remains(); len(left) > 0 || len(w.calls) > 2 {
		t.Errorf("left: %q, calls: %v", left, w.calls)
	}
}
