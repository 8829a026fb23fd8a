package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox/container"
)

func TestOutputIsLoggedByItsStream(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		long := strings.Repeat("x", 16<<10)
		for name, test := range map[string]struct {
			args []string
			tty  bool
			want []string
		}{
			"out":  {[]string{"say", "one\ntwo\n", "thr", "ee"}, false, []string{"stdout F one", "stdout F two", "stdout P three"}},
			"err":  {[]string{"complain", "oh\n"}, false, []string{"stderr F oh"}},
			"long": {[]string{"fill", "20000", "\n"}, false, []string{"stdout P " + long, "stdout F " + long[:20000-16<<10]}},
			"tty":  {[]string{"complain", "oh\n"}, true, []string{"stdout F oh\r"}},
		} {
			c := l.launch(name, test.args...)
			c.TTY = test.tty
			if _, lines := l.runToEnd(e, c); !slices.Equal(lines, test.want) {
				l.Errorf("%s: %.200q, want %.200q", name, lines, test.want)
			}
		}
	})
}

func TestWithoutALogPathNothingIsLogged(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("quiet", "say", "one\n")
	c.LogPath = ""
	l.runContainer(e, c)
	l.endOf(e, c.ID)
	l.removeContainer(e, c.ID)
}

func TestNothingIsLostWhileTheEngineIsClosed(t *testing.T) {
	l := newLab(t)
	e, err := Open(t.Context(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	const lines = 100_000 // 10 MB
	c := l.launch("chatty", "count", fmt.Sprint(lines))
	l.runContainer(e, c)
	l.must(e.Close())
	l.awaitFile(containerDir(l.cfg.State, c.ID) + "/exit.json")
	e = l.open()
	if ended := l.endOf(e, c.ID); ended.Code != 0 {
		t.Errorf("ended %+v", ended)
	}
	got := l.logLines(c.LogPath)
	if len(got) != lines {
		t.Fatalf("%d lines of %d", len(got), lines)
	}
	for i, line := range got {
		if want := fmt.Sprintf("stdout F %099d", i); line != want {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	l.removeContainer(e, c.ID)
}

func TestReopenedLogIsThereAtOnceAndNothingIsLost(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("rotated", "chat", "300")
	l.runContainer(e, c)
	l.awaitLog(c.LogPath, "stdout F 10")
	l.must(os.Rename(c.LogPath, c.LogPath+".1"))
	l.must(e.ReopenLog(t.Context(), c.ID))
	if _, err := os.Stat(c.LogPath); err != nil {
		t.Error(err)
	}
	l.endOf(e, c.ID)
	all := append(l.logLines(c.LogPath+".1"), l.logLines(c.LogPath)...)
	if len(all) != 300 {
		t.Errorf("%d lines of 300", len(all))
	}
	if n, err := e.LogCounters(t.Context(), c.ID); err != nil || n.Lines != 300 || n.DroppedLines != 0 {
		t.Errorf("LogCounters() = %+v, %v", n, err)
	}
	l.removeContainer(e, c.ID)
	if err := e.ReopenLog(t.Context(), c.ID); !errdefs.IsNotFound(err) {
		t.Errorf("ReopenLog() = %v, want not found", err)
	}
}

func TestFullDiskDropsLinesAndLoggingGoesOn(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "size=64k")
	t.Cleanup(func() { l.must(syscall.Unmount(dir, syscall.MNT_DETACH)) })
	ballast := filepath.Join(dir, "ballast")
	l.must(os.WriteFile(ballast, make([]byte, 40<<10), 0o600))

	e := l.open()
	c := l.launch("full", "cat")
	c.LogPath, c.Stdin = filepath.Join(dir, "0.log"), true
	l.runContainer(e, c)
	in, input := io.Pipe()
	out := newOutput()
	attached := make(chan error, 1)
	go func() { attached <- e.Attach(t.Context(), c.ID, container.Streams{Stdin: in, Stdout: out}) }()
	for i := range 600 {
		_, _ = fmt.Fprintf(input, "%099d\n", i)
	}
	out.await(l, fmt.Sprintf("%099d\n", 599))
	l.must(os.Remove(ballast))
	_, _ = fmt.Fprintln(input, "again")
	l.awaitLog(c.LogPath, "stdout F again")
	n, err := e.LogCounters(t.Context(), c.ID)
	l.must(err)
	lines := l.logLines(c.LogPath)
	if n.DroppedLines == 0 || n.Lines+n.DroppedLines != 601 || uint64(len(lines)) != n.Lines {
		t.Errorf("counters %+v of %d lines in the log", n, len(lines))
	}
	_ = input.Close()
	l.must(<-attached)
	l.removeContainer(e, c.ID)
}

func TestAttachedInputReachesTheProcessAndItsOutputTheClient(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e := l.open()
		c := l.launch("cat", "cat")
		c.Stdin, c.StdinOnce = true, true
		l.runContainer(e, c)
		var out, errs strings.Builder
		l.must(e.Attach(l.Context(), c.ID, container.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: &errs}))
		if out.String() != "hello\nend\n" || errs.String() != "" {
			l.Errorf("got %q and %q", out.String(), errs.String())
		}
		if ended := l.endOf(e, c.ID); ended.Code != 0 {
			l.Errorf("ended %+v", ended)
		}
		if lines := l.logLines(c.LogPath); !slices.Equal(lines, []string{"stdout F hello", "stdout F end"}) {
			l.Errorf("log %q", lines)
		}
		l.removeContainer(e, c.ID)
	})
}

func TestInputIsForManyClientsUnlessItIsOnce(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("cat", "cat")
	c.Stdin = true
	l.runContainer(e, c)
	for _, word := range []string{"one", "two"} {
		l.must(e.Attach(t.Context(), c.ID, container.Streams{Stdin: strings.NewReader(word + "\n"), Stdout: newOutput()}))
		l.awaitLog(c.LogPath, "stdout F "+word)
	}
	l.removeContainer(e, c.ID)
}

func TestAttachEndsWithItsContextAndTheContainerGoesOn(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("waits", "wait")
	pid := l.runContainer(e, c)
	before := openFiles(l, os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	attached := make(chan error, 1)
	in, input := io.Pipe()
	defer func() { l.must(input.Close()) }()
	go func() { attached <- e.Attach(ctx, c.ID, container.Streams{Stdin: in, Stdout: newOutput()}) }()
	cancel()
	if err := <-attached; !errors.Is(err, context.Canceled) {
		t.Errorf("Attach() = %v", err)
	}
	if after := openFiles(l, os.Getpid()); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if running, err := e.runningPid(t.Context(), c.ID); err != nil || int(running) != pid {
		t.Errorf("runningPid() = %d, %v", running, err)
	}
	l.removeContainer(e, c.ID)
	if err := e.Attach(t.Context(), c.ID, container.Streams{Stdout: newOutput()}); !errdefs.IsNotFound(err) {
		t.Errorf("Attach() to one that is gone = %v, want not found", err)
	}
}

func TestTerminalFollowsTheClientsSize(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c := l.launch("tty", "size")
	c.TTY, c.Stdin = true, true
	l.runContainer(e, c)
	l.awaitLog(c.LogPath, "stdout F 0x0\r")
	ctx, cancel := context.WithCancel(t.Context())
	sizes, out := make(chan container.Size), newOutput()
	attached := make(chan error, 1)
	go func() {
		attached <- e.Attach(ctx, c.ID, container.Streams{Stdout: out, TTY: true, Resize: sizes})
	}()
	sizes <- container.Size{Width: 80, Height: 24}
	out.await(l, "80x24\r\n")
	sizes <- container.Size{Width: 132, Height: 50}
	out.await(l, "132x50\r\n")
	cancel()
	if err := <-attached; !errors.Is(err, context.Canceled) {
		t.Errorf("Attach() = %v", err)
	}
	l.removeContainer(e, c.ID)
}
