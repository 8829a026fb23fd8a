package bridge

import (
	"slices"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/netns"
)

// BenchmarkAttachDetach measures a dual-stack pod with a host port; the making
// of its namespace is not counted. It reports the median of each half.
func BenchmarkAttachDetach(b *testing.B) {
	l := newLab(b, "10.9.0.0/16", "fd09::/64")
	port := network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80}
	var up, down []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		pod := network.Pod{ID: network.HostLinkName(name(i), "id") + "0123456789", Namespace: "default",
			Name: name(i), Netns: l.dir + "/" + name(i), Ports: []network.PortMapping{port}}
		pins, err := netns.Create(b.Context(), netns.Spec{Net: pod.Netns})
		must(b, err)
		b.StartTimer()
		start := time.Now()
		atts, err := l.n.Plan(pod, 0)
		must(b, err)
		atts, err = l.n.Attach(b.Context(), pod, atts, l.noSave)
		must(b, err)
		up = append(up, time.Since(start))
		start = time.Now()
		must(b, l.n.Detach(b.Context(), pod, atts))
		down = append(down, time.Since(start))
		must(b, netns.Remove(pins))
	}
	b.ReportMetric(median(up), "attach-p50-ms")
	b.ReportMetric(median(down), "detach-p50-ms")
}

// median in milliseconds.
func median(list []time.Duration) float64 {
	slices.Sort(list)
	return float64(list[len(list)/2].Microseconds()) / 1000
}

// BenchmarkLook measures looks at a node with many pods where all is well.
func BenchmarkLook(b *testing.B) {
	const pods = 200
	l := newLab(b, "10.9.0.0/16", "fd09::/64")
	for i := range pods {
		l.run(name(i))
	}
	for what, s := range map[string]scope{"everything": everything(), "host": {host: true}, "pins": {pins: true}, "table": {table: true}, "files": {files: true}} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if again, err := l.n.reconcile(b.Context(), s); err != nil || !again.IsZero() {
					b.Fatal(again, err)
				}
			}
		})
	}
	if last, _ := l.n.Repairs(); len(last) > 0 {
		b.Errorf("repairs %+v", last)
	}
}
