package logpump

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestLinesAreCutAsCRIWantsThem(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for name, test := range map[string]struct {
		output []string // as it comes
		want   string
	}{
		"whole lines":            {[]string{"a\nb\n"}, "T stdout F a\nT stdout F b\n"},
		"an empty line":          {[]string{"\n"}, "T stdout F \n"},
		"a line in pieces":       {[]string{"a", "b", "c\n"}, "T stdout F abc\n"},
		"no end":                 {[]string{"a\nb"}, "T stdout F a\nT stdout P b\n"},
		"nothing":                {nil, ""},
		"carriage returns":       {[]string{"a\r\n"}, "T stdout F a\r\n"},
		"just as long as may be": {[]string{long + "\n"}, "T stdout F " + long + "\n"},
		"one more":               {[]string{long + "y\n"}, "T stdout P " + long + "\nT stdout F y\n"},
		"two and a half":         {[]string{long + long, "z\n"}, "T stdout P " + long + "\nT stdout P " + long + "\nT stdout F z\n"},
		"long without an end":    {[]string{long + "y"}, "T stdout P " + long + "\nT stdout P y\n"},
		"after a long one":       {[]string{long + "y\nb\n"}, "T stdout P " + long + "\nT stdout F y\nT stdout F b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := lines{stream: "stdout"}
			var got []byte
			for _, output := range test.output {
				got = l.feed(got, []byte(output), []byte("T"))
			}
			got = l.end(got, []byte("T"))
			if string(got) != test.want {
				t.Errorf("got %.80q…, want %.80q…", got, test.want)
			}
		})
	}
}

// FuzzLines: however output comes, its lines are the same, none is too long, and
// nothing is lost.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb"), uint16(1))
	f.Add(bytes.Repeat([]byte("x"), 3*maxLine), uint16(maxLine))
	f.Fuzz(func(t *testing.T, output []byte, piece uint16) {
		l := lines{stream: "s"}
		var got []byte
		for rest := output; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			got = l.feed(got, rest[:n], []byte("T"))
			rest = rest[n:]
		}
		got = l.end(got, []byte("T"))
		whole := lines{stream: "s"}
		if want := whole.end(whole.feed(nil, output, []byte("T")), []byte("T")); !bytes.Equal(got, want) {
			t.Fatalf("in pieces %q, at once %q", got, want)
		}
		var back []byte
		for line := range bytes.Lines(got) {
			text := bytes.TrimSuffix(line[len("T s F "):], []byte("\n"))
			if len(text) > maxLine {
				t.Fatalf("a line has %d bytes", len(text))
			}
			back = append(back, text...)
			if line[len("T s ")] == tagFull {
				back = append(back, '\n')
			}
		}
		if !bytes.Equal(back, output) {
			t.Fatalf("got back %q of %q", back, output)
		}
	})
}

// running is a pump and the writing ends of its FIFOs.
type running struct {
	*Pump
	log            string
	stdout, stderr *os.File
}

// start starts a pump whose output the test writes.
func start(t *testing.T, cfg Config) *running {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	r := &running{log: cfg.LogPath}
	var err error
	if r.Pump, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"in", "out", "err"} {
			if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); err == nil {
				t.Errorf("FIFO %s is left", name)
			}
		}
	})
	r.stdout = openWriter(t, r.Files().Stdout)
	if !cfg.TTY {
		r.stderr = openWriter(t, r.Files().Stderr)
	}
	r.Run()
	return r
}

func openWriter(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// end ends the output and waits until it is in the log.
func (r *running) end(t *testing.T) {
	t.Helper()
	_ = r.stdout.Close()
	if r.stderr != nil {
		_ = r.stderr.Close()
	}
	<-r.Done()
}

// read reads a log without its times.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(line, " ")
		text.WriteString(rest)
	}
	return text.String()
}

func TestBothStreamsReachTheLogWithTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	p := start(t, Config{LogPath: path})
	before := time.Now()
	fmt.Fprintln(p.stdout, "out")
	fmt.Fprint(p.stderr, "err")
	p.end(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		at, err := time.Parse(time.RFC3339Nano, fields[0])
		if err != nil || at.Before(before.Truncate(0)) || at.After(time.Now()) {
			t.Errorf("line %q: time %v, %v", line, at, err)
		}
		if rest := strings.Join(fields[1:], " "); rest != "stdout F out" && rest != "stderr P err" {
			t.Errorf("line %q", line)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if c := p.Counters(); c.Lines != 2 || c.Bytes != uint64(len(b)) || c.DroppedLines != 0 {
		t.Errorf("counters %+v of %d bytes", c, len(b))
	}
}

func TestReopenGoesOnInANewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	p := start(t, Config{LogPath: path, TTY: true})
	watch := attach(t, p)
	fmt.Fprint(p.stdout, "one\ntw")
	watch.await(t, "one\ntw")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := p.Reopen(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "" {
		t.Errorf("the new log begins with %q", got)
	}
	fmt.Fprint(p.stdout, "o\n")
	p.end(t)
	if old, now := read(t, path+".1"), read(t, path); old != "stdout F one\n" || now != "stdout F two\n" {
		t.Errorf("old %q, new %q", old, now)
	}
}

func TestFailedReopenChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.log")
	p := start(t, Config{LogPath: path, TTY: true})
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := p.Reopen(); err == nil {
		t.Error("Reopen() in a directory that is gone gives no error")
	}
	fmt.Fprintln(p.stdout, "goes on")
	p.end(t)
	if got := read(t, filepath.Join(dir+"-away", "0.log")); got != "stdout F goes on\n" {
		t.Errorf("log %q", got)
	}
}

func TestWithoutALogThereIsNoneToReopen(t *testing.T) {
	p := start(t, Config{})
	if err := p.Reopen(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Reopen() = %v, want failed precondition", err)
	}
	fmt.Fprintln(p.stdout, "into the void")
	p.end(t)
}

// follower reads what an attached client gets.
type follower struct {
	out *os.File
	got []byte
}

// attach makes a FIFO, opens it and attaches it to the standard output.
func attach(t *testing.T, p *running) *follower {
	t.Helper()
	path := filepath.Join(t.TempDir(), "client")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := p.Attach(path, ""); err != nil {
		t.Fatal(err)
	}
	return &follower{out: f}
}

// await reads until text has come.
func (f *follower) await(t *testing.T, text string) {
	t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(string(f.got), text) {
		n, err := f.out.Read(buf)
		if err != nil {
			t.Fatalf("%q came, then %v", f.got, err)
		}
		f.got = append(f.got, buf[:n]...)
	}
}

func TestClientsGetOutputFromNowOnUntilItsEnd(t *testing.T) {
	p := start(t, Config{})
	first := attach(t, p)
	fmt.Fprint(p.stdout, "one")
	first.await(t, "one")
	second := attach(t, p)
	fmt.Fprint(p.stdout, "two")
	p.end(t)
	for client, want := range map[*follower]string{first: "two", second: "two"} {
		rest, err := io.ReadAll(client.out)
		if err != nil || string(rest) != want {
			t.Errorf("client got %q, %v, want %q", rest, err, want)
		}
	}
	late := attach(t, p)
	if rest, err := io.ReadAll(late.out); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

func TestClientsThatHaveGoneAreForgottenThoughNothingIsSaid(t *testing.T) {
	p := start(t, Config{TTY: true})
	for range 5 {
		_ = attach(t, p).out.Close()
	}
	stays := attach(t, p)
	a := &p.streams[0].audience
	a.mu.Lock()
	n := len(a.clients)
	a.mu.Unlock()
	if n != 1 {
		t.Errorf("%d clients, want the one that stays", n)
	}
	fmt.Fprint(p.stdout, "hello")
	p.end(t)
	if rest, err := io.ReadAll(stays.out); err != nil || string(rest) != "hello" {
		t.Errorf("it got %q, %v", rest, err)
	}
}

func TestAClientThatDoesNotReadIsDroppedAndOthersAreNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	p := start(t, Config{LogPath: path})
	asleep, gone, awake := attach(t, p), attach(t, p), attach(t, p)
	_ = gone.out.Close()
	done := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(awake.out)
		done <- all
	}()
	const lines = 20_000
	for i := range lines {
		fmt.Fprintf(p.stdout, "%09d\n", i)
	}
	p.end(t)
	if all := <-done; len(all) != 10*lines {
		t.Errorf("the reader got %d bytes of %d", len(all), 10*lines)
	}
	if c := p.Counters(); c.Lines != lines || c.DroppedClients != 1 {
		t.Errorf("counters %+v", c)
	}
	if rest, err := io.ReadAll(asleep.out); err != nil || len(rest) == 0 {
		t.Errorf("what it had not read: %d bytes, %v", len(rest), err)
	}
}

func TestCloseEndsReadingThoughSomebodyHoldsTheOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	p := start(t, Config{LogPath: path, TTY: true})
	watch := attach(t, p)
	fmt.Fprint(p.stdout, "unfinished")
	watch.await(t, "unfinished")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-p.Done()
	_ = p.stdout.Close()
	if got := read(t, path); got != "stdout P unfinished\n" {
		t.Errorf("log %q", got)
	}
}

func TestOpenWithoutTheLogsDirectoryLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(Config{Dir: dir, LogPath: filepath.Join(dir, "no", "0.log")}); err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
