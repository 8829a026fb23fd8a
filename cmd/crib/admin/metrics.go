package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are what /metrics shows: times of stages as they pass, and counts of a
// source at the moment of the question.
type Metrics struct {
	registry *prometheus.Registry
	stages   *prometheus.HistogramVec
}

// NewMetrics returns the metrics of a source, in a registry of their own.
func NewMetrics(source Source) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "crib_pod_stage_seconds",
			Help:    "Time of each stage of a pod's start.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18), // 0.1 ms to 13 s
		}, []string{"stage"}),
	}
	m.registry.MustRegister(
		m.stages,
		counts{source},
		repairs{source},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Stage counts one stage of a pod's start.
func (m *Metrics) Stage(name string, took time.Duration) {
	m.stages.WithLabelValues(name).Observe(took.Seconds())
}

// counts collects what is counted when asked.
type counts struct{ source Source }

// Describe sends nothing: the collector is unchecked, its labels are of the moment.
func (counts) Describe(chan<- *prometheus.Desc) {}

// Collect counts pods, owed teardowns and addresses.
func (c counts) Collect(out chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels []string, values ...string) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value, values...)
	}
	states, owed := map[string]int{"Ready": 0, "NotReady": 0}, 0
	for _, pod := range c.source.Pods() {
		states[pod.State]++
		if pod.Owed != "" {
			owed++
		}
	}
	for state, n := range states {
		gauge("crib_pods", "Pods by state.", float64(n), []string{"state"}, state)
	}
	gauge("crib_owed_teardowns", "Teardowns that are not finished and tried again.", float64(owed), nil)
	for _, network := range c.source.Networks() {
		ready := 0.0
		if network.Status.Ready {
			ready = 1
		}
		gauge("crib_network_ready", "Whether new pods can get the network.", ready, []string{"network", "driver"}, network.Name, network.Driver)
		for _, r := range network.Ranges {
			labels := []string{"network", "driver", "cidr", "state"}
			gauge("crib_addresses", "Addresses of a range by state.", float64(r.Used), labels, network.Name, network.Driver, r.CIDR.String(), "used")
			gauge("crib_addresses", "Addresses of a range by state.", float64(r.Free), labels, network.Name, network.Driver, r.CIDR.String(), "free")
		}
	}
}
