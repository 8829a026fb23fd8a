package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/crib-runtime/crib/cri"
	"github.com/crib-runtime/crib/sandbox/container"
)

const (
	// idleTime is how long a connection may be silent.
	idleTime = 4 * time.Hour
	// streamTime is how long a client may take to make its streams.
	streamTime = remotecommand.DefaultStreamCreationTimeout
)

// Containers runs processes in containers and connects to them;
// container.Manager does it. The end of ctx ends what they do.
type Containers interface {
	// Exec runs a command and returns its exit code.
	Exec(ctx context.Context, id string, cmd []string, streams container.Streams) (code int32, err error)
	// Attach connects to the first process of a container.
	Attach(ctx context.Context, id string, streams container.Streams) error
}

// Config is what a [Server] works with. All of it is required, but for Address.
type Config struct {
	Containers Containers
	// Dial connects to a port on the loopback of a pod: 127.0.0.1, else ::1.
	Dial    func(ctx context.Context, podID string, port int32) (net.Conn, error)
	Address string // host:port to listen on; "" is 127.0.0.1 and any port
	Log     *slog.Logger
}

// Server serves streams. It is safe for concurrent use.
type Server struct {
	cfg      Config
	listener *listener
	tokens   tokens
	tasks    tasks
}

// New returns a server that listens already, so that its URLs are true; until
// [Server.Serve] is called, clients wait.
func New(cfg Config) (*Server, error) {
	address := cfg.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for streams of exec, attach and port-forward: %w", err)
	}
	s := &Server{cfg: cfg, listener: &listener{Listener: l, conns: map[*conn]bool{}}}
	s.tokens.waiting = map[string]ticket{}
	return s, nil
}

// Serve serves until ctx ends, then closes all connections and waits for what ran
// on them. It closes the listener and can be called once.
func (s *Server) Serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{token}", s.serve)
	mux.HandleFunc("/attach/{token}", s.serve)
	mux.HandleFunc("/portforward/{token}", s.serve)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return c.(*conn).context(ctx)
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // a connection is for one client's one use
	wait := closeAtEnd(ctx, server)
	err := server.Serve(s.listener)
	wait()
	s.listener.closeConns()
	s.tasks.wait()
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving streams: %w", errors.Join(err, server.Close()))
}

// closeAtEnd closes something when ctx ends, or never once wait has returned.
func closeAtEnd(ctx context.Context, what io.Closer) (wait func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = what.Close() // whoever uses it finds out
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}

// Close closes the listener of a server that never came to serve.
func (s *Server) Close() error { return s.listener.Close() }

// ExecURL returns the URL of a new process.
func (s *Server) ExecURL(session cri.Session) (string, error) {
	return s.url("exec", execution{s, session})
}

// AttachURL returns the URL of a container's first process.
func (s *Server) AttachURL(session cri.Session) (string, error) {
	return s.url("attach", attachment{s, session})
}

// PortForwardURL returns the URL of a pod's ports. Clients that speak SPDY may ask
// for any; those that speak WebSocket get the ports that are given here.
func (s *Server) PortForwardURL(podID string, ports []int32) (string, error) {
	return s.url("portforward", forwarding{s, podID, ports})
}

func (s *Server) url(kind string, what http.Handler) (string, error) {
	token, err := s.tokens.put(what)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("http://%s/%s/%s", s.listener.Addr(), kind, token), nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	what, ok := s.tokens.take(r.PathValue("token")).(http.Handler)
	if !ok {
		http.NotFound(w, r)
		return
	}
	s.tasks.run(func() { what.ServeHTTP(w, r) })
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.linger()
	}
}

// execution serves one exec.
type execution struct {
	server  *Server
	session cri.Session
}

func (e execution) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	remotecommand.ServeExec(w, r, e, "", "", e.session.ContainerID, e.session.Command, optionsOf(e.session),
		idleTime, streamTime, remotecommand.SupportedStreamingProtocols)
}

// attachment serves one attach.
type attachment struct {
	server  *Server
	session cri.Session
}

func (a attachment) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	remotecommand.ServeAttach(w, r, a, "", "", a.session.ContainerID, optionsOf(a.session),
		idleTime, streamTime, remotecommand.SupportedStreamingProtocols)
}

func optionsOf(s cri.Session) *remotecommand.Options {
	return &remotecommand.Options{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, TTY: s.TTY}
}

// forwarding serves one session of port-forward.
type forwarding struct {
	server *Server
	podID  string
	ports  []int32
}

func (f forwarding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	forward := forwarder(func(port int32, stream stream) error {
		return f.server.forward(r.Context(), target{f.podID, port}, stream)
	})
	portforward.ServePortForward(w, r, forward, f.podID, "", &portforward.V4Options{Ports: f.ports},
		idleTime, streamTime, portforward.SupportedProtocols)
}

// tasks are what goroutines of the library do for us: it waits for none of them.
type tasks struct {
	mu     sync.Mutex // guards closed, and running against becoming more once it is
	closed bool

	running sync.WaitGroup
}

// run does something, unless the server has ended; then it returns false.
func (t *tasks) run(do func()) bool {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return false
	}
	t.running.Add(1)
	t.mu.Unlock()
	defer t.running.Done()
	do()
	return true
}

// wait lets nothing more begin and waits for what runs.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
}
