package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox/image"
)

func TestPullsAndRemovalsAtOnceLeaveWholeImages(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e, r := l.open(), newRegistry(l)
		i := ourImage(l, "one")
		refs := []string{r.push("a:1", i), r.push("b:1", i), r.push("c:1", multiImage(i))}
		var work sync.WaitGroup
		for _, ref := range refs {
			work.Go(func() {
				for n := range 10 {
					if _, err := e.Pull(l.Context(), ref, image.Auth{}); err != nil && !errdefs.IsNotFound(err) {
						l.Errorf("Pull() = %v", err) // not found: removed meanwhile
					}
					err := e.PrepareRoot(l.Context(), fmt.Sprintf("%c%d", ref[len(ref)-3], n), i.id(), netns.Users{}, func(string) error { return nil })
					if err != nil && !errdefs.IsNotFound(err) {
						l.Errorf("PrepareRoot() = %v", err)
					}
					l.must(e.RemoveImage(l.Context(), ref))
				}
			})
		}
		work.Wait()
		l.pull(e, refs[0])
		l.readRoot(e, i, "one")
		roots, err := e.Roots(l.Context())
		l.must(err)
		for _, id := range roots {
			l.must(e.RemoveRoot(l.Context(), id))
		}
		l.must(e.RemoveImage(l.Context(), i.id()))
		l.must(e.gc(l.Context()))
		l.nothingStored(e)
	})
}

// pullChild is a daemon that pulls an image and is killed meanwhile.
func pullChild(args []string) error {
	e, err := Open(context.Background(), Config{
		Root: args[0], State: args[1], Shim: args[2], Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	_, err = e.Pull(context.Background(), args[3], image.Auth{})
	return err
}

func TestPullGoesOnWhereAKilledDaemonWas(t *testing.T) {
	l := newLab(t)
	r := newRegistry(t)
	i := makeImage(t, runtime.GOARCH, ocispec.ImageConfig{}, testFiles{"one": "one", "random": noise(t, 4<<20)})
	ref := r.push("a:1", i)
	b := i.blobs[i.layers[0].Digest]
	r.withGate(layerGate(i, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	}))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{l.cfg.Root, l.cfg.State, l.cfg.Shim, ref}, "|"))
	cmd.Stderr = l.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.awaitIngest()
	l.must(cmd.Process.Kill())
	_ = cmd.Wait() // killed, as it says

	var asked string
	r.withGate(layerGate(i, func(w http.ResponseWriter, req *http.Request) {
		asked = req.Header.Get("Range")
		r.serveContent(w, req)
	}))
	e := l.open()
	l.pull(e, ref)
	if asked == "" || asked == "bytes=0-" {
		t.Errorf("asked for the range %q", asked)
	}
	l.readRoot(e, i, "one")
}

// awaitIngest waits until some of a layer is in the content store.
func (l *lab) awaitIngest() {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		files, err := filepath.Glob(filepath.Join(l.cfg.Root, "io.containerd.content.v1.content/ingest/*/data"))
		l.must(err)
		for _, file := range files {
			if st, err := os.Stat(file); err == nil && st.Size() > 1<<20 {
				return
			}
		}
		runtime.Gosched()
	}
	l.Error("nothing of the layer came")
}
