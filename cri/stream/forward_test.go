package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

// loopback dials this machine's ports as if they were the pod's.
func loopback(ctx context.Context, _ string, port int32) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// session opens a session of port-forward.
func session(t *testing.T, s *Server) httpstream.Connection {
	t.Helper()
	url, err := s.PortForwardURL("pod", nil)
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, url, portforward.ProtocolV1Name)
}

// echo sends back what comes, when all has come.
func echo(c *net.TCPConn) {
	all, _ := io.ReadAll(c)
	_, _ = c.Write(all)
}

// breaks reads a line and resets the connection.
func breaks(c *net.TCPConn) {
	_, _ = bufio.NewReader(c).ReadString('\n')
	_ = c.SetLinger(0)
}

// works says that a tunnel leads to echo.
func works(t *testing.T, to tunnel) {
	t.Helper()
	text := strings.Repeat("0123456789", 50_000)
	go func() {
		_, _ = io.WriteString(to.data, text)
		_ = to.data.Close() // half of it: the echo comes only then
	}()
	if got := read(t, to.data); got != text {
		t.Errorf("%d bytes came back of %d", len(got), len(text))
	}
	if got := read(t, to.errs); got != "" {
		t.Errorf("the error is %q", got)
	}
}

// closedPort returns a port on which nobody listens.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestARefusedConnectionEndsItsOwnStreamOnly(t *testing.T) {
	s, _ := serve(t, Config{Dial: loopback})
	conn, good := session(t, s), listen(t, echo)
	works(t, forwardTo(t, conn, good, 1))
	refused := forwardTo(t, conn, closedPort(t), 2)
	if got := read(t, refused.data) + read(t, refused.errs); got != "" {
		t.Errorf("the refused one has %q", got)
	}
	works(t, forwardTo(t, conn, good, 3))
}

func TestAResetConnectionEndsItsOwnStreamOnly(t *testing.T) {
	s, _ := serve(t, Config{Dial: loopback})
	conn, good, bad := session(t, s), listen(t, echo), listen(t, breaks)
	beside := forwardTo(t, conn, good, 1)
	broken := forwardTo(t, conn, bad, 2)
	if _, err := io.WriteString(broken.data, "line\n"); err != nil {
		t.Error(err)
	}
	if got := read(t, broken.data) + read(t, broken.errs); got != "" {
		t.Errorf("the broken one has %q", got)
	}
	works(t, beside)
	works(t, forwardTo(t, conn, good, 3))
}

func TestAPodThatIsGoneIsTold(t *testing.T) {
	s, _ := serve(t, Config{Dial: func(context.Context, string, int32) (net.Conn, error) {
		return nil, fmt.Errorf("pod: %w", errdefs.ErrNotFound)
	}})
	to := forwardTo(t, session(t, s), 80, 1)
	// The library breaks the stream when it has told the error.
	got, _ := io.ReadAll(to.errs)
	if !strings.Contains(string(got), "not found") || !strings.Contains(string(got), "80") {
		t.Errorf("got %q", got)
	}
}

func TestTheEndOfAServersOutputIsNotTheEndOfItsInput(t *testing.T) {
	got := make(chan string, 1)
	port := listen(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	})
	s, _ := serve(t, Config{Dial: loopback})
	to := forwardTo(t, session(t, s), port, 1)
	if text := read(t, to.data); text != "hello" {
		t.Errorf("the client has %q", text)
	}
	_, _ = io.WriteString(to.data, "thanks")
	_ = to.data.Close()
	if text := <-got; text != "thanks" {
		t.Errorf("the server has %q", text)
	}
}

func TestTheEndOfASessionEndsItsConnections(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	port := listen(t, func(c *net.TCPConn) {
		close(started)
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	s, _ := serve(t, Config{Dial: loopback})
	conn := session(t, s)
	to := forwardTo(t, conn, port, 1)
	if _, err := io.WriteString(to.data, "x"); err != nil {
		t.Error(err)
	}
	<-started
	_ = conn.Close()
	<-ended
}

func TestTheEndOfTheServerEndsConnections(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	port := listen(t, func(c *net.TCPConn) {
		close(started)
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	s, stop := serve(t, Config{Dial: loopback})
	forwardTo(t, session(t, s), port, 1)
	<-started
	stop()
	<-ended
}
