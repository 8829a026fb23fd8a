package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crib-runtime/crib/sandbox/image"
)

func (l *lab) pull(e *Engine, ref string) image.Image {
	l.Helper()
	img, err := e.Pull(l.Context(), ref, image.Auth{})
	if err != nil {
		l.Fatal(err)
	}
	return img
}

func TestPulledImageHasOneIDEverywhere(t *testing.T) {
	onEachEngine(t, func(l *lab) {
		e, r := l.open(), newRegistry(l)
		other := makeImage(l, "s390x", ocispec.ImageConfig{}, testFiles{"other": "other"})
		i := multiImage(ourImage(l, "one"), other)
		ref := r.push("a/b:1", i)
		pulled := l.pull(e, ref)
		byDigest := r.host + "/a/b@" + i.target.Digest.String()
		if pulled.ID != i.id() || !slices.Equal(pulled.Tags, []string{ref}) || !slices.Equal(pulled.Digests, []string{byDigest}) {
			l.Errorf("pulled %+v, want id %s", pulled, i.id())
		}
		for _, name := range []string{ref, i.id(), i.config.Digest.Encoded(), i.config.Digest.Encoded()[:8], byDigest} {
			if found, err := e.Image(l.Context(), name); err != nil || found.ID != i.id() {
				l.Errorf("Image(%s) = %v, %v", name, found.ID, err)
			}
		}
		all, err := e.Images(l.Context())
		if err != nil || len(all) != 1 || all[0].ID != i.id() {
			l.Errorf("Images() = %+v, %v", all, err)
		}
		if n := r.count(other.layers[0].Digest.String()); n != 0 {
			l.Errorf("the layer for another machine was fetched %d times", n)
		}
		l.must(e.RemoveImage(l.Context(), ref))
	})
}

func TestConfigOfImageIsInherited(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := makeImage(t, runtime.GOARCH, ocispec.ImageConfig{
		User: "www-data:33", Env: []string{"A=b"}, Entrypoint: []string{"/e"}, Cmd: []string{"c"}, WorkingDir: "/w",
		Volumes: map[string]struct{}{"/v2": {}, "/v1": {}}, StopSignal: "SIGQUIT",
	}, testFiles{"a": "a"})
	got := l.pull(e, r.push("a:1", i))
	want := "{www-data:33 [A=b] [/e] [c] /w [/v1 /v2] SIGQUIT}"
	if fmt.Sprint(got.Config) != want {
		t.Errorf("config %v, want %s", got.Config, want)
	}
	if size := uint64(i.target.Size + i.config.Size + i.layers[0].Size); got.Size != size {
		t.Errorf("size %d, want %d", got.Size, size)
	}
}

func TestTagThatMovesLeavesTheOldImageItsOtherNames(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	before, after := ourImage(t, "before"), ourImage(t, "after")
	ref := r.push("a:1", before)
	l.pull(e, ref)
	r.push("a:1", after)
	if img := l.pull(e, ref); img.ID != after.id() || !slices.Equal(img.Tags, []string{ref}) {
		t.Errorf("pulled %+v", img)
	}
	old, err := e.Image(t.Context(), before.id())
	if err != nil || len(old.Tags) != 0 || !slices.Equal(old.Digests, []string{r.host + "/a@" + before.target.Digest.String()}) {
		t.Errorf("old image %+v, %v", old, err)
	}
}

func TestRemovalByAnyReferenceRemovesAll(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	one, two := r.push("a:1", i), r.push("b:2", i)
	keep := ourImage(t, "keep")
	kept := l.pull(e, r.push("keep:1", keep))
	for _, by := range []string{one, two, i.id(), i.config.Digest.Encoded(), r.host + "/b@" + i.target.Digest.String()} {
		l.pull(e, one)
		if img := l.pull(e, two); len(img.Tags) != 2 || len(img.Digests) != 2 {
			t.Errorf("image %+v", img)
		}
		l.must(e.RemoveImage(t.Context(), by))
		all, err := e.Images(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != kept.ID {
			t.Errorf("after removal by %s: %+v, %v", by, all, err)
		}
		if _, err := os.Stat(e.images.blobPath(i.layers[0].Digest)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after removal by %s, its layer: %v", by, err)
		}
		l.must(e.RemoveImage(t.Context(), by))
	}
}

func TestUnknownImageIsNotFoundAndItsRemovalFine(t *testing.T) {
	l := newLab(t)
	e := l.open()
	for _, ref := range []string{"nothing", "sha256:" + strings.Repeat("0", 64), strings.Repeat("0", 64), "", "No Name"} {
		if _, err := e.Image(t.Context(), ref); !errdefs.IsNotFound(err) {
			t.Errorf("Image(%q) = %v, want not found", ref, err)
		}
		l.must(e.RemoveImage(t.Context(), ref))
	}
}

func TestErrorsOfPullsHaveTheirClass(t *testing.T) {
	l := newLab(t)
	l.cfg.PullIdle = 300 * time.Millisecond
	e, r := l.open(), newRegistry(t)
	l.cfg.Log.Info("registry", "host", r.host)
	i := ourImage(t, "one")
	locked := newRegistry(t)
	locked.push("a:1", i)
	locked.allow = "Basic bWU6c2VjcmV0"
	broken := newRegistry(t)
	broken.withGate(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	closing := newRegistry(t)
	closing.withGate(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	for ref, is := range map[string]func(error) bool{
		closing.host + "/a:1": unavailable,
		"UPPER CASE":          errdefs.IsInvalidArgument,
		r.host + "/no:1":      errdefs.IsNotFound,
		"127.0.0.1:1/a:1":     unavailable,
		"nowhere.invalid/a:1": unavailable,
		broken.host + "/a:1":  unavailable,
		locked.host + "/a:1":  errdefs.IsPermissionDenied,
	} {
		if _, err := e.Pull(t.Context(), ref, image.Auth{}); !is(err) {
			t.Errorf("Pull(%s) = %v", ref, err)
		}
	}
	if all, err := e.Images(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("Images() = %v, %v", all, err)
	}
}

// unavailable says whether an error is what the kubelet takes for it.
func unavailable(err error) bool {
	return errors.Is(err, image.ErrRegistryUnavailable) && strings.HasPrefix(err.Error(), "RegistryUnavailable: ")
}

func TestCredentialsAreToldToTheirServerOnly(t *testing.T) {
	const basic, token = "Basic bWU6c2VjcmV0", "Bearer tok"
	password := image.Auth{Username: "me", Password: "secret"}
	for name, test := range map[string]struct {
		auth         image.Auth
		allow, token string
		server       func(host string) string
		denied       bool
	}{
		"basic":                     {auth: password, allow: basic},
		"basic for this server":     {auth: password, allow: basic, server: func(h string) string { return h }},
		"basic for its address":     {auth: password, allow: basic, server: func(h string) string { return "http://" + h + "/v1/" }},
		"basic for another":         {auth: password, allow: basic, server: func(string) string { return "docker.io" }, denied: true},
		"token by password":         {auth: password, allow: token, token: "tok"},
		"token by identity":         {auth: image.Auth{IdentityToken: "identity"}, allow: token, token: "tok"},
		"registry token":            {auth: image.Auth{RegistryToken: "tok"}, allow: token},
		"registry token, another's": {auth: image.Auth{RegistryToken: "tok"}, allow: token, server: func(string) string { return "quay.io" }, denied: true},
		"wrong registry token":      {auth: image.Auth{RegistryToken: "tik"}, allow: token, denied: true},
		"nothing":                   {allow: basic, denied: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			e, r := l.open(), newRegistry(t)
			ref := r.push("a:1", ourImage(t, "one"))
			r.allow, r.token = test.allow, test.token
			if test.server != nil {
				test.auth.Server = test.server(r.host)
			}
			_, err := e.Pull(t.Context(), ref, test.auth)
			if test.denied != errdefs.IsPermissionDenied(err) || !test.denied && err != nil {
				t.Errorf("Pull() = %v", err)
			}
			if test.server != nil && test.denied && len(r.told()) != 0 {
				t.Errorf("another registry was told %v", r.told())
			}
		})
	}
}

func TestMirrorOfHostsTOMLIsAsked(t *testing.T) {
	l := newLab(t)
	first, second := t.TempDir(), t.TempDir()
	l.cfg.CertsDirs = []string{first, second}
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	r.push("library/busybox:1", i)
	dir := filepath.Join(second, "docker.io")
	l.must(os.MkdirAll(dir, 0o755))
	text := fmt.Sprintf("server = \"http://127.0.0.1:1\"\n[host.\"http://%s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", r.host)
	l.must(os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644))
	img, err := e.Pull(t.Context(), "busybox:1", image.Auth{Username: "me", Password: "secret", Server: "docker.io"})
	if err != nil || img.ID != i.id() || !slices.Equal(img.Tags, []string{"docker.io/library/busybox:1"}) {
		t.Errorf("Pull() = %+v, %v", img, err)
	}
	if told := r.told(); len(told) != 0 {
		t.Errorf("the mirror was told %v", told)
	}
}

func TestEqualPullsAreOneDownload(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", i)
	asked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.withGate(layerGate(i, func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(asked) })
		<-goOn
		_, _ = w.Write(i.blobs[i.layers[0].Digest])
	}))
	errs := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	for n := range 5 {
		pullCtx := t.Context()
		if n == 0 {
			pullCtx = ctx
		}
		go func() {
			_, err := e.Pull(pullCtx, ref, image.Auth{})
			errs <- err
		}()
		if n == 0 {
			<-asked
		}
	}
	l.awaitWaiters(e, 5)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller's pull = %v", err)
	}
	close(goOn)
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("Pull() = %v", err)
		}
	}
	if n := r.count(i.layers[0].Digest.String()); n != 1 {
		t.Errorf("the layer was fetched %d times", n)
	}
}

// awaitWaiters waits until so many callers wait for one download.
func (l *lab) awaitWaiters(e *Engine, n int) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		e.images.pulls.mu.Lock()
		for _, one := range e.images.pulls.running {
			if one.waiters == n {
				e.images.pulls.mu.Unlock()
				return
			}
		}
		e.images.pulls.mu.Unlock()
		runtime.Gosched()
	}
	l.Errorf("no download has %d waiters", n)
}

func TestPullEndsWithItsCallersContext(t *testing.T) {
	l := newLab(t)
	e, r := l.open(), newRegistry(t)
	i := ourImage(t, "one")
	ref := r.push("a:1", i)
	asked, gone := make(chan struct{}), make(chan struct{})
	r.withGate(layerGate(i, func(_ http.ResponseWriter, req *http.Request) {
		close(asked)
		<-req.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := e.Pull(ctx, ref, image.Auth{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Pull() = %v", err)
	}
	<-gone // nobody waits: the download has ended
	r.withGate(nil)
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := e.Pull(ctx, ref, image.Auth{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Pull() = %v", err)
	}
	l.pull(e, ref)
}
