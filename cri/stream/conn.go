package stream

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// lingerTime is how long a connection may stay that nothing uses any more. Those
// that end well are closed by the library at once; not those whose client makes
// no streams.
const lingerTime = 10 * time.Second

// listener knows the connections that it accepted: an HTTP server forgets those
// that become streams.
type listener struct {
	net.Listener

	mu    sync.Mutex // guards conns
	conns map[*conn]bool
}

// Accept is net.Listener's.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := &conn{Conn: c, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[accepted] = true
	return accepted, nil
}

// closeConns closes all connections. Nobody accepts any more.
func (l *listener) closeConns() {
	l.mu.Lock()
	var open []*conn
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // it is gone either way
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// conn tells when its client is gone, which an HTTP server does not once it has
// handed the connection over.
type conn struct {
	net.Conn
	listener *listener

	mu     sync.Mutex // guards what follows
	gone   bool
	cancel context.CancelFunc
	timer  *time.Timer
}

// connKey is where contexts have their connection.
type connKey struct{}

// context returns one that ends with the connection.
func (c *conn) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithValue(parent, connKey{}, c))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	if c.gone {
		cancel()
	}
	return ctx
}

// Read is net.Conn's. Who reads is the first to find out that the client is gone.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended()
	}
	return n, err
}

// Close is net.Conn's.
func (c *conn) Close() error {
	c.ended()
	c.listener.forget(c)
	return c.Conn.Close()
}

func (c *conn) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.cancel != nil {
		c.cancel()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

// linger closes the connection soon, if it is not closed until then.
func (c *conn) linger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.timer = time.AfterFunc(lingerTime, func() { _ = c.Close() })
	}
}
