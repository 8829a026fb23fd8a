// Command uplink is the only way out of the namespaces of minbase.sh: an HTTP
// proxy that tells which hosts it was asked for, so that a run shows what a
// fresh machine fetches, and from where.
//
//	uplink serve SOCKET          outside: a proxy at a unix socket, which network namespaces do not part
//	uplink join SOCKET ADDRESS   inside: what connects to ADDRESS reaches the proxy
//
// serve prints each host once. Both run until they are killed; a connection
// that breaks is the client's to notice and retry. A proxy of the machine's own
// (HTTP_PROXY, HTTPS_PROXY) is used.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "uplink:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && args[0] == "join":
		return join(args[1], args[2])
	}
	return errors.New("usage: uplink serve SOCKET | join SOCKET ADDRESS")
}

// serve answers proxy requests at a unix socket.
func serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newProxy(), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// proxy is a forward proxy.
type proxy struct {
	forward *httputil.ReverseProxy

	mu   sync.Mutex // guards seen
	seen map[string]bool
}

func newProxy() *proxy {
	// The request names its target itself, so there is nothing to rewrite.
	return &proxy{forward: &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}, seen: map[string]bool{}}
}

// ServeHTTP forwards a plain request, or makes a tunnel for CONNECT.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.tell(r.Host)
	if r.Method != http.MethodConnect {
		p.forward.ServeHTTP(w, r)
		return
	}
	upstream, err := dial(r.Context(), r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = upstream.Close()
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connected\r\n\r\n"); err != nil {
		_ = errors.Join(client.Close(), upstream.Close())
		return
	}
	splice(upstream, client, buffered)
}

// tell prints a host when it is asked for the first time.
func (p *proxy) tell(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen[host] {
		p.seen[host] = true
		fmt.Println(host)
	}
}

// dial connects to a host by TLS's port, through the machine's own proxy if it has one.
func dial(ctx context.Context, host string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: time.Minute}
	via, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: host}})
	if err != nil {
		return nil, fmt.Errorf("reading the proxy settings: %w", err)
	}
	if via == nil {
		return dialer.DialContext(ctx, "tcp", host)
	}
	conn, err := dialer.DialContext(ctx, "tcp", via.Host)
	if err != nil {
		return nil, fmt.Errorf("connecting to proxy %s: %w", via.Host, err)
	}
	if err := connect(conn, host); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s through proxy %s: %w", host, via.Host, err), conn.Close())
	}
	return conn, nil
}

// connect asks the proxy at the other end of conn for a tunnel to host.
func connect(conn net.Conn, host string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); err != nil {
		return err
	}
	// The server behind the tunnel waits for the client, so nothing of it is read ahead here.
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// join forwards each connection to address to the unix socket.
func join(socket, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return accept(listener, socket)
}

// accept passes connections on until the listener is closed, then waits for them.
func accept(listener net.Listener, socket string) error {
	var passing sync.WaitGroup
	defer passing.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		passing.Go(func() { pass(client, socket) })
	}
}

// pass forwards one connection until both sides are done.
func pass(client net.Conn, socket string) {
	upstream, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "uplink:", err)
		_ = client.Close()
		return
	}
	splice(upstream, client, client)
}

// splice copies both ways and closes both connections at the end. What the
// client sends is read from, since some of it may be buffered already.
func splice(upstream, client net.Conn, from io.Reader) {
	var both sync.WaitGroup
	both.Go(func() { copyThenEnd(upstream, from) })
	both.Go(func() { copyThenEnd(client, upstream) })
	both.Wait()
	_ = errors.Join(upstream.Close(), client.Close())
}

// copyThenEnd copies until the end and passes that on, so that the other side can answer.
func copyThenEnd(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
