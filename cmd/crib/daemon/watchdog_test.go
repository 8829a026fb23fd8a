package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/ops"
)

// at is an operation that has been at a stage for some time.
func at(stage string, took time.Duration) ops.Operation {
	return ops.Operation{Verb: "RunPodSandbox", Subject: ops.Subject{Pod: "default/web"}, Age: took, At: []ops.Stage{{Name: stage, Took: took}}}
}

func TestAnOperationBeyondItsLimitIsNamedWithTheReason(t *testing.T) {
	for _, test := range []struct {
		claim   string
		plugins bool
		ops     []ops.Operation
		want    string
	}{
		{"nothing", false, nil, ""},
		{"in time", false, []ops.Operation{at("namespaces", 29*time.Second), at("task", 99*time.Second)}, ""},
		{"kernel", false, []ops.Operation{at("namespaces", 31*time.Second)}, "KernelStuck"},
		{"engine", false, []ops.Operation{at("task", 101*time.Second)}, "EngineStuck"},
		{"both", false, []ops.Operation{at("task", 101*time.Second), at("network", 31*time.Second)}, "KernelStuck"},
		{"a slow plugin", true, []ops.Operation{at("network", 31*time.Second)}, ""},
		{"a plugin", true, []ops.Operation{at("network", 91*time.Second)}, "NetworkPluginStuck"},
		{"who only waits", false, []ops.Operation{at("lock", time.Hour)}, ""},
	} {
		got := stuck(test.ops, limits(test.plugins, 90*time.Second))
		if got.reason != test.want || test.want != "" && !strings.Contains(got.message, "RunPodSandbox of default/web") {
			t.Errorf("%s: got %+v, want %s", test.claim, got, test.want)
		}
	}
}

func TestManyStuckOperationsAreOneShortText(t *testing.T) {
	var many []ops.Operation
	for range 500 {
		many = append(many, at("network", time.Minute))
	}
	got := stuck(many, limits(false, 0))
	if !strings.HasPrefix(got.message, "500 operations are stuck") || len(got.message) > 500 {
		t.Errorf("got %s", got.message)
	}
}

func TestThreadsThatNoSignalWakesAreToldWithTheKernelsFunction(t *testing.T) {
	dir := t.TempDir()
	for task, text := range map[string]string{"1": "1 (a) D) D 0 0", "2": "2 (b) S 0 0", "3": "3 (c) D 0 0"} {
		for name, text := range map[string]string{"stat": text, "wchan": "rtnl_lock"} {
			path := filepath.Join(dir, task, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := asleep(dir); got != `; 2 threads in uninterruptible sleep in "rtnl_lock"` {
		t.Errorf("got %s", got)
	}
	if got := asleep(t.TempDir()); got != "" {
		t.Errorf("nobody sleeps: %s", got)
	}
}

// TestAKernelThatHangsKeepsFewThreads has calls that come back when the test lets them.
func TestAKernelThatHangsKeepsFewThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		release := make(chan struct{})
		p := newPinner("")
		p.create = func(context.Context, netns.Spec) (netns.Pins, error) {
			inside.Add(1)
			<-release
			return netns.Pins{}, nil
		}
		p.remove = func(netns.Pins) error {
			_, err := p.create(context.Background(), netns.Spec{})
			return err
		}
		errs := make(chan error, 400)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 200 {
			go func() {
				_, err := p.Create(ctx, netns.Spec{})
				errs <- err
			}()
			go func() { errs <- p.Remove(netns.Pins{}) }()
		}
		for range 2 * (200 - pinsAtOnce) {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) && !errdefs.IsUnavailable(err) {
				t.Fatalf("got %v", err)
			}
		}
		if n := inside.Load(); n != 2*pinsAtOnce {
			t.Errorf("%d calls are in the kernel", n)
		}
		close(release)
		for range 2 * pinsAtOnce {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestALockOfLinksThatIsNeverHadIsToldAndAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watchdog
		var asked, observed atomic.Int32
		release := make(chan struct{})
		rtnl := func() (time.Duration, error) {
			asked.Add(1)
			<-release
			return time.Second, nil
		}
		for range 10 {
			w.ask(rtnl, func(time.Duration) { observed.Add(1) })
			time.Sleep(watchEvery)
		}
		if got := w.locked(); got.reason != "KernelStuck" || !strings.Contains(got.message, "for 50s") || asked.Load() != 1 {
			t.Errorf("got %+v, asked %d times", got, asked.Load())
		}
		close(release)
		synctest.Wait()
		if got := w.locked(); got != (trouble{}) || observed.Load() != 1 {
			t.Errorf("afterwards: %+v, observed %d times", got, observed.Load())
		}
	})
}
