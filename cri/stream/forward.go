package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// stream is one connection of a client to a port; Close ends our half of it.
type stream = io.ReadWriteCloser

// target is what a stream leads to.
type target struct {
	podID string
	port  int32
}

// forwarder serves one stream to a port.
type forwarder func(port int32, s stream) error

// PortForward is portforward.PortForwarder's. The context that it gets ends with
// nothing.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, s io.ReadWriteCloser) error {
	return f(port, s)
}

// forward connects a stream to a port until both sides have ended, one has broken
// or ctx ends. An error is told to the client and ends its session: it is for what
// concerns all of its streams; see Decisions.
func (s *Server) forward(ctx context.Context, to target, client stream) error {
	err := fmt.Errorf("forwarding port %d of pod %s: crib is ending: %w", to.port, to.podID, errdefs.ErrUnavailable)
	s.tasks.run(func() { err = s.connect(ctx, to, client) })
	return err
}

func (s *Server) connect(ctx context.Context, to target, client stream) error {
	log := s.cfg.Log.With("pod", to.podID, "port", to.port)
	server, err := s.cfg.Dial(ctx, to.podID, to.port)
	if ofOneConnection(err) {
		log.Info("a connection was not forwarded", "error", err)
		reset(client)
		return nil
	}
	if err != nil {
		return fmt.Errorf("connecting to port %d of pod %s: %w", to.port, to.podID, err)
	}
	defer closeAtEnd(ctx, server)()
	if err := relay(server, client); err != nil && ctx.Err() == nil {
		log.Debug("a forwarded connection broke", "error", err)
	}
	return nil
}

// ofOneConnection says whether an error is the port's and not the pod's.
func ofOneConnection(err error) bool {
	var network net.Error
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) ||
		errors.As(err, &network) && network.Timeout()
}

// relay passes on what both sides send, each until it ends, and closes the server's
// side. If one breaks, both are broken.
func relay(server net.Conn, client stream) error {
	sent := make(chan error, 1)
	go func() { sent <- send(server, client) }()
	_, err := io.Copy(client, server)
	if err == nil {
		err = client.Close() // our half: the client knows that no more comes
	} else {
		reset(client)
		err = errors.Join(err, server.Close())
	}
	err = errors.Join(err, <-sent)
	_ = server.Close() // again, if it broke
	return err
}

// send passes on what the client sends and then closes that half.
func send(server net.Conn, client stream) error {
	if _, err := io.Copy(server, client); err != nil {
		return errors.Join(err, server.Close())
	}
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the server may have been faster
	}
	return nil
}

// reset breaks a stream, where the protocol can: the client must not take what
// came for all there is.
func reset(s stream) {
	if r, ok := s.(interface{ Reset() error }); ok {
		_ = r.Reset() // it is gone then
		return
	}
	_ = s.Close()
}
