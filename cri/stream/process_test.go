package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/net/websocket"

	"github.com/crib-runtime/crib/cri"
	"github.com/crib-runtime/crib/sandbox/container"
)

// cat writes what it reads, and the number of bytes to stderr.
func cat(_ context.Context, s container.Streams) (int32, error) {
	n, err := io.Copy(s.Stdout, s.Stdin)
	if s.Stderr != nil {
		fmt.Fprint(s.Stderr, n)
	}
	return 0, err
}

func exits(code int32) process {
	return func(context.Context, container.Streams) (int32, error) { return code, nil }
}

func TestExecPassesAllStreamsAndOutputFollowsTheEndOfInput(t *testing.T) {
	p := &processes{run: cat, cmd: make(chan []string, 1)}
	s, _ := serve(t, Config{Containers: p})
	r := exec(t, s, cri.Session{ContainerID: "c", Command: []string{"cat", "-"}, Stdin: true, Stdout: true, Stderr: true})
	text := strings.Repeat("0123456789", 100_000)
	go func() {
		_, _ = io.WriteString(r.stdin, text)
		_ = r.stdin.Close() // the process writes its last only then
	}()
	if got := read(t, r.stdout); got != text {
		t.Errorf("%d bytes came back of %d", len(got), len(text))
	}
	if got := read(t, r.stderr); got != fmt.Sprint(len(text)) {
		t.Errorf("stderr: got %q", got)
	}
	if got, cmd := r.status(t), <-p.cmd; got.code(t) != 0 || !slices.Equal(cmd, []string{"cat", "-"}) {
		t.Errorf("got %+v of %q", got, cmd)
	}
}

func TestExitCodesReachTheClient(t *testing.T) {
	for _, code := range []int32{0, 1, 7, 137, 255} {
		s, stop := serve(t, Config{Containers: &processes{run: exits(code)}})
		if got := exec(t, s, cri.Session{Stdout: true}).status(t); got.code(t) != int(code) {
			t.Errorf("%d: got %+v", code, got)
		}
		stop()
	}
}

func TestErrorsReachTheClientWithTheirText(t *testing.T) {
	fails := func(context.Context, container.Streams) (int32, error) { return 0, errors.New("no such file") }
	s, _ := serve(t, Config{Containers: &processes{run: fails}})
	if got := exec(t, s, cri.Session{Stdout: true}).status(t); got.Status != "Failure" || !strings.Contains(got.Message, "no such file") {
		t.Errorf("got %+v", got)
	}
}

func TestOnlyTheStreamsThatWereAskedForAreThere(t *testing.T) {
	for _, want := range []cri.Session{{Stdin: true}, {Stdout: true}, {Stderr: true}, {Stdin: true, Stdout: true, TTY: true}} {
		got := make(chan container.Streams, 1)
		s, stop := serve(t, Config{Containers: &processes{run: func(_ context.Context, s container.Streams) (int32, error) {
			got <- s
			return 0, nil
		}}})
		exec(t, s, want).status(t)
		streams := <-got
		if (streams.Stdin != nil) != want.Stdin || (streams.Stdout != nil) != want.Stdout || (streams.Stderr != nil) != want.Stderr || streams.TTY != want.TTY {
			t.Errorf("%+v: got %+v", want, streams)
		}
		stop()
	}
}

func TestSizesReachTheTerminal(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: func(_ context.Context, s container.Streams) (int32, error) {
		for size := range s.Resize {
			fmt.Fprintln(s.Stdout, size.Width, size.Height)
		}
		return 0, nil
	}}})
	r := exec(t, s, cri.Session{Stdin: true, Stdout: true, TTY: true})
	lines := bufio.NewScanner(r.stdout)
	for _, want := range []container.Size{{Width: 80, Height: 24}, {Width: 200, Height: 50}} {
		if err := json.NewEncoder(r.sizes).Encode(want); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || lines.Text() != fmt.Sprint(want.Width, " ", want.Height) {
			t.Errorf("%+v: got %q, %v", want, lines.Text(), lines.Err())
		}
	}
	_ = r.sizes.Close()
	if got := r.status(t); got.code(t) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestSizesThatNobodyTakesHoldNothingUp(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: cat}})
	r := exec(t, s, cri.Session{Stdin: true, Stdout: true, TTY: true})
	for range 3 {
		_ = json.NewEncoder(r.sizes).Encode(container.Size{Width: 1})
	}
	_ = r.stdin.Close()
	if got := r.status(t); got.code(t) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAttachPassesStreams(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: cat}})
	session := cri.Session{ContainerID: "c", Stdin: true, Stdout: true}
	url, err := s.AttachURL(session)
	if err != nil {
		t.Fatal(err)
	}
	r := connect(t, url, session)
	if _, err := io.WriteString(r.stdin, "hello"); err != nil {
		t.Error(err)
	}
	_ = r.stdin.Close()
	if got := read(t, r.stdout); got != "hello" {
		t.Errorf("got %q", got)
	}
	if got := r.status(t); got.Status != "Success" {
		t.Errorf("got %+v", got)
	}
}

// waits is a process that nothing ends but its context.
func waits(started, ended chan<- struct{}) process {
	return func(ctx context.Context, _ container.Streams) (int32, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return 0, ctx.Err()
	}
}

func TestAClientThatGoesAwayEndsItsProcess(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s, _ := serve(t, Config{Containers: &processes{run: waits(started, ended)}})
	r := exec(t, s, cri.Session{Stdout: true}) // and no input whose end could tell
	<-started
	_ = r.conn.Close()
	<-ended
}

func TestTheEndOfTheServerEndsProcesses(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s, stop := serve(t, Config{Containers: &processes{run: waits(started, ended)}})
	exec(t, s, cri.Session{Stdout: true})
	<-started
	stop()
	select {
	case <-ended:
	default:
		t.Error("the server has ended before the process")
	}
}

func TestURLsAreGoodForOneUse(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: exits(0)}})
	session := cri.Session{Stdout: true}
	url, err := s.ExecURL(session)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, url, session).status(t)
	for _, bad := range []string{url, url + "x", strings.Replace(url, "exec", "other", 1), strings.TrimSuffix(url, url[strings.LastIndex(url, "/"):])} {
		resp, err := http.Get(bad)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got %s", bad, resp.Status)
		}
	}
}

func TestURLsThatNobodyUsesAreRefusedAtLast(t *testing.T) {
	s, _ := serve(t, Config{})
	for i := range maxTokens {
		if _, err := s.PortForwardURL("p", nil); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if _, err := s.PortForwardURL("p", nil); !errdefs.IsResourceExhausted(err) {
		t.Errorf("got %v", err)
	}
}

func TestManyAtOnceLeaveNothing(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: func(_ context.Context, s container.Streams) (int32, error) {
		_, err := io.Copy(s.Stdout, s.Stdin)
		return 3, err
	}}})
	var all sync.WaitGroup
	for range 50 {
		r := exec(t, s, cri.Session{Stdin: true, Stdout: true})
		all.Go(func() {
			_, _ = io.WriteString(r.stdin, "x")
			_ = r.stdin.Close()
			if got := read(t, r.stdout); got != "x" || r.status(t).code(t) != 3 {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
}

func TestWebSocketsServeAsWell(t *testing.T) {
	s, _ := serve(t, Config{Containers: &processes{run: func(_ context.Context, s container.Streams) (int32, error) {
		if s.Stdin != nil {
			return 0, errors.New("there is an input that nobody asked for")
		}
		_, err := io.WriteString(s.Stdout, "hello")
		return 7, err
	}}})
	url, err := s.ExecURL(cri.Session{Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := websocket.Dial("ws"+strings.TrimPrefix(url, "http"), "v4.channel.k8s.io", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	channels := map[byte]string{}
	for {
		var frame []byte
		if err := websocket.Message.Receive(ws, &frame); err != nil {
			break
		}
		channels[frame[0]] += string(frame[1:])
	}
	var got status
	if err := json.Unmarshal([]byte(channels[3]), &got); err != nil || channels[1] != "hello" || got.code(t) != 7 {
		t.Errorf("got %q, %v", channels, err)
	}
}
