package logpump

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// BenchmarkIdle measures the memory of a pump through which nothing comes.
func BenchmarkIdle(b *testing.B) {
	const pumps = 100
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]*Pump, 0, pumps)
		writers := make([]*os.File, 0, 2*pumps)
		for range pumps {
			dir := b.TempDir()
			p, err := Open(Config{Dir: dir, LogPath: filepath.Join(dir, "0.log")})
			if err != nil {
				b.Fatal(err)
			}
			for _, path := range []string{p.Files().Stdout, p.Files().Stderr} {
				w, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = w.WriteString("a line\n")
				writers = append(writers, w)
			}
			p.Run()
			all = append(all, p)
		}
		runtime.GC()
		runtime.GC() // empties the pools as well
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc-before.HeapAlloc))/pumps/1024, "KiB-heap/pump")
		b.ReportMetric(float64(int64(after.StackInuse-before.StackInuse))/pumps/1024, "KiB-stack/pump")
		for _, w := range writers {
			_ = w.Close()
		}
		for _, p := range all {
			<-p.Done()
			if err := p.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}

// BenchmarkThroughput measures lines of 100 bytes from the FIFO to the log.
func BenchmarkThroughput(b *testing.B) {
	dir := b.TempDir()
	p, err := Open(Config{Dir: dir, LogPath: filepath.Join(dir, "0.log"), TTY: true})
	if err != nil {
		b.Fatal(err)
	}
	w, err := os.OpenFile(p.Files().Stdout, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	p.Run()
	lines := make([]byte, 3200)
	for i := range lines {
		lines[i] = 'x'
		if i%100 == 99 {
			lines[i] = '\n'
		}
	}
	b.SetBytes(int64(len(lines)))
	for b.Loop() {
		if _, err := w.Write(lines); err != nil {
			b.Fatal(err)
		}
	}
	_ = w.Close()
	<-p.Done()
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}
