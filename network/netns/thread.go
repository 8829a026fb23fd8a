package netns

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Do runs fn inside the network namespace that is pinned at path, on a thread of
// its own, and returns fn's error. Goroutines that fn starts run outside. Sockets
// and netlink handles that fn opens stay inside the namespace, and keep it alive
// until they are closed. The error is of class NotFound if there is no file at
// path. Safe for concurrent use; each call costs a thread.
func Do(path string, fn func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("opening network namespace %s: it is gone: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return throwAway(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", path, err)
		}
		return fn()
	})
}

// throwAway runs fn on a thread that nothing else will run on, and waits for fn.
// The thread counts as poisoned from then on, since fn changes its namespaces:
// its goroutine ends without unlocking, which makes the runtime destroy it.
func throwAway(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("running on a thread of its own: the function did not return")
		defer func() { done <- err }() // also when fn ends its goroutine, as a failing test does
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			err = fn()
			return
		}
		// The main thread cannot be destroyed. While we hold it, nobody else gets it.
		err = throwAway(fn)
		runtime.UnlockOSThread()
	}()
	return <-done
}
