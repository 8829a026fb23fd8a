package logpump

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel tells of changes to the counts at most once in 10 ms, and the count
// of kills may be the second change. So after each we look again for a while.
const (
	lookAgainFor   = 20 * time.Millisecond
	lookAgainEvery = 2 * time.Millisecond
)

// OOMWatch reads the kernel's count of OOM kills in a container's cgroup as it
// changes. The end of the container is too late: systemd removes the cgroup, and
// the count with it, as soon as it is empty.
type OOMWatch struct {
	counts *os.File // nil where there is no memory controller
	killed atomic.Bool
	done   chan struct{} // closed when nothing reads any more
}

// WatchOOM begins to watch the cgroup of process pid, and notes it in the
// container's directory. The caller ends it by [OOMWatch.End].
func WatchOOM(dir string, pid int) (*OOMWatch, error) {
	lines, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("finding the cgroup of process %d: %w", pid, err)
	}
	w := &OOMWatch{done: make(chan struct{})}
	for _, path := range oomFiles(string(lines)) {
		if w.counts, err = os.Open(path); err != nil {
			continue
		}
		go w.run()
		if err := os.WriteFile(filepath.Join(dir, "oom"), []byte(path), 0o600); err != nil {
			_, _ = w.End()
			return nil, fmt.Errorf("noting the cgroup of process %d: %w", pid, err)
		}
		return w, nil
	}
	close(w.done) // no memory controller, so nothing to be killed by
	return w, nil
}

// End ends the watch and says whether something in the cgroup was killed for want
// of memory. It is called once.
func (w *OOMWatch) End() (killed bool, err error) {
	if w.counts == nil {
		return false, nil
	}
	err = w.look() // where the kernel tells of no changes, this is the only look
	err = errors.Join(err, w.counts.Close())
	<-w.done
	return w.killed.Load(), err
}

// run looks after each change until there is no more to be seen, or End.
func (w *OOMWatch) run() {
	defer close(w.done)
	conn, err := w.counts.SyscallConn()
	if err != nil {
		return
	}
	var until time.Time // look again till then
	for !w.killed.Load() {
		var next time.Time // wait for as long as it takes
		if now := time.Now(); now.Before(until) {
			next = now.Add(lookAgainEvery)
		}
		if w.counts.SetReadDeadline(next) != nil {
			return
		}
		switch err := w.wait(conn); {
		case err == nil:
			until = time.Now().Add(lookAgainFor)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return
		}
	}
}

// wait looks, and returns at the next change or the deadline. A change between the
// look and the wait is not missed.
func (w *OOMWatch) wait(conn syscall.RawConn) error {
	looks := 0
	var lookErr error
	err := conn.Read(func(fd uintptr) bool {
		looks++
		lookErr = w.lookAt(func(b []byte) (int, error) { return unix.Pread(int(fd), b, 0) })
		return looks > 1 || lookErr != nil || w.killed.Load()
	})
	return errors.Join(err, lookErr)
}

func (w *OOMWatch) look() error {
	return w.lookAt(func(b []byte) (int, error) { return w.counts.ReadAt(b, 0) })
}

// lookAt reads the counts. A cgroup that is gone tells nothing new.
func (w *OOMWatch) lookAt(read func([]byte) (int, error)) error {
	var b [512]byte // the files have 150 bytes
	n, err := read(b[:])
	if n <= 0 {
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		return ignoreMissing(err)
	}
	killed, err := oomKilled(string(b[:n]))
	if killed {
		w.killed.Store(true)
	}
	return err
}

// oomKilled says whether the counts of a cgroup have an OOM kill.
func oomKilled(counts string) (bool, error) {
	for line := range strings.Lines(counts) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			return n > 0, err
		}
	}
	return false, nil
}
