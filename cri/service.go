package cri

import (
	"context"
	"log/slog"
	"net/netip"

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/sandbox"
)

// Node is what the service needs to know of the machine and its networks.
type Node interface {
	// NetworkStatus is the verdict on new pods. It never blocks.
	NetworkStatus() network.Status
	// SetPodCIDRs stores the CIDRs that the kubelet relays; they outlive a restart.
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
	// SystemdCgroup tells whether containers' cgroups are made by systemd.
	SystemdCgroup() bool
	// Info is what `crictl info` shows: JSON texts by name.
	Info() map[string]string
}

// Config is what a [Service] works with. All of it is required.
type Config struct {
	Pods    *sandbox.Manager
	Node    Node
	Version string // of crib, as semver
	Ready   func() bool
	Log     *slog.Logger
}

// Service implements the runtime service of CRI. It is safe for concurrent use.
type Service struct {
	runtime.UnimplementedRuntimeServiceServer
	cfg Config
}

// NewServer returns a gRPC server with the service on it.
func NewServer(cfg Config) *grpc.Server {
	s := &Service{cfg: cfg}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(s.intercept),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
	)
	runtime.RegisterRuntimeServiceServer(server, s)
	return server
}

// maxMessage is the size that the kubelet takes: 16 MiB.
const maxMessage = 16 << 20
