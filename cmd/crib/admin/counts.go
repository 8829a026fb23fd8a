package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts collects what is counted when asked.
type counts struct{ source Source }

// gauges sends values.
type gauges chan<- prometheus.Metric

func (out gauges) send(name, help string, value float64, labels prometheus.Labels) {
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), prometheus.GaugeValue, value)
}

// Describe sends nothing: the collector is unchecked, its labels are of the moment.
func (counts) Describe(chan<- *prometheus.Desc) {}

// Collect counts pods, containers, operations, debts and addresses.
func (c counts) Collect(out chan<- prometheus.Metric) {
	c.objects(gauges(out))
	c.work(gauges(out))
	for _, network := range c.source.Networks() {
		network.collect(gauges(out))
	}
}

func (c counts) objects(out gauges) {
	pods := map[string]int{"Ready": 0, "NotReady": 0}
	for _, pod := range c.source.Pods() {
		pods[pod.State]++
	}
	for state, n := range pods {
		out.send("crib_pods", "Pods by state.", float64(n), prometheus.Labels{"state": state})
	}
	containers := map[string]int{"Created": 0, "Running": 0, "Exited": 0}
	for _, c := range c.source.Containers() {
		containers[c.State]++
	}
	for state, n := range containers {
		out.send("crib_containers", "Containers by state.", float64(n), prometheus.Labels{"state": state})
	}
}

func (c counts) work(out gauges) {
	work := c.source.Ops()
	oldest := 0.0
	for _, op := range work.InFlight {
		oldest = max(oldest, op.Age.Seconds())
	}
	out.send("crib_operations", "Operations in flight.", float64(len(work.InFlight)), nil)
	out.send("crib_oldest_operation_seconds", "Age of the oldest operation in flight.", oldest, nil)
	if work.Reason != "" {
		out.send("crib_stuck", "Whether operations are stuck, and why.", 1, prometheus.Labels{"reason": work.Reason})
	}
	owed, since := map[string]int{"pod": 0, "container": 0}, map[string]float64{}
	for _, debt := range work.Owed {
		owed[debt.Object]++
		since[debt.Object] = max(since[debt.Object], time.Since(debt.Since).Seconds())
	}
	for object, n := range owed {
		labels := prometheus.Labels{"object": object}
		out.send("crib_owed", "Teardowns that are not finished and tried again.", float64(n), labels)
		out.send("crib_oldest_owed_seconds", "Age of the oldest teardown that is not finished.", since[object], labels)
	}
}

func (n Network) collect(out gauges) {
	ready := 0.0
	if n.Status.Ready {
		ready = 1
	}
	out.send("crib_network_ready", "Whether new pods can get the network.", ready, prometheus.Labels{"network": n.Name, "driver": n.Driver})
	for _, r := range n.Ranges {
		for state, count := range map[string]uint64{"used": r.Used, "free": r.Free} {
			out.send("crib_addresses", "Addresses of a range by state.", float64(count), prometheus.Labels{
				"network": n.Name, "driver": n.Driver, "cidr": r.CIDR.String(), "state": state,
			})
		}
	}
}
