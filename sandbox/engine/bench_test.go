package engine

import (
	"testing"
	"time"
)

// BenchmarkInit measures one pod's init, started and stopped with a cold shim.
func BenchmarkInit(b *testing.B) {
	l := newLab(b)
	e, err := Open(b.Context(), l.cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { l.must(e.Close()) }()
	in := Init{PodID: l.pod, CgroupsPath: l.cg}
	var start, stop time.Duration
	for b.Loop() {
		t0 := time.Now()
		if _, err := e.StartInit(b.Context(), in); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := e.StopInit(b.Context(), l.pod); err != nil {
			b.Fatal(err)
		}
		start, stop = start+t1.Sub(t0), stop+time.Since(t1)
	}
	b.ReportMetric(float64(start.Microseconds())/1000/float64(b.N), "ms/start")
	b.ReportMetric(float64(stop.Microseconds())/1000/float64(b.N), "ms/stop")
}

// BenchmarkOpen measures opening and closing an engine without tasks.
func BenchmarkOpen(b *testing.B) {
	l := newLab(b)
	for b.Loop() {
		e, err := Open(b.Context(), l.cfg)
		if err != nil {
			b.Fatal(err)
		}
		l.must(e.Close())
	}
}
