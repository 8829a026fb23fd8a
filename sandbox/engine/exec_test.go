package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crib-runtime/crib/sandbox/container"
)

// withContainer runs a test with a container that waits.
func withContainer(t *testing.T, test func(l *lab, e *Engine, id string)) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		c := l.launch("host", "wait")
		l.runContainer(e, c)
		l.awaitLog(c.LogPath, "stdout F ready")
		test(l, e, c.ID)
		if left, err := os.ReadDir(filepath.Join(l.cfg.State, execDir)); err != nil || len(left) != 0 {
			l.Errorf("FIFOs left: %v, %v", left, err)
		}
		l.removeContainer(e, c.ID)
	})
}

func TestExecHasStreamsAndAnExitCode(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		var out, errs strings.Builder
		code, err := e.Exec(l.Context(), id, payload("complain", "oh\n"), container.Streams{Stdout: &out, Stderr: &errs})
		if err != nil || code != 3 || out.String() != "" || errs.String() != "oh\n" {
			l.Errorf("Exec() = %d, %v; %q and %q", code, err, out.String(), errs.String())
		}
		out.Reset()
		in := strings.NewReader(strings.Repeat("0123456789", 100_000))
		code, err = e.Exec(l.Context(), id, payload("cat"), container.Streams{Stdin: in, Stdout: &out})
		if err != nil || code != 0 || out.Len() != 1_000_004 || !strings.HasSuffix(out.String(), "89end\n") {
			l.Errorf("Exec() = %d, %v; %d bytes", code, err, out.Len())
		}
		if code, err = e.Exec(l.Context(), id, payload("exit", "9"), container.Streams{}); err != nil || code != 9 {
			l.Errorf("Exec() without streams = %d, %v", code, err)
		}
	})
}

func TestExecOfAProgramThatIsNotThereNamesIt(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		p := payload()
		p.Args = []string{"/no-such-program"}
		if _, err := e.Exec(l.Context(), id, p, container.Streams{}); err == nil || !strings.Contains(err.Error(), "/no-such-program") {
			l.Errorf("Exec() = %v", err)
		}
		if _, err := e.Exec(l.Context(), "nobody", p, container.Streams{}); err == nil {
			l.Error("Exec() in a container that is not there gives no error")
		}
	})
}

func TestExecOnATerminalFollowsItsSize(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		ctx, cancel := context.WithCancel(l.Context())
		defer cancel()
		sizes, out := make(chan container.Size, 1), newOutput()
		in, input := io.Pipe()
		defer func() { l.must(input.Close()) }()
		done := make(chan error, 1)
		go func() {
			_, err := e.Exec(ctx, id, payload("size"), container.Streams{Stdin: in, Stdout: out, TTY: true, Resize: sizes})
			done <- err
		}()
		out.await(l, "x")
		sizes <- container.Size{Width: 80, Height: 24}
		out.await(l, "80x24\r\n")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.Errorf("Exec() = %v", err)
		}
	})
}

func TestEndOfTheContextKillsTheWholeTree(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		mark := "mark-" + l.pod[:16]
		ctx, cancel := context.WithCancel(l.Context())
		out := newOutput()
		done := make(chan error, 1)
		go func() {
			_, err := e.Exec(ctx, id, payload("parent", "stay", mark), container.Streams{Stdout: out, Stderr: out})
			done <- err
		}()
		out.await(l, "marked")
		if len(processes(l, mark)) == 0 {
			l.Error("no process bears the mark")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.Errorf("Exec() = %v", err)
		}
		for _, pid := range processes(l, mark) {
			l.awaitEnd(pid) // killed, but maybe not yet gone
		}
	})
}

func TestDeadlineIsTheErrorOfAnExecThatTakesTooLong(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		ctx, cancel := context.WithTimeout(l.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := e.Exec(ctx, id, payload("wait"), container.Streams{}); !errors.Is(err, context.DeadlineExceeded) {
			l.Errorf("Exec() = %v", err)
		}
	})
}

func TestChildThatHoldsTheOutputDoesNotHoldTheExec(t *testing.T) {
	withContainer(t, func(l *lab, e *Engine, id string) {
		mark := "mark-" + l.pod[:16]
		ctx, cancel := context.WithTimeout(l.Context(), patience)
		defer cancel()
		out := newOutput()
		code, err := e.Exec(ctx, id, payload("parent", "go", mark), container.Streams{Stdout: out, Stderr: out})
		if err != nil || code != 0 || !strings.Contains(out.String(), "marked") {
			l.Errorf("Exec() = %d, %v; %q", code, err, out)
		}
		if len(processes(l, mark)) == 0 {
			l.Error("the child was killed")
		}
	})
}

func TestManyExecsAtOnceLeaveNothing(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("host", "wait")
	l.runContainer(e, c)
	l.awaitLog(c.LogPath, "stdout F ready")
	burst := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				var out strings.Builder
				code, err := e.Exec(t.Context(), c.ID, payload("say", fmt.Sprint(i)), container.Streams{Stdout: &out})
				if err != nil || code != 0 || out.String() != fmt.Sprint(i) {
					t.Errorf("exec %d: %d, %v, %q", i, code, err, out.String())
				}
			})
		}
		all.Wait()
	}
	burst(2) // what is opened once
	shim := l.podShims()[0]
	goroutines, ours, theirs := runtime.NumGoroutine(), openFiles(l, os.Getpid()), openFiles(l, shim)
	burst(200)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for runtime.NumGoroutine() > goroutines || openFiles(l, shim) > theirs {
		if ctx.Err() != nil {
			t.Errorf("goroutines %d, then %d; descriptors of the shim %d, then %d",
				goroutines, runtime.NumGoroutine(), theirs, openFiles(l, shim))
			break
		}
		runtime.Gosched()
	}
	if now := openFiles(l, os.Getpid()); now > ours {
		t.Errorf("descriptors %d, then %d", ours, now)
	}
	l.removeContainer(e, c.ID)
}
