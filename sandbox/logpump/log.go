package logpump

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
)

// Counters are what became of a container's output since it started.
type Counters struct {
	Lines          uint64 `json:"lines"`          // written to the log
	Bytes          uint64 `json:"bytes"`          // the same
	DroppedLines   uint64 `json:"droppedLines"`   // could not be written
	DroppedClients uint64 `json:"droppedClients"` // were attached and did not read
}

// logFile is a container's log. Without a path it takes and drops everything.
type logFile struct {
	path string

	mu       sync.Mutex // guards the rest, and orders writes of both streams
	file     *os.File
	torn     bool // the last line in the file has no end
	counters Counters
}

// openLog opens the log for appending, and creates it.
func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	if path == "" {
		return l, nil
	}
	var err error
	if l.file, err = openForAppend(path); err != nil {
		return nil, err
	}
	return l, nil
}

func openForAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("opening log: %w", err)
	}
	return f, nil
}

// write appends whole log lines, all or as many as the disk takes.
func (l *logFile) write(batch []byte) {
	if l.path == "" || len(batch) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		l.counters.DroppedLines += countLines(batch)
		return
	}
	if l.torn && !l.mendLocked() {
		l.counters.DroppedLines += countLines(batch)
		return
	}
	n, err := l.file.Write(batch)
	if err != nil {
		n = l.untearLocked(batch[:n])
	}
	l.counters.Bytes += uint64(n)
	l.counters.Lines += countLines(batch[:n])
	l.counters.DroppedLines += countLines(batch[n:])
}

// untearLocked takes back the part of a line at the end of what was written and
// returns the length of the whole lines.
func (l *logFile) untearLocked(written []byte) int {
	whole := bytes.LastIndexByte(written, '\n') + 1
	part := len(written) - whole
	if part == 0 {
		return whole
	}
	st, err := l.file.Stat()
	if err == nil {
		err = l.file.Truncate(st.Size() - int64(part))
	}
	l.torn = err != nil
	return whole
}

// mendLocked ends a line that could not be taken back.
func (l *logFile) mendLocked() bool {
	if _, err := l.file.Write([]byte{'\n'}); err != nil {
		return false
	}
	l.torn = false
	return true
}

// reopen goes on in a new file at the same path, which exists on return.
func (l *logFile) reopen() error {
	if l.path == "" {
		return fmt.Errorf("reopening log: the container has none: %w", errdefs.ErrFailedPrecondition)
	}
	next, err := openForAppend(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.file
	l.file, l.torn = next, false
	l.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.Close()
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// clientDropped counts a client that did not read.
func (l *logFile) clientDropped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counters.DroppedClients++
}

func (l *logFile) count() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counters
}

func countLines(p []byte) uint64 { return uint64(bytes.Count(p, []byte{'\n'})) }
