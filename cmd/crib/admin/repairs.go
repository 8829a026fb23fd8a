package admin

import "github.com/prometheus/client_golang/prometheus"

// repairs collects how often networks were repaired, and what is wrong with them.
type repairs struct{ source Source }

// Describe sends nothing: the collector is unchecked, its labels are of the moment.
func (repairs) Describe(chan<- *prometheus.Desc) {}

// Collect counts by network and kind of thing.
func (r repairs) Collect(out chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), kind, value)
	}
	for _, network := range r.source.Networks() {
		for kind, n := range network.Repaired {
			send(prometheus.CounterValue, "crib_repairs_total", "What was repaired of networks, by kind.", float64(n),
				prometheus.Labels{"network": network.Name, "kind": kind})
		}
		open := map[string]int{}
		for _, f := range network.Findings {
			open[f.Kind]++
		}
		for kind, n := range open {
			send(prometheus.GaugeValue, "crib_network_findings", "What is wrong with networks and stays so for now, by kind.", float64(n),
				prometheus.Labels{"network": network.Name, "kind": kind})
		}
	}
}
