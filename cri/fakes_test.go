package cri

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

// world is containers, images and streams as tests want them.
type world struct {
	containers []*container.Container
	images     []image.Image
	err        error // of whatever is called
	execErr    error
	output     []byte
	stopped    time.Duration
	updated    container.Resources
	session    Session
	auth       image.Auth
}

// service returns one that works with the world and no pods.
func (w *world) service(t testing.TB) *Service {
	t.Helper()
	return &Service{cfg: Config{
		Pods: sandbox.New(sandbox.Config{}), Containers: w, Images: imagesOf{w}, Streams: w, Calls: &sync.WaitGroup{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
}

// one returns a record with a whole id that begins with letter.
func one(letter string, state container.State) *container.Container {
	return &container.Container{
		ID: strings.Repeat(letter, 64), State: state, ImageID: "sha256:1234", CreatedAt: time.Unix(10, 0),
		Spec: container.Spec{Key: container.Key{PodID: "pod-of-" + letter, Name: letter}, Labels: map[string]string{"l": letter}},
	}
}

func (w *world) Get(id string) (*container.Container, error) {
	for _, c := range w.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

func (w *world) List() []*container.Container { return w.containers }

func (w *world) Create(context.Context, container.Spec) (string, error) { return "", w.err }
func (w *world) Start(context.Context, string) error                    { return w.err }
func (w *world) Remove(context.Context, string) error                   { return w.err }
func (w *world) ReopenLog(context.Context, string) error                { return w.err }

func (w *world) Stop(_ context.Context, _ string, grace time.Duration) error {
	w.stopped = grace
	return w.err
}

func (w *world) Update(_ context.Context, _ string, r container.Resources) error {
	w.updated = r
	return w.err
}

func (w *world) ExecSync(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
	return w.output, w.output, 3, w.execErr
}

func (w *world) RuntimeSpec(_ context.Context, id string) (*specs.Spec, error) {
	return &specs.Spec{Hostname: id}, w.err
}

func (w *world) ExecURL(s Session) (string, error)   { return w.url("exec", s) }
func (w *world) AttachURL(s Session) (string, error) { return w.url("attach", s) }
func (w *world) PortForwardURL(string, []int32) (string, error) {
	return w.url("portforward", Session{})
}
func (w *world) url(kind string, s Session) (string, error) {
	w.session = s
	return "http://host/" + kind, w.err
}

// imagesOf is the world's images.
type imagesOf struct{ *world }

func (w imagesOf) Pull(_ context.Context, ref string, auth image.Auth) (image.Image, error) {
	w.auth = auth
	if w.err != nil {
		return image.Image{}, w.err
	}
	return w.Image(context.Background(), ref)
}

func (w imagesOf) Image(_ context.Context, ref string) (image.Image, error) {
	for _, i := range w.images {
		if i.ID == ref {
			return i, nil
		}
	}
	return image.Image{}, fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
}

func (w imagesOf) Images(context.Context) ([]image.Image, error) { return w.images, w.err }
func (w imagesOf) RemoveImage(context.Context, string) error     { return w.err }
func (w imagesOf) ImageUsage(context.Context) (image.FilesystemUsage, error) {
	return image.FilesystemUsage{Mountpoint: "/images", At: time.Unix(10, 0)}, w.err
}
