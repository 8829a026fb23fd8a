package logpump

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the container may be held up, in a row, by a client that
// does not read; quick is a write that has not been.
const (
	patience = time.Second
	quick    = 10 * time.Millisecond
)

// audience are the clients that get a stream's output. The zero value has none.
type audience struct {
	mu      sync.Mutex // guards the rest
	clients []*listener
	ended   bool
}

// listener is one client: the writing end of its FIFO. It belongs to the
// goroutine that reads the stream.
type listener struct {
	file   *os.File
	waited time.Duration // since it was last quick
}

// add opens the client's FIFO. After the stream's end it is left alone: without
// a writer, its reader is at the end.
func (a *audience) add(path string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening the client's stream (does it read?): %w", err)
	}
	a.clients = append(a.presentLocked(), &listener{file: f})
	return nil
}

// presentLocked lets the clients go that have gone, which otherwise shows with the
// next output, and returns the others in a list of their own.
func (a *audience) presentLocked() []*listener {
	present := make([]*listener, 0, len(a.clients)+1) // send goes on with the old one
	for _, c := range a.clients {
		if c.gone() {
			_ = c.file.Close()
			continue
		}
		present = append(present, c)
	}
	return present
}

// gone says whether the reader has closed its end.
func (c *listener) gone() (gone bool) {
	conn, err := c.file.SyscallConn()
	if err != nil {
		return true
	}
	err = conn.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n == 1 && p[0].Revents&unix.POLLERR != 0
	})
	return gone || err != nil
}

// send hands p to every client and returns how many were dropped because they
// did not read. Those that have gone are not counted.
func (a *audience) send(p []byte) (dropped int) {
	a.mu.Lock()
	clients := a.clients
	a.mu.Unlock()
	for _, c := range clients {
		err := c.send(p)
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			dropped++
		}
		a.remove(c)
	}
	return dropped
}

// send writes p unless that takes too long.
func (c *listener) send(p []byte) error {
	start := time.Now()
	if err := c.file.SetWriteDeadline(start.Add(patience - c.waited)); err != nil {
		return err
	}
	if _, err := c.file.Write(p); err != nil {
		return err
	}
	if took := time.Since(start); took > quick {
		c.waited += took
	} else {
		c.waited = 0
	}
	return nil
}

// remove lets a client go; its reader then is at the end.
func (a *audience) remove(c *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := make([]*listener, 0, len(a.clients)) // send goes on with the old one
	for _, other := range a.clients {
		if other != c {
			kept = append(kept, other)
		}
	}
	a.clients = kept
	_ = c.file.Close()
}

// end lets all clients go, those that come later too.
func (a *audience) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, c := range a.clients {
		if err := c.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	a.clients, a.ended = nil, true
	return errors.Join(errs...)
}
