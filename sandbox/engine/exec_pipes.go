package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/container"
)

// handOver bounds the wait for the caller's writers when all else has ended.
const handOver = time.Second

// pipes are our ends of FIFOs of one process's streams, in a directory of their
// own. Once the shim has opened them, their names are not needed any more.
type pipes struct {
	dir            string
	stdin          *os.File // writing end; nil for none
	stdout, stderr *os.File // reading ends; stderr is nil with a terminal
}

// execDir has the directories of pipes whose names are still needed.
const execDir = "x"

// makePipes makes FIFOs for output.
func makePipes(state string, tty bool) (p *pipes, err error) {
	parent := filepath.Join(state, execDir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	p = &pipes{}
	if p.dir, err = os.MkdirTemp(parent, ""); err != nil {
		return nil, err
	}
	p.stdout, err = p.make("out", os.O_RDONLY)
	if err == nil && !tty {
		p.stderr, err = p.make("err", os.O_RDONLY)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// make makes a FIFO and opens our end, which does not wait for the other one.
func (p *pipes) make(name string, mode int) (*os.File, error) {
	if err := unix.Mkfifo(p.path(name), 0o600); err != nil {
		return nil, fmt.Errorf("making FIFO %s: %w", p.path(name), err)
	}
	return os.OpenFile(p.path(name), mode|syscall.O_NONBLOCK, 0)
}

func (p *pipes) path(name string) string { return filepath.Join(p.dir, name) }

// errPath is the path of the errors' FIFO, "" if there is none.
func (p *pipes) errPath() string {
	if p.stderr == nil {
		return ""
	}
	return p.path("err")
}

// unlink removes the names; what is open stays. What it leaves is in nobody's way
// and removed at the next Open.
func (p *pipes) unlink() { _ = os.RemoveAll(p.dir) }

// close closes what is open and removes the names. It is idempotent.
func (p *pipes) close() error {
	var errs []error
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f == nil {
			continue
		}
		if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// flow copies between pipes and a caller's streams.
type flow struct {
	inputEnded  chan struct{} // closed when the caller's input has ended; nil without one
	outputEnded chan struct{} // closed when both outputs have

	bytes   atomic.Int64 // of output so far
	writing atomic.Int32 // writers of the caller that are at work
}

// startFlow starts to copy. Goroutines end with the pipes; the one for the input
// also needs the end of the caller's Read.
func startFlow(p *pipes, s container.Streams) *flow {
	f := &flow{outputEnded: make(chan struct{})}
	var outputs sync.WaitGroup
	outputs.Go(func() { f.copyOut(s.Stdout, p.stdout) })
	if p.stderr != nil {
		outputs.Go(func() { f.copyOut(s.Stderr, p.stderr) })
	}
	go func() {
		outputs.Wait()
		close(f.outputEnded)
	}()
	if s.Stdin == nil || p.stdin == nil {
		return f
	}
	f.inputEnded = make(chan struct{})
	go func() {
		defer close(f.inputEnded)
		_, _ = io.Copy(struct{ io.Writer }{p.stdin}, s.Stdin) // either side has gone: the same end
		_ = p.stdin.Close()
	}()
	return f
}

// copyOut copies one output to its end. A writer that fails is left out from then
// on, so that the process does not wait for a client that has gone.
func (f *flow) copyOut(w io.Writer, r *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		f.bytes.Add(int64(n))
		if n > 0 && w != nil {
			f.writing.Add(1)
			if _, err := w.Write(buf[:n]); err != nil {
				w = nil
			}
			f.writing.Add(-1)
		}
		if err != nil {
			return
		}
	}
}

// close closes the pipes and waits for the copying to end, though not for long
// for a Write of the caller's.
func (f *flow) close(p *pipes) error {
	err := p.close()
	late := time.NewTimer(handOver)
	defer late.Stop()
	select {
	case <-f.outputEnded:
	case <-late.C:
	}
	return err
}

// Bounds of the output of a process that has ended, while a child holds it open.
const (
	drainIdle  = time.Second
	drainBytes = 256 << 10 // more than pipe, FIFO and buffers hold of the process's own
	drainTick  = 50 * time.Millisecond
)

// drain waits for the end of the output of a process that has ended. If a child
// holds it open, that is until nothing has come for a second, or for a second if
// it goes on and on. A slow writer of the caller's gets all the time it needs.
func (f *flow) drain(done <-chan struct{}) {
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	start, before := time.Now(), f.bytes.Load()
	seen, since := before, start
	for {
		select {
		case <-f.outputEnded:
			return
		case <-done:
			return
		case now := <-tick.C:
			if n := f.bytes.Load(); n != seen || f.writing.Load() > 0 {
				seen, since = n, now
			}
			if now.Sub(since) >= drainIdle || now.Sub(start) >= drainIdle && seen-before > drainBytes {
				return
			}
		}
	}
}
