package engine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// graceInterval is less than the grace period after which the lock is slow again.
const graceInterval = 2 * time.Millisecond

// grace makes the kernel quick at moving processes between cgroups while
// containers are started. The OCI runtime writes a process to cgroup.procs, for
// which the kernel takes a lock that readers (fork, exit) hold without touching
// shared memory; the first writer for some milliseconds waits for an RCU grace
// period, 5 to 17 ms in which nobody computes. Who writes often does not wait. So
// the daemon moves itself to where it is already, which changes nothing, before
// and while the runtime gets there.
//
// It is a courtesy: where it does not work, starts are as slow as without.
type grace struct {
	log *slog.Logger

	mu     sync.Mutex // guards the rest
	users  int
	cancel context.CancelFunc
	done   chan struct{} // closed by the goroutine at its end
}

// begin starts writing, unless that goes on already; end, to be called once, ends
// what the last user leaves.
func (g *grace) begin() (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users++; g.users == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		g.cancel, g.done = cancel, make(chan struct{})
		go g.run(ctx, g.done)
	}
	return g.leave
}

func (g *grace) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users--; g.users == 0 {
		g.cancel()
		<-g.done // at most one write away
	}
}

// run writes until ctx ends or a write fails.
func (g *grace) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	// Looked for each time: somebody may have moved the daemon since.
	f, err := openOwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	if err != nil {
		g.log.Debug("containers start without a warm-up of the kernel's lock of cgroups", "error", err)
		return
	}
	defer func() { _ = f.Close() }()
	pid := []byte(strconv.Itoa(os.Getpid()))
	tick := time.NewTicker(graceInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := f.WriteAt(pid, 0); err != nil {
			g.log.Debug("containers start without a warm-up of the kernel's lock of cgroups", "error", err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// openOwnCgroup opens cgroup.procs of a cgroup that this process is in. Any
// hierarchy does: there is one lock for all.
func openOwnCgroup(self, root string) (*os.File, error) {
	text, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	err = os.ErrNotExist
	for line := range strings.Lines(string(text)) {
		// number:controllers:path; without controllers for version 2
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var f *os.File
		hierarchy := strings.TrimPrefix(parts[1], "name=")
		if f, err = os.OpenFile(filepath.Join(root, hierarchy, parts[2], "cgroup.procs"), os.O_WRONLY, 0); err == nil {
			return f, nil
		}
	}
	return nil, err
}
