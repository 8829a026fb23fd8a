package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// settle is how long changes are left to become complete.
	settle = 200 * time.Millisecond
	// full is the time between looks at everything, for what sends no message.
	full = 2 * time.Minute
	// share is which part of the time looks may take: one in so many.
	share = 20
	// rest is the longest pause that follows from it.
	rest = 2 * time.Second
	// retry is the time after which a look that went wrong, or a watch that ended,
	// is begun again.
	retry = 5 * time.Second
)

// alarm collects what is to be looked at.
type alarm struct {
	mu      sync.Mutex // guards pending
	pending *scope
	bell    chan struct{} // holds a token while something is pending
}

func newAlarm() alarm { return alarm{pending: &scope{}, bell: make(chan struct{}, 1)} }

// ring asks for a look. It does not wait.
func (a *alarm) ring(s scope) {
	a.mu.Lock()
	a.pending.add(s)
	a.mu.Unlock()
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

// take returns what is to be looked at.
func (a *alarm) take() scope {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := *a.pending
	a.pending = &scope{}
	return s
}

// reconciling looks when it is asked to, at everything now and then, and again
// for what was held back, until ctx ends.
func (n *Network) reconciling(ctx context.Context) {
	tick := time.NewTicker(full)
	defer tick.Stop()
	later := time.NewTimer(full)
	defer later.Stop()
	n.alarm.ring(everything())
	held, pause := scope{}, settle
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.alarm.ring(everything())
			continue
		case <-later.C:
			n.alarm.ring(held)
			held = scope{}
			continue
		case <-n.alarm.bell:
		}
		if !waited(ctx, pause) {
			return
		}
		s, start := n.alarm.take(), time.Now()
		if again := n.pass(ctx, s); !again.IsZero() {
			held.add(s)
			later.Reset(time.Until(again))
		}
		pause = min(rest, max(settle, share*time.Since(start)))
	}
}

// waited waits, and reports whether ctx has not ended meanwhile.
func waited(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// pass is one look, with what belongs to it. It returns when to come again.
func (n *Network) pass(ctx context.Context, s scope) (again time.Time) {
	var rangesErr error
	if s.ranges {
		rangesErr = n.apply(ctx)
	}
	again, err := n.reconcile(ctx, s)
	err = errors.Join(rangesErr, err)
	if ctx.Err() == nil && n.mem.isNews(err) {
		n.cfg.Log.Warn("repairing network", "network", n.cfg.Name, "error", err)
	}
	if err != nil && again.IsZero() {
		again = time.Now().Add(retry)
	}
	if s.files || s.all {
		n.allowFreed()
	}
	return again
}

// watching runs a watch, and begins it again after an error, until ctx ends. What
// was missed meanwhile is looked for.
func (n *Network) watching(ctx context.Context, what string, watch func(context.Context) error) {
	for logged := ""; ; {
		err := watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != logged {
			n.cfg.Log.Warn("a watch for changes ended; it is begun again, and all is looked at now and then anyway",
				"network", n.cfg.Name, "of", what, "error", err)
			logged = text
		}
		if !waited(ctx, retry) {
			return
		}
		n.alarm.ring(everything())
	}
}

// watchRules listens for changes of the firewall.
func (n *Network) watchRules(ctx context.Context) error {
	return n.firewall.Watch(ctx, func() { n.alarm.ring(scope{table: true}) })
}

// watchFiles listens for changes in host-local's directory. Those of addresses
// that no living pod has are of no interest, except that others give them up.
func (n *Network) watchFiles(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(n.cfg.Dir); err != nil {
		return fmt.Errorf("watching %s: %w", n.cfg.Dir, err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			n.alarm.ring(scope{files: true})
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
		case e := <-w.Events:
			if e.Name == n.cfg.Dir {
				return fmt.Errorf("watching %s: it is gone", n.cfg.Dir)
			}
			addr, err := netip.ParseAddr(filepath.Base(e.Name))
			if err == nil && e.Op != fsnotify.Chmod && n.mem.minds(addr) {
				n.alarm.ring(scope{files: true})
			}
		}
	}
}

// watchPins listens for changes of mounts.
func (n *Network) watchPins(ctx context.Context) error {
	mounts, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening list of mounts: %w", err)
	}
	defer func() { _ = unix.Close(mounts) }()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("making an event: %w", err)
	}
	defer func() { _ = unix.Close(stop) }()
	ended := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		_, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !cancel() {
			<-ended // before the descriptor is another's
		}
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(mounts), Events: unix.POLLPRI}, {Fd: int32(stop), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for changes of mounts: %w", err)
		default:
			n.alarm.ring(scope{pins: true})
			if !waited(ctx, settle) { // mounts come in great numbers
				return nil
			}
		}
	}
}
