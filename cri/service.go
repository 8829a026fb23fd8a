package cri

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/feed"
	"github.com/crib-runtime/crib/sandbox/image"
	"github.com/crib-runtime/crib/sandbox/usage"
)

// Node is what the service needs to know of the machine and its networks.
type Node interface {
	// NetworkStatus is the verdict on new pods. It never blocks.
	NetworkStatus() network.Status
	// SetPodCIDRs stores the CIDRs that the kubelet relays; they outlive a restart.
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
	// MountFeatures tells whether mounts can be read-only with all below them, and
	// whether their ids can be mapped, which user namespaces need.
	MountFeatures() (recursiveReadOnly, idMap bool)
	// SystemdCgroup tells whether containers' cgroups are made by systemd.
	SystemdCgroup() bool
	// Info is what `crictl info` shows: JSON texts by name.
	Info() map[string]string
}

// Containers is the life of containers, as container.Manager leads it. Ids are
// whole; errdefs.ErrNotFound is for unknown ones.
type Containers interface {
	lifecycle
	inside
	// Get returns the record of a container that clients may see.
	Get(id string) (*container.Container, error)
	// List returns all of them. The records are shared: nobody changes them.
	List() []*container.Container
}

// lifecycle changes what a container is.
type lifecycle interface {
	Create(ctx context.Context, spec container.Spec) (id string, err error)
	Start(ctx context.Context, id string) error
	Stop(ctx context.Context, id string, grace time.Duration) error
	Remove(ctx context.Context, id string) error
	Update(ctx context.Context, id string, resources container.Resources) error
}

// inside reaches into containers that run.
type inside interface {
	// ExecSync returns context.DeadlineExceeded when the time-out ends it; 0 is none.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error)
	ReopenLog(ctx context.Context, id string) error
	// RuntimeSpec is what the OCI runtime was told.
	RuntimeSpec(ctx context.Context, id string) (*specs.Spec, error)
}

// Images is the node's images; sandbox/engine keeps them. A ref is an id, a tag
// or a digest reference, as people write it.
type Images interface {
	// Pull fetches an image, unless the node has it as it is in the registry.
	Pull(ctx context.Context, ref string, auth image.Auth) (image.Image, error)
	// Image returns errdefs.ErrNotFound if the node does not have it.
	Image(ctx context.Context, ref string) (image.Image, error)
	Images(ctx context.Context) ([]image.Image, error)
	// RemoveImage removes all references of the image; one that is not there is fine.
	RemoveImage(ctx context.Context, ref string) error
	ImageUsage(ctx context.Context) (image.FilesystemUsage, error)
}

// Streams hands out URLs, good for one use, at which a client finds its streams;
// cri/stream serves them.
type Streams interface {
	ExecURL(s Session) (string, error)
	AttachURL(s Session) (string, error)
	PortForwardURL(podID string, ports []int32) (string, error)
}

// Session is what a client wants to be connected to: a new process of a container,
// or without a command its first one.
type Session struct {
	ContainerID           string
	Command               []string
	Stdin, Stdout, Stderr bool
	TTY                   bool
}

// Neighbours are services that are no part of CRI, on the same server. None of CRI's
// rules is theirs: they answer before recovery is done, and with their own errors.
type Neighbours interface {
	Register(server *grpc.Server) error
	// Unary and Stream stand around their calls, as interceptors.
	Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error)
	Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error
}

// Config is what a [Service] works with. All but Beside and Tracer is required.
type Config struct {
	Pods       *sandbox.Manager
	Containers Containers
	Images     Images
	Streams    Streams
	Node       Node
	Beside     Neighbours
	Usage      *usage.Meter
	Events     *feed.Feed
	Version    string // of crib, as semver
	Ready      func() bool
	Trouble    func() (reason, message string) // of a runtime that is ready; never blocks
	Calls      *sync.WaitGroup                 // of calls that go on after their answer; its owner waits for them
	Log        *slog.Logger
	Tracer     stats.Handler // makes spans of calls; may be nil
}

// Service implements the runtime and the image service of CRI. It is safe for
// concurrent use.
type Service struct {
	runtime.UnimplementedRuntimeServiceServer
	runtime.UnimplementedImageServiceServer
	cfg Config
}

// NewServer returns a gRPC server with the service on it, and its neighbours.
func NewServer(cfg Config) (*grpc.Server, error) {
	s := &Service{cfg: cfg}
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
	}
	if cfg.Tracer != nil {
		options = append(options, grpc.StatsHandler(cfg.Tracer))
	}
	server := grpc.NewServer(options...)
	runtime.RegisterRuntimeServiceServer(server, s)
	runtime.RegisterImageServiceServer(server, s)
	if cfg.Beside == nil {
		return server, nil
	}
	return server, cfg.Beside.Register(server)
}

// maxMessage is the size that the kubelet takes: 16 MiB.
const maxMessage = 16 << 20
