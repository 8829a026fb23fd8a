package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/image"
)

// createTime bounds the making of a container, whatever became of the caller. It
// is less than the two minutes after which the kubelet gives CreateContainer up.
const createTime = 110 * time.Second

// Create makes a container in a Ready pod and returns its id; nothing of it runs
// yet. A call with the key of a container that is being made waits for it; one
// with the key of a created or running container gets that one's id. When it
// fails nothing is left, or the rest is owed and not shown to clients.
func (m *Manager) Create(ctx context.Context, spec Spec) (id string, err error) {
	if err := validate(&spec); err != nil {
		return "", err
	}
	op := m.begin(ctx, "CreateContainer", spec.Key, "")
	defer func() { op.End(err) }()
	unlock, err := m.lock(ctx, op, spec.Key)
	if err != nil {
		return "", fmt.Errorf("wait for the earlier call that makes container %s: %w", spec.Name, err)
	}
	defer unlock()
	if c := m.living(spec.Key); c != nil {
		return c.ID, nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	start := time.Now()
	if _, err := m.readyPod(spec.PodID); err != nil {
		return "", err
	}
	c, img, err := m.plan(ctx, spec)
	if err != nil {
		return "", err
	}
	op.Named(c.ID)
	if err = m.add(c); err == nil {
		err = m.make(ctx, c, img)
	}
	if err != nil {
		return "", errors.Join(err, m.remove(c))
	}
	m.cfg.Log.Info("a container is created", "event", "ContainerCreated", "container", label(c), "pod", spec.PodID, "took", time.Since(start))
	return c.ID, nil
}

// living returns the container of a key that was not used up, or nil.
func (m *Manager) living(key Key) *Container {
	for _, c := range m.snapshot() {
		if c.Spec.Key == key && (c.State == Created || c.State == Running) && !c.Removing {
			return c
		}
	}
	return nil
}

// readyPod returns a pod that containers may be made and started in.
func (m *Manager) readyPod(id string) (*sandbox.Pod, error) {
	pod, err := m.cfg.Pods.Get(id)
	if err != nil {
		return nil, err
	}
	if pod.State != sandbox.Ready {
		return nil, fmt.Errorf("pod %s (%.12s) is %s, nothing runs in it any more: %w", pod.Spec.Key, id, pod.State, errdefs.ErrFailedPrecondition)
	}
	return pod, nil
}

// plan finds the image and fills the record.
func (m *Manager) plan(ctx context.Context, spec Spec) (*Container, image.Image, error) {
	defer m.cfg.Pods.Ops().Holder(spec.Key).Stage("image")()
	img, err := m.cfg.Images.Image(ctx, spec.Image.Image)
	if err != nil {
		return nil, img, fmt.Errorf("find image %q of container %s, which has to be pulled before: %w", spec.Image.Image, spec.Name, err)
	}
	c := &Container{
		ID:         newID(),
		Spec:       spec,
		State:      Creating,
		BootID:     m.cfg.BootID,
		ImageID:    img.ID,
		ImageRef:   img.ID,
		CreatedAt:  m.createdAt(spec.Key),
		StopSignal: stopSignal(spec.StopSignal, img.Config.StopSignal),
	}
	if len(img.Digests) > 0 {
		c.ImageRef = img.Digests[0]
	}
	return c, img, nil
}

// make makes what the record says. The pod is looked at again, now that a stop of
// the pod finds the record: it was Ready before that, or the stop waits for us.
func (m *Manager) make(ctx context.Context, c *Container, img image.Image) error {
	user, err := m.build(ctx, c, img)
	if err != nil {
		return err
	}
	_, err = m.change(c.ID, func(c *Container) { c.State, c.User = Created, user })
	return err
}

// build makes the root and hands the container to the engine.
func (m *Manager) build(ctx context.Context, c *Container, img image.Image) (EffectiveUser, error) {
	var spec *specs.Spec
	var user EffectiveUser
	pod, err := m.readyPod(c.Spec.PodID)
	if err != nil {
		return user, err
	}
	c, err = m.mountImages(ctx, c, pod.Spec.Namespaces.Users)
	if err != nil {
		return user, err
	}
	var refused error // as it is: kubelets know some errors by their first word
	done := m.stage(c, "root")
	err = m.cfg.Roots.PrepareRoot(ctx, c.ID, c.ImageID, pod.Spec.Namespaces.Users, func(root string) error {
		spec, user, refused = m.cfg.Spec(ctx, c, pod, img, root)
		return refused
	})
	done()
	if refused != nil && err != nil {
		return user, refused
	}
	if err != nil {
		return user, wrap("prepare the root", c, err)
	}
	defer m.stage(c, "engine")()
	err = m.cfg.Tasks.Create(ctx, Launch{
		ID:        c.ID,
		PodID:     c.Spec.PodID,
		ImageID:   c.ImageID,
		ImageName: cmp.Or(c.Spec.Image.UserImage, c.Spec.Image.Image),
		Labels:    maps.Clone(c.Spec.Labels),
		Spec:      spec,
		LogPath:   c.Spec.LogPath,
		Stdin:     c.Spec.Process.Stdin,
		StdinOnce: c.Spec.Process.StdinOnce,
		TTY:       c.Spec.Process.TTY,
	})
	return user, wrap("tell the engine", c, err)
}

// mountImages mounts the images that are volumes. The container that it returns has
// them as paths of the host, which is for the specification only.
func (m *Manager) mountImages(ctx context.Context, c *Container, users netns.Users) (*Container, error) {
	mounts, n := slices.Clone(c.Spec.Mounts), 0
	for i, mount := range mounts {
		if mount.Image == "" {
			continue
		}
		img, err := m.cfg.Images.Image(ctx, mount.Image)
		if err == nil {
			mounts[i].ImageID = img.ID
			mounts[i].HostPath, err = m.cfg.Roots.MountImage(ctx, c.ID, n, img.ID, users)
		}
		if err != nil { // the kubelet knows the first word
			return nil, fmt.Errorf("ImageVolumeMountFailed: image %q for %s of container %s: %w", mount.Image, mount.ContainerPath, c.Spec.Name, err)
		}
		n++
	}
	if n == 0 {
		return c, nil
	}
	_, err := m.change(c.ID, func(c *Container) {
		c.Spec.Mounts = slices.Clone(c.Spec.Mounts)
		for i := range c.Spec.Mounts {
			c.Spec.Mounts[i].ImageID = mounts[i].ImageID
		}
	})
	mounted := *c
	mounted.Spec.Mounts = mounts
	return &mounted, err
}

// createdAt returns now, or an instant after the earlier containers of the name
// in the pod: the kubelet takes the newest for the current one, and clocks are
// set back.
func (m *Manager) createdAt(key Key) time.Time {
	at := time.Now().UTC().Round(0)
	for _, c := range m.snapshot() {
		if c.Spec.Name == key.Name && m.samePod(c.Spec.PodID, key.PodID) {
			at = later(at, c.CreatedAt)
		}
	}
	return at
}

// samePod tells whether two sandboxes are of one pod of the kubelet.
func (m *Manager) samePod(a, b string) bool {
	if a == b {
		return true
	}
	one, errOne := m.cfg.Pods.Get(a)
	two, errTwo := m.cfg.Pods.Get(b)
	if errOne != nil || errTwo != nil {
		return false
	}
	k, l := one.Spec.Key, two.Spec.Key
	k.Attempt, l.Attempt = 0, 0
	return k == l
}

// later returns at, or an instant after the other time if at is not later.
func later(at, than time.Time) time.Time {
	if at.After(than) {
		return at
	}
	return than.Add(time.Nanosecond)
}

func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}
