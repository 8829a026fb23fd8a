package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows on a terminal how much has passed; elsewhere it says nothing.
type progress struct {
	terminal io.Writer // nil if there is none
	verb     string
	bytes    uint64
	shown    time.Time
}

func newProgress(w io.Writer, verb string) *progress {
	p := &progress{verb: verb}
	if isTerminal(w) {
		p.terminal = w
	}
	return p
}

// Write counts what passes. It never fails: it is not what the work is about.
func (p *progress) Write(b []byte) (int, error) {
	p.bytes += uint64(len(b))
	if now := time.Now(); now.Sub(p.shown) > 100*time.Millisecond {
		p.shown = now
		p.show("\r")
	}
	return len(b), nil
}

// end leaves the last figure on a line of its own.
func (p *progress) end() {
	if p.bytes > 0 {
		p.show("\n")
	}
}

func (p *progress) show(after string) {
	if p.terminal != nil {
		_, _ = fmt.Fprintf(p.terminal, "\r%s %s%s", p.verb, size(p.bytes), after)
	}
}

// isTerminal says whether somebody sees what is written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
