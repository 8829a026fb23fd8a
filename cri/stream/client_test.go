package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/crib-runtime/crib/cri"
	"github.com/crib-runtime/crib/sandbox/container"
)

// process is a container's process, as a test wants it.
type process func(ctx context.Context, streams container.Streams) (int32, error)

// processes are Containers of one process.
type processes struct {
	run process
	cmd chan []string // takes what was asked for, unless it is nil or full
}

func (p *processes) Exec(ctx context.Context, _ string, cmd []string, streams container.Streams) (int32, error) {
	select {
	case p.cmd <- cmd:
	default:
	}
	return p.run(ctx, streams)
}

func (p *processes) Attach(ctx context.Context, _ string, streams container.Streams) error {
	_, err := p.run(ctx, streams)
	return err
}

// serve runs a server until the end of the test, or until stop is called, and
// checks that nothing of it is left.
func serve(t *testing.T, cfg Config) (s *Server, stop func()) {
	t.Helper()
	before := goroutines()
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		checkGone(t, len(before))
	}
	t.Cleanup(stop)
	return s, stop
}

// checkGone waits until no more goroutines are left than there were: those of the
// library, which read from our connections, end a little later than the server.
func checkGone(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; goruntime.Gosched() {
		left := goroutines()
		if len(left) <= before {
			return
		}
		if time.Now().After(end) {
			t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
			return
		}
	}
}

// goroutines returns those that are in this package's code, but for tests themselves.
func goroutines() (ours []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:goruntime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "cri/stream.") && !strings.Contains(stack, "testing.tRunner") && !strings.Contains(stack, "_test.go") {
			ours = append(ours, stack)
		}
	}
	return ours
}

// dial connects to a URL over SPDY.
func dial(t *testing.T, url, protocol string) httpstream.Connection {
	t.Helper()
	conn, err := dialSPDY(url, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dialSPDY(url, protocol string) (httpstream.Connection, error) {
	tripper, err := spdy.NewRoundTripper(nil)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	resp, err := tripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.New(resp.Status)
	}
	return tripper.NewConnection(resp)
}

// remote is a process as its client sees it.
type remote struct {
	conn                               httpstream.Connection
	stdin, stdout, stderr, errs, sizes httpstream.Stream
}

func connect(t *testing.T, url string, session cri.Session) *remote {
	t.Helper()
	r := &remote{conn: dial(t, url, remotecommand.StreamProtocolV4Name)}
	open := func(kind string, wanted bool) httpstream.Stream {
		if !wanted {
			return nil
		}
		stream, err := r.conn.CreateStream(http.Header{remotecommand.StreamType: {kind}})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	r.errs = open(remotecommand.StreamTypeError, true)
	r.stdin = open(remotecommand.StreamTypeStdin, session.Stdin)
	r.stdout = open(remotecommand.StreamTypeStdout, session.Stdout)
	r.stderr = open(remotecommand.StreamTypeStderr, session.Stderr)
	r.sizes = open(remotecommand.StreamTypeResize, session.TTY)
	return r
}

// exec runs a command and connects to it.
func exec(t *testing.T, s *Server, session cri.Session) *remote {
	t.Helper()
	url, err := s.ExecURL(session)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, url, session)
}

// status is how a process ended: the fields of metav1.Status that clients read.
type status struct {
	Status, Message, Reason string
	Details                 struct {
		Causes []struct{ Reason, Message string }
	}
}

// code returns the exit code of a process, as kubectl finds it.
func (s status) code(t *testing.T) int {
	t.Helper()
	if s.Status == "Success" {
		return 0
	}
	for _, cause := range s.Details.Causes {
		if s.Reason == "NonZeroExitCode" && cause.Reason == "ExitCode" {
			code, err := strconv.Atoi(cause.Message)
			if err != nil {
				t.Error(err)
			}
			return code
		}
	}
	return -1
}

func (r *remote) status(t *testing.T) (s status) {
	t.Helper()
	if text := read(t, r.errs); json.Unmarshal([]byte(text), &s) != nil {
		t.Errorf("the status is %q", text)
	}
	return s
}

func read(t *testing.T, from io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(from)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// tunnel is one forwarded connection as its client sees it.
type tunnel struct{ data, errs httpstream.Stream }

func forwardTo(t *testing.T, conn httpstream.Connection, port, id int) tunnel {
	t.Helper()
	open := func(kind string) (httpstream.Stream, error) {
		return conn.CreateStream(http.Header{
			portforward.StreamType:                 {kind},
			portforward.PortHeader:                 {strconv.Itoa(port)},
			portforward.PortForwardRequestIDHeader: {strconv.Itoa(id)},
		})
	}
	errs, err := open(portforward.StreamTypeError)
	if err == nil {
		err = errs.Close() // as kubectl does
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := open(portforward.StreamTypeData)
	if err != nil {
		// The server may break it before the client knows that it was there.
		t.Log("the data's stream:", err)
		return tunnel{errs: errs, data: gone{}}
	}
	return tunnel{errs: errs, data: data}
}

// gone is a stream that the server broke at once; nothing can be read from it.
type gone struct{ httpstream.Stream }

func (gone) Read([]byte) (int, error) { return 0, io.EOF }

// listen serves connections on the loopback with a function; it returns the port.
func listen(t *testing.T, handle func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c.(*net.TCPConn))
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
