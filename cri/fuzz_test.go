package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
)

var errAccepted = errors.New("the request was accepted")

// gate is a world in which nothing can be made: a request gets as far as its
// record, if it is accepted.
type gate struct{ recorded *sandbox.Pod }

func (g *gate) Put(pod *sandbox.Pod) error {
	g.recorded = pod
	return errAccepted
}
func (*gate) Delete(string) error                               { return nil }
func (*gate) Load() ([]*sandbox.Pod, []string, error)           { return nil, nil, nil }
func (*gate) Dir(id string) string                              { return "/pods/" + id }
func (*gate) Make(context.Context, *sandbox.Pod) error          { return errors.New("made files") }
func (*gate) List() ([]string, error)                           { return nil, nil }
func (*gate) StopInit(context.Context, string) error            { return nil }
func (*gate) InitRunning(context.Context, string) (bool, error) { return false, nil }
func (*gate) Inits(context.Context) ([]string, error)           { return nil, nil }
func (*gate) StartInit(context.Context, *sandbox.Pod) (uint32, error) {
	return 0, errors.New("started an init")
}

type noFiles struct{ *gate }

func (noFiles) Remove(context.Context, string) error { return nil }

type noPins struct{}

func (noPins) Create(context.Context, netns.Spec) (netns.Pins, error) {
	return netns.Pins{}, errors.New("made namespaces")
}
func (noPins) Remove(netns.Pins) error       { return nil }
func (noPins) Alive(netns.Pins) bool         { return false }
func (noPins) Sweep(func(string) bool) error { return nil }

// FuzzSpecFrom: whatever a client sends, RunPodSandbox does not panic; it refuses
// with InvalidArgument before anything is made, or makes a record that survives
// being written and read, and that can be shown.
func FuzzSpecFrom(f *testing.F) {
	for _, change := range []func(*runtime.PodSandboxConfig){
		func(*runtime.PodSandboxConfig) {},
		func(c *runtime.PodSandboxConfig) { c.Metadata = nil },
		func(c *runtime.PodSandboxConfig) { c.Linux = nil },
		func(c *runtime.PodSandboxConfig) { options(c).UsernsOptions = &runtime.UserNamespace{} },
		func(c *runtime.PodSandboxConfig) {
			c.PortMappings = []*runtime.PortMapping{{HostPort: 80, ContainerPort: 80, HostIp: "fe80::1%eth0"}, {Protocol: 7, HostPort: -1}}
			c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1", "a..b": "\x00"}
			c.Hostname, c.LogDirectory = "web", "/var/log"
			c.DnsConfig = &runtime.DNSConfig{Servers: []string{"10.0.0.10"}}
			c.Labels, c.Annotations = map[string]string{"": "é"}, map[string]string{"a": ""}
		},
	} {
		b, err := proto.Marshal(request(change))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &runtime.RunPodSandboxRequest{}
		if proto.Unmarshal(b, req) != nil {
			t.Skip()
		}
		g := &gate{}
		s := &Service{cfg: Config{Pods: sandbox.New(sandbox.Config{
			Choose: func() []string { return nil }, Pinner: noPins{}, Files: noFiles{g}, Engine: g, Store: g,
			Process: "auto", Log: slog.New(slog.DiscardHandler),
		})}}
		_, err := s.RunPodSandbox(t.Context(), req)
		switch {
		case errors.Is(err, errAccepted):
			survives(t, g.recorded)
		case !errdefs.IsInvalidArgument(err) || g.recorded != nil:
			t.Errorf("%v: got %v, recorded %v", req, err, g.recorded)
		}
	})
}

// survives checks that a record is the same after it was written and read.
func survives(t *testing.T, pod *sandbox.Pod) {
	t.Helper()
	first, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var read sandbox.Pod
	if err := json.Unmarshal(first, &read); err != nil {
		t.Fatalf("%s: %v", first, err)
	}
	if second, err := json.Marshal(&read); err != nil || !bytes.Equal(first, second) {
		t.Errorf("written\n%s\nread as\n%s (%v)", first, second, err)
	}
	for _, message := range []proto.Message{statusOf(&read), itemOf(&read)} {
		if _, err := proto.Marshal(message); err != nil {
			t.Errorf("shown: %v", err)
		}
	}
	if _, err := infoOf(&read); err != nil {
		t.Error(err)
	}
}
