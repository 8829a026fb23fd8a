package logpump

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is how much is read at once.
const chunk = 16 << 10

// Config says what a pump serves.
type Config struct {
	Dir     string // exists, of this container only
	LogPath string // "" writes no log
	Stdin   bool   // there is a FIFO for input
	TTY     bool   // all output is on stdout
}

// Files are the paths of a pump's FIFOs; "" where there is none.
type Files struct{ Stdin, Stdout, Stderr string }

// Pump reads the output of one container. Its methods may be called from any
// goroutine; Close once.
type Pump struct {
	files   Files
	log     *logFile
	streams []*stream      // stdout, then stderr
	buffers sync.Pool      // of *[]byte; empty while nothing comes
	reading sync.WaitGroup // the streams' goroutines
	done    chan struct{}
}

// stream is one stream of output.
type stream struct {
	lines    lines
	file     *os.File // the FIFO's reading end
	audience audience
}

// Open opens the log and makes the FIFOs; those of an earlier attempt are
// replaced. Nothing is read before [Pump.Run]. On an error nothing is left but the log.
func Open(cfg Config) (*Pump, error) {
	p := &Pump{done: make(chan struct{})}
	p.buffers.New = func() any { b := make([]byte, chunk); return &b }
	if err := p.open(cfg); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

func (p *Pump) open(cfg Config) (err error) {
	if p.log, err = openLog(cfg.LogPath); err != nil {
		return err
	}
	if cfg.Stdin {
		p.files.Stdin = StdinPath(cfg.Dir)
		if err := makeFIFO(p.files.Stdin); err != nil {
			return err
		}
	}
	p.files.Stdout = filepath.Join(cfg.Dir, "out")
	if err := p.addStream("stdout", p.files.Stdout); err != nil || cfg.TTY {
		return err
	}
	p.files.Stderr = filepath.Join(cfg.Dir, "err")
	return p.addStream("stderr", p.files.Stderr)
}

// StdinPath is the FIFO in Config.Dir that the container's input comes from.
func StdinPath(dir string) string { return filepath.Join(dir, "in") }

// addStream makes a FIFO and opens it for reading.
func (p *Pump) addStream(name, path string) error {
	if err := makeFIFO(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", name, err)
	}
	p.streams = append(p.streams, &stream{lines: lines{stream: name}, file: f})
	return nil
}

func makeFIFO(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making FIFO: %w", err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("making FIFO %s: %w", path, err)
	}
	return nil
}

// Files tells where the container's streams are to be connected.
func (p *Pump) Files() Files { return p.files }

// Run begins to read. The writing ends are open by then: a FIFO without a writer
// is at its end. It is called once, or never.
func (p *Pump) Run() {
	for _, s := range p.streams {
		p.reading.Go(func() { p.read(s) })
	}
	go func() {
		p.reading.Wait()
		close(p.done)
	}()
}

// Done is closed when the output has ended and is in the log.
func (p *Pump) Done() <-chan struct{} { return p.done }

// read reads one stream to its end.
func (p *Pump) read(s *stream) {
	defer func() { _ = s.audience.end() }()
	conn, err := s.file.SyscallConn()
	for more := true; more && err == nil; {
		more = false
		err = conn.Read(func(fd uintptr) (came bool) {
			came, more = p.take(s, int(fd))
			return came
		})
	}
	p.log.write(s.lines.end(nil, stamp()))
}

// take reads what there is. It says whether something came, the end included,
// and whether more may come. The buffer is held only so long.
func (p *Pump) take(s *stream, fd int) (came, more bool) {
	buffer := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buffer)
	n, err := unix.Read(fd, *buffer)
	switch {
	case err == unix.EAGAIN:
		return false, true
	case err == unix.EINTR:
		return true, true
	case err != nil || n == 0:
		return true, false
	}
	p.hand(s, (*buffer)[:n])
	return true, true
}

// hand gives output to the log and to the clients.
func (p *Pump) hand(s *stream, output []byte) {
	if p.log.path != "" {
		batch := p.buffers.Get().(*[]byte)
		defer p.buffers.Put(batch)
		made := s.lines.feed((*batch)[:0], output, stamp())
		p.log.write(made)
		if cap(made) <= 4*chunk {
			*batch = made[:cap(made)]
		}
	}
	for range s.audience.send(output) {
		p.log.clientDropped()
	}
}

// stamp is the time as log lines have it.
func stamp() []byte {
	return time.Now().UTC().AppendFormat(make([]byte, 0, len(time.RFC3339Nano)), time.RFC3339Nano)
}

// Reopen makes the log anew at its path, where it is on return. On an error the
// old one goes on. errdefs.ErrFailedPrecondition if there is no log.
func (p *Pump) Reopen() error { return p.log.reopen() }

// Attach sends the output from now on to the FIFOs at these paths, whose reading
// ends are open; "" is none. Their writing ends are closed when the output ends.
func (p *Pump) Attach(stdout, stderr string) error {
	paths := []string{stdout, stderr}
	for i, s := range p.streams {
		if paths[i] == "" {
			continue
		}
		if err := s.audience.add(paths[i]); err != nil {
			return err
		}
	}
	return nil
}

// Counters tells what became of the output so far.
func (p *Pump) Counters() Counters { return p.log.count() }

// Close ends reading, whatever may still come, and removes the FIFOs.
func (p *Pump) Close() error {
	err := p.release()
	p.reading.Wait()
	return errors.Join(err, p.log.close())
}

// release gives back the FIFOs.
func (p *Pump) release() error {
	var errs []error
	for _, s := range p.streams {
		if err := s.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, path := range []string{p.files.Stdin, p.files.Stdout, p.files.Stderr} {
		if path == "" {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing FIFO: %w", err))
		}
	}
	return errors.Join(errs...)
}
