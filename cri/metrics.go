package cri

import (
	"context"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/usage"
)

// ListMetricDescriptors names the metrics; the kubelet asks once, when it starts.
func (s *Service) ListMetricDescriptors(context.Context, *runtime.ListMetricDescriptorsRequest) (*runtime.ListMetricDescriptorsResponse, error) {
	resp := &runtime.ListMetricDescriptorsResponse{}
	for i := range containerMetrics {
		resp.Descriptors = append(resp.Descriptors, containerMetrics[i].descriptor())
	}
	for i := range linkMetrics {
		resp.Descriptors = append(resp.Descriptors, linkMetrics[i].descriptor())
	}
	return resp, nil
}

// ListPodSandboxMetrics tells the metrics of all pods that are ready. What a kernel
// does not count is left out.
func (s *Service) ListPodSandboxMetrics(ctx context.Context, _ *runtime.ListPodSandboxMetricsRequest) (*runtime.ListPodSandboxMetricsResponse, error) {
	resp := &runtime.ListPodSandboxMetricsResponse{}
	err := s.eachPodMetrics(ctx, func(m *runtime.PodSandboxMetrics) error {
		resp.PodMetrics = append(resp.PodMetrics, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// eachPodMetrics hands the metrics of each pod on as soon as they are read.
func (s *Service) eachPodMetrics(ctx context.Context, use func(*runtime.PodSandboxMetrics) error) error {
	pass, running := s.pass(), s.runningByPod()
	for _, pod := range s.cfg.Pods.List() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if pod.State != sandbox.Ready {
			continue
		}
		if err := use(pass.podMetrics(ctx, pod, running[pod.ID])); err != nil {
			return err
		}
	}
	return nil
}

// metered is what the metrics of one container, or of a pod, are made from.
type metered struct {
	usage.Container
	container *container.Container // nil for a pod
	links     []usage.Link
	detail    usage.Detail
	fs        usage.Filesystem
	now       time.Time
}

func (p pass) podMetrics(ctx context.Context, pod *sandbox.Pod, running []*container.Container) *runtime.PodSandboxMetrics {
	metrics := &runtime.PodSandboxMetrics{PodSandboxId: pod.ID}
	used := make([]usage.Container, 0, len(running))
	for _, c := range running {
		u, ok := p.container(ctx, pod, c)
		if !ok {
			continue
		}
		used = append(used, u)
		m := metered{Container: u, container: c, detail: p.round.Detail(pod, c.ID, c.PID), fs: p.filesystem, now: time.Now()}
		e := emitter{labels: p.labels(pod, c)}
		e.emit(containerMetrics[:], &m)
		metrics.ContainerMetrics = append(metrics.ContainerMetrics, &runtime.ContainerMetrics{ContainerId: c.ID, Metrics: e.metrics})
	}
	u := p.round.Pod(pod, used)
	e := emitter{labels: p.labels(pod, nil)}
	e.emit(linkMetrics[:], &metered{links: u.Links})
	metrics.Metrics = e.metrics
	return metrics
}

// baseLabels are the labels of every metric, sorted. They are cAdvisor's.
var baseLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// labels returns the values of baseLabels. A pod's own metrics have the sandbox for
// their name and no container.
func (p pass) labels(pod *sandbox.Pod, c *container.Container) []string {
	if c == nil {
		return []string{"", p.s.cfg.Usage.Path(pod, pod.ID), "", pod.ID, pod.Spec.Namespace, pod.Spec.Name}
	}
	image := imageSpecOf(c).Image
	return []string{c.Spec.Name, p.s.cfg.Usage.Path(pod, c.ID), image, c.ID, pod.Spec.Namespace, pod.Spec.Name}
}

// metric is one name, and how its values are found.
type metric struct {
	name, help string
	kind       runtime.MetricType
	extra      []string // labels after baseLabels
	read       func(m *metered, e *emitter)
}

func (m *metric) descriptor() *runtime.MetricDescriptor {
	keys := append([]string{}, baseLabels...)
	return &runtime.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: append(keys, m.extra...)}
}

// emitter collects the metrics of one container or pod.
type emitter struct {
	labels  []string
	metrics []*runtime.Metric
	current *metric
	cells   []cell
}

// cell is a metric with its value, so that both are one piece of memory.
type cell struct {
	metric runtime.Metric
	value  runtime.UInt64Value
}

func (e *emitter) emit(metrics []metric, m *metered) {
	e.metrics = make([]*runtime.Metric, 0, len(metrics)+8) // a few have several values
	for i := range metrics {
		e.current = &metrics[i]
		e.current.read(m, e)
	}
}

// put adds a value of the current metric. Metrics without labels of their own share
// the base's.
func (e *emitter) put(value uint64, extra ...string) {
	if len(e.cells) == 0 {
		e.cells = make([]cell, cap(e.metrics))
	}
	cell := &e.cells[0]
	e.cells = e.cells[1:]
	cell.value.Value = value
	cell.metric.Name, cell.metric.MetricType = e.current.name, e.current.kind
	cell.metric.Value, cell.metric.LabelValues = &cell.value, e.labels
	if len(extra) > 0 {
		cell.metric.LabelValues = append(e.labels[:len(e.labels):len(e.labels)], extra...)
	}
	e.metrics = append(e.metrics, &cell.metric)
}

// figure adds a value that a kernel may not have.
func (e *emitter) figure(f cgroup.Figure, extra ...string) {
	if f.Known {
		e.put(f.Value, extra...)
	}
}

// seconds adds nanoseconds as whole seconds: CRI has no fractions.
func (e *emitter) seconds(f cgroup.Figure, extra ...string) {
	f.Value /= uint64(time.Second)
	e.figure(f, extra...)
}

// stalled adds the time of a line of a pressure file.
func (e *emitter) stalled(s cgroup.Stall) { e.seconds(cgroup.Figure{Value: s.Total, Known: s.Known}) }
