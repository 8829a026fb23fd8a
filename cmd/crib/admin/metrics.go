package admin

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are what /metrics shows: times of stages as they pass, and counts of a
// source at the moment of the question.
type Metrics struct {
	registry *prometheus.Registry
	stages   map[string]*prometheus.HistogramVec // by verb
	same     map[string]prometheus.Observer      // by "verb stage": what containerd measures, too
	rtnl     prometheus.Histogram
}

// NewMetrics returns the metrics of a source, in a registry of their own.
func NewMetrics(source Source) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), stages: map[string]*prometheus.HistogramVec{}, same: map[string]prometheus.Observer{}}
	for verb, name := range map[string]string{
		"RunPodSandbox": "pod_start", "StopPodSandbox": "pod_stop", "RemovePodSandbox": "pod_remove",
		"CreateContainer": "container_create", "StartContainer": "container_start",
		"StopContainer": "container_stop", "RemoveContainer": "container_remove",
	} {
		m.stages[verb] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "crib_" + name + "_seconds",
			Help:    "Time of each stage of " + verb + ", and of all of it where it succeeded.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18), // 0.1 ms to 13 s
		}, []string{"stage"})
		m.registry.MustRegister(m.stages[verb])
	}
	m.rtnl = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "crib_rtnl_wait_seconds",
		Help:    "Time until the kernel's lock of links was had, looked at every few seconds.",
		Buckets: prometheus.ExponentialBuckets(0.00001, 4, 11), // 10 us to 10 s
	})
	m.registry.MustRegister(m.rtnl)
	m.likeContainerd()
	m.registry.MustRegister(
		counts{source},
		repairs{source},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// likeContainerd adds those of containerd's metrics of its CRI service that mean
// the same here, so that its dashboards go on. Its buckets are among ours.
func (m *Metrics) likeContainerd() {
	const runtime = "io.containerd.runc.v2"
	for at, metric := range map[string]struct{ name, runtime string }{
		"RunPodSandbox network":         {"sandbox_create_network", ""},
		"StopPodSandbox detach network": {"sandbox_delete_network", ""},
		"RunPodSandbox init":            {"sandbox_runtime_create", runtime}, // only pods with an init have it
		"StopPodSandbox stop init":      {"sandbox_runtime_stop", runtime},
		"RemovePodSandbox total":        {"sandbox_remove", runtime},
		"CreateContainer total":         {"container_create", runtime},
		"StartContainer total":          {"container_start", runtime},
		"StopContainer total":           {"container_stop", runtime},
		"RemoveContainer total":         {"container_remove", runtime},
	} {
		labels := prometheus.Labels{}
		if metric.runtime != "" {
			labels["runtime"] = metric.runtime
		}
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "containerd", Subsystem: "cri", Name: metric.name + "_seconds", ConstLabels: labels,
			Help:    "As containerd has it: " + at + ".",
			Buckets: slices.Concat([]float64{.0005, .001, .0025}, prometheus.DefBuckets),
		})
		m.registry.MustRegister(h)
		m.same[at] = h
	}
}

// RTNL counts one wait for the kernel's lock of links.
func (m *Metrics) RTNL(took time.Duration) { m.rtnl.Observe(took.Seconds()) }

// Stage counts one stage of an operation. It is safe for concurrent use.
func (m *Metrics) Stage(verb, stage string, took time.Duration) {
	if h := m.stages[verb]; h != nil {
		h.WithLabelValues(stage).Observe(took.Seconds())
	}
	if h := m.same[verb+" "+stage]; h != nil {
		h.Observe(took.Seconds())
	}
}
