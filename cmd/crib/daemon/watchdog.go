package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crib-runtime/crib/network/look"
	"github.com/crib-runtime/crib/network/ops"
)

// watchEvery is the time between two looks for operations that are stuck.
const watchEvery = 5 * time.Second

// How long a stage may take before it counts as stuck. What asks the kernel takes
// milliseconds; the engine unpacks images and waits for processes.
const (
	kernelLimit = 30 * time.Second
	engineLimit = 100 * time.Second
)

// trouble is what a node says of operations that are stuck; zero for none.
type trouble struct{ reason, message string }

// watchdog looks for operations that are stuck, and keeps what it found for Status,
// which must not wait.
type watchdog struct {
	mu     sync.Mutex // guards all below
	now    trouble
	asking time.Time // since when the lock of links is waited for; zero if it is not
}

// ask waits for the kernel's lock of links on a goroutine of its own, unless one still
// does: a kernel that hangs keeps one thread. Nobody can end it, so nobody waits for it.
func (w *watchdog) ask(rtnl func() (time.Duration, error), observe func(time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asking.IsZero() {
		return
	}
	w.asking = time.Now()
	go func() {
		took, err := rtnl()
		if err == nil {
			observe(took)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking = time.Time{}
	}()
}

// locked tells of a lock of links that cannot be had.
func (w *watchdog) locked() trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking.IsZero() || time.Since(w.asking) < kernelLimit {
		return trouble{}
	}
	return trouble{"KernelStuck", fmt.Sprintf("the kernel's lock of links cannot be had for %s", time.Since(w.asking).Round(time.Second))}
}

func (w *watchdog) get() trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// set keeps what was found, and tells whether the reason is another one.
func (w *watchdog) set(t trouble) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.now.reason != t.reason
	w.now = t
	return news
}

// Trouble returns a reason and a text while operations are stuck. It never blocks.
func (d *Daemon) Trouble() (reason, message string) {
	t := d.watchdog.get()
	return t.reason, t.message
}

// watch looks again and again until ctx ends.
func (d *Daemon) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.watchdog.ask(look.RTNL, d.metrics.RTNL)
			plugins := slices.Contains(d.nets.choose(), driverCNI)
			found := stuck(d.inFlight.List(), limits(plugins, d.cfg.Network.CNI.Timeout))
			if found.reason != "KernelStuck" {
				found = cmp.Or(d.watchdog.locked(), found)
			}
			d.tell(found)
		}
	}
}

// tell keeps what was found, and logs it if it is another reason than before.
func (d *Daemon) tell(found trouble) {
	if found.reason != "" {
		found.message += asleep("/proc/self/task")
	}
	if !d.watchdog.set(found) {
		return
	}
	if found.reason == "" {
		d.log.Info("operations go on", "event", "Unstuck")
		return
	}
	d.log.Error("operations are stuck", "event", found.reason, "cause", found.message)
}

// limit is how long a stage may take, and the reason after that.
type limit struct {
	most   time.Duration
	reason string
}

// limits returns those of the stages; others have none. Where plugins attach pods it
// is them who are waited for.
func limits(plugins bool, timeout time.Duration) map[string]limit {
	all := map[string]limit{}
	for _, stage := range []string{"namespaces", "network", "detach network", "unpin namespaces", "remove files", "files"} {
		all[stage] = limit{kernelLimit, "KernelStuck"}
	}
	for _, stage := range []string{"init", "stop init", "root", "engine", "task", "kill", "delete the task", "remove the root"} {
		all[stage] = limit{engineLimit, "EngineStuck"}
	}
	if plugins {
		all["network"], all["detach network"] = limit{timeout, "NetworkPluginStuck"}, limit{timeout, "NetworkPluginStuck"}
	}
	return all
}

// stuck names the operations with stages beyond their limits. The kernel comes first:
// what hangs there makes the rest hang.
func stuck(inFlight []ops.Operation, limits map[string]limit) trouble {
	beyond := map[string][]string{}
	for _, op := range inFlight {
		for _, stage := range op.At {
			if l, ok := limits[stage.Name]; ok && stage.Took > l.most {
				beyond[l.reason] = append(beyond[l.reason], op.String())
			}
		}
	}
	reasons := slices.Sorted(maps.Keys(beyond))
	if _, ok := beyond["KernelStuck"]; ok {
		reasons = []string{"KernelStuck"}
	}
	if len(reasons) == 0 {
		return trouble{}
	}
	reason := reasons[0]
	named := beyond[reason][:min(3, len(beyond[reason]))]
	return trouble{reason, fmt.Sprintf("%d operations are stuck (crib ops shows all): %s", len(beyond[reason]), strings.Join(named, "; "))}
}

// asleep tells where in the kernel threads sleep that no signal wakes, of a process
// whose threads are in dir.
func asleep(dir string) string {
	tasks, _ := filepath.Glob(filepath.Join(dir, "*"))
	where := map[string]int{}
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(task, "stat"))
		// The name in parentheses may hold anything, also parentheses.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if err != nil || len(fields) == 0 || fields[0] != "D" {
			continue
		}
		in, _ := os.ReadFile(filepath.Join(task, "wchan")) // empty where it is not shown
		where[string(in)]++
	}
	var text []string
	for in, n := range where {
		text = append(text, fmt.Sprintf("%d threads in uninterruptible sleep in %q", n, in))
	}
	if len(text) == 0 {
		return ""
	}
	slices.Sort(text)
	return "; " + strings.Join(text, ", ")
}
