package cri

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/counters"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/usage"
)

// layer is the writable layer of every container.
type layer struct{}

func (layer) LayersDir() string { return "/" }
func (layer) Layer(context.Context, string, cgroup.Figure) (usage.Layer, error) {
	return usage.Layer{Bytes: 7, Inodes: 2, At: time.Unix(20, 0)}, nil
}

// metered returns a service whose containers' cgroups are directories: those of good
// can be read, all others are broken.
func (w *world) metered(t *testing.T, good ...string) *Service {
	t.Helper()
	root := t.TempDir()
	for _, c := range w.containers {
		dir := filepath.Join(root, "memory", c.ID)
		files := map[string]string{"memory.usage_in_bytes": "50", "memory.limit_in_bytes": "100", "memory.stat": "total_inactive_file 20\n"}
		if !slices.Contains(good, c.Spec.Name) {
			dir = filepath.Join(dir, "memory.stat") // a directory cannot be read
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := w.service(t)
	s.cfg.Usage = usage.NewMeter(usage.Config{
		Root: root, Layers: layer{}, Log: slog.New(slog.DiscardHandler),
		Path: func(_ *sandbox.Pod, id string) string { return "/" + id },
		Links: func() (map[string]counters.Counters, error) {
			return map[string]counters.Counters{"h0": {RxBytes: 1, TxBytes: 2}, "h1": {RxBytes: 3}}, nil
		},
	})
	return s
}

var podOfTwoLinks = &sandbox.Pod{ID: "p", State: sandbox.Ready, Attachments: []network.Attachment{
	{Interface: "eth0", HostInterface: "h0"}, {Interface: "eth1", HostInterface: "h1"},
}}

func TestABrokenContainerIsMissingAlone(t *testing.T) {
	w := &world{containers: []*container.Container{one("a", container.Running), one("b", container.Running)}}
	s := w.metered(t, "a")
	got := s.pass().podStats(t.Context(), podOfTwoLinks, w.containers).Linux
	if len(got.Containers) != 1 || got.Containers[0].Attributes.Metadata.Name != "a" {
		t.Fatalf("containers: %v", got.Containers)
	}
	c := got.Containers[0]
	if c.Memory.WorkingSetBytes.Value != 30 || c.Memory.AvailableBytes.Value != 70 || c.WritableLayer.FsId.Mountpoint != "/" || c.WritableLayer.UsedBytes.Value != 7 {
		t.Errorf("got %v", c)
	}
	if c.Cpu != nil || c.Swap != nil || c.Io != nil || c.Memory.RssBytes != nil || c.Memory.Psi != nil {
		t.Errorf("what the kernel does not count is there: %v", c)
	}
	if got.Memory.UsageBytes.Value != 50 || got.Network.DefaultInterface.Name != "eth0" || got.Network.DefaultInterface.RxBytes.Value != 2 ||
		len(got.Network.Interfaces) != 1 || got.Network.Interfaces[0].TxBytes.Value != 3 {
		t.Errorf("the pod's: %v", got)
	}
}

func TestStatsOfWhatDoesNotRunAreItsName(t *testing.T) {
	w := &world{containers: []*container.Container{one("d", container.Exited)}}
	s := w.metered(t)
	ended, err := s.ContainerStats(t.Context(), &runtime.ContainerStatsRequest{ContainerId: "d"})
	if err != nil || ended.Stats.Attributes.Id == "" || ended.Stats.Cpu != nil {
		t.Errorf("got %v, %v", ended, err)
	}
	if _, err := s.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{}); err == nil || errdefs.IsNotImplemented(err) {
		t.Errorf("the kubelet's question whether there is such a call: %v", err)
	}
}

func TestWhatIsOverItsLimitHasNothingLeft(t *testing.T) {
	figure := func(n uint64) cgroup.Figure { return cgroup.Figure{Value: n, Known: true} }
	u := usage.Container{Usage: cgroup.Usage{At: time.Unix(20, 0), Memory: cgroup.Memory{Usage: figure(200), WorkingSet: figure(200), Limit: figure(100)}}}
	if got := statsOf(one("a", container.Running), u, usage.Filesystem{}); got.Memory.AvailableBytes.Value != 0 || got.WritableLayer != nil {
		t.Errorf("got %v", got)
	}
}

func TestMetricsHaveTheLabelsOfTheirDescriptors(t *testing.T) {
	w := &world{containers: []*container.Container{one("a", container.Running)}}
	s := w.metered(t, "a")
	resp, err := s.ListMetricDescriptors(t.Context(), nil)
	if err != nil || len(resp.Descriptors) != 56 {
		t.Fatalf("%d descriptors, %v", len(resp.Descriptors), err)
	}
	keys := map[string][]string{}
	for _, d := range resp.Descriptors {
		if keys[d.Name] = d.LabelKeys; d.Help == "" {
			t.Errorf("%s has no help", d.Name)
		}
	}
	if len(keys) != 56 {
		t.Errorf("a name is there twice: %v", slices.Sorted(maps.Keys(keys)))
	}
	got := s.pass().podMetrics(t.Context(), podOfTwoLinks, w.containers)
	seen := map[string]bool{}
	for _, m := range append(got.Metrics, got.ContainerMetrics[0].Metrics...) {
		id := m.Name
		for _, value := range m.LabelValues {
			id += "|" + value
		}
		if seen[id] || len(m.LabelValues) != len(keys[m.Name]) {
			t.Errorf("twice, or with other labels than %v: %v", keys[m.Name], m)
		}
		seen[id] = true
	}
	for id, want := range map[string]bool{
		"container_memory_working_set_bytes|a|/" + w.containers[0].ID + "|sha256:1234|" + w.containers[0].ID + "||": true,
		"container_network_receive_bytes_total||/p||p|||eth1":                                                       true,
	} {
		if seen[id] != want {
			t.Errorf("%s is missing in %v", id, slices.Sorted(maps.Keys(seen)))
		}
	}
}

func TestListsAreSentInPieces(t *testing.T) {
	item := &runtime.PodSandbox{Annotations: map[string]string{"a": strings.Repeat("x", chunkBytes/4)}}
	big := &runtime.PodSandbox{Annotations: map[string]string{"a": strings.Repeat("x", 2*chunkBytes)}}
	var sizes []int
	err := sendAll([]*runtime.PodSandbox{item, item, item, item, big, item}, func(items []*runtime.PodSandbox) error {
		sizes = append(sizes, len(items))
		return nil
	})
	if err != nil || !slices.Equal(sizes, []int{3, 1, 1, 1}) {
		t.Errorf("pieces of %v, %v", sizes, err)
	}
	if err := sendAll(nil, func([]*runtime.PodSandbox) error { return errdefs.ErrUnknown }); err != nil {
		t.Errorf("nothing is sent: %v", err)
	}
	if err := sendAll([]*runtime.PodSandbox{item}, func([]*runtime.PodSandbox) error { return errdefs.ErrUnknown }); err == nil {
		t.Error("a client that is gone is no error")
	}
}
