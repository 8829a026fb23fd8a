package cri

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// neighbour is another service on the server of CRI, which counts its calls.
type neighbour struct{ unary, streams int }

func (n *neighbour) Register(server *grpc.Server) error {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return nil
}

func (n *neighbour) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	n.unary++
	return handler(ctx, req)
}

func (n *neighbour) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	n.streams++
	return handler(srv, stream)
}

// TestNeighboursDoNotWaitForRecoveryAndCRIDoes: cAdvisor asks once, when the kubelet
// starts, and what it is not told then it never knows.
func TestNeighboursDoNotWaitForRecoveryAndCRIDoes(t *testing.T) {
	w, n := &world{}, &neighbour{}
	cfg := w.service(t).cfg
	cfg.Ready, cfg.Beside = func() bool { return false }, n
	server, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})

	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Errorf("the neighbour's stream: %v", err)
	}
	if _, err := runtime.NewRuntimeServiceClient(conn).ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("CRI: %v, want unavailable", err)
	}
	if n.unary != 1 || n.streams != 1 {
		t.Errorf("its interceptors saw %+v", n)
	}
}
