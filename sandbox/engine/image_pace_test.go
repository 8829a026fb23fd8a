package engine

import (
	"crypto/rand"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

func TestBrokenConnectionIsResumed(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := makeImage(t, runtime.GOARCH, ocispec.ImageConfig{}, testFiles{"random": noise(t, 1<<20)})
	ref := r.push("a:1", i)
	b := i.blobs[i.layers[0].Digest]
	var ranges []string
	r.withGate(layerGate(i, func(w http.ResponseWriter, req *http.Request) {
		ranges = append(ranges, req.Header.Get("Range")) // one request after the other
		if len(ranges) > 1 {
			r.serveContent(w, req)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}))
	if img := l.pull(e, ref); img.ID != i.id() {
		t.Errorf("pulled %+v", img)
	}
	if len(ranges) != 2 || ranges[1] == "" || ranges[1] == "bytes=0-" {
		t.Errorf("asked for the ranges %q", ranges)
	}
}

// noise is a file that does not compress.
func noise(t *testing.T, size int) string {
	t.Helper()
	b := make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLayersAreFetchedAtTheSameTime(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", i)
	var all sync.WaitGroup
	all.Add(len(i.layers))
	r.withGate(func(w http.ResponseWriter, req *http.Request) bool {
		for _, layer := range i.layers {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, layer.Digest.String()) {
				all.Done()
				all.Wait() // for ever, should another one not come
			}
		}
		return false
	})
	l.pull(e, ref)
}

func TestStalledPullEnds(t *testing.T) {
	l := newLab(t)
	l.cfg.PullIdle = 100 * time.Millisecond
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", i)
	r.withGate(layerGate(i, func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write(i.blobs[i.layers[0].Digest][:10])
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	}))
	if _, err := e.Pull(t.Context(), ref, image.Auth{}); !unavailable(err) {
		t.Errorf("Pull() = %v", err)
	}
	r.withGate(nil)
	l.pull(e, ref)
}

func TestPullSlowerThanTheMinimumEnds(t *testing.T) {
	l := newLab(t)
	l.cfg.PullIdle, l.cfg.PullMinRate = 200*time.Millisecond, 1<<30
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", i)
	r.withGate(layerGate(i, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for req.Context().Err() == nil {
			_, _ = w.Write([]byte{0})
			w.(http.Flusher).Flush()
			<-tick.C
		}
	}))
	if _, err := e.Pull(t.Context(), ref, image.Auth{}); !unavailable(err) {
		t.Errorf("Pull() = %v", err)
	}
}

func TestPaceIsMeasuredWhileSomethingIsOpen(t *testing.T) {
	p := pace{idle: 10 * time.Second, rate: 100}
	feed := func(open int64, counts ...uint64) (slow bool) {
		var h history
		for _, n := range counts {
			_, slow = h.slow(p, open, n)
		}
		return slow
	}
	steady := make([]uint64, 20)
	for n := range steady {
		steady[n] = uint64(n) * 101
	}
	still := make([]uint64, 20)
	for name, test := range map[string]struct{ got, want bool }{
		"steady":       {feed(1, steady...), false},
		"still":        {feed(1, still...), true},
		"unpacking":    {feed(0, still...), false},
		"too early":    {feed(1, still[:looks]...), false},
		"below":        {feed(1, 0, 90, 180, 270, 360, 450, 540, 630, 720, 810, 900), true},
		"in one burst": {feed(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: slow = %v", name, test.got)
		}
	}
}
