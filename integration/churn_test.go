package integration

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// churn makes, runs and removes pods with two containers each, five side by side,
// and kills the daemon at the given call.
type churn struct {
	*crib
	killAt int64
	calls  atomic.Int64
	dead   chan struct{} // closed when it is time to kill
}

// churnUntilKilled churns until the daemon is killed; every worker ends with its
// first error, which is the end of the daemon.
func (c *crib) churnUntilKilled(killAt int64, shared bool) {
	c.t.Helper()
	ch := &churn{crib: c, killAt: killAt, dead: make(chan struct{})}
	var workers sync.WaitGroup
	for i := range 5 {
		workers.Go(func() {
			for n := 0; ch.life(fmt.Sprintf("churn-%d-%d", i, n), shared) == nil; n++ {
			}
		})
	}
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	select {
	case <-ch.dead:
	case <-idle:
		c.t.Error("calls failed before the daemon was killed")
	}
	if err := c.Kill(); err != nil {
		c.t.Fatal(err)
	}
	<-idle
}

// step counts a call that is about to be made.
func (ch *churn) step() {
	if ch.calls.Add(1) == ch.killAt {
		close(ch.dead)
	}
}

// life is that of one pod.
func (ch *churn) life(name string, shared bool) error {
	ctx := ch.t.Context()
	pod := ch.Pod(name)
	if shared {
		pod.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	}
	ch.step()
	podID, err := ch.Run(ctx, pod)
	for i := 0; i < 2 && err == nil; i++ {
		err = ch.containerLife(ctx, podID, pod, fmt.Sprint("c", i))
	}
	if err != nil {
		return err
	}
	ch.step()
	return ch.Remove(ctx, podID)
}

// containerLife is that of a container; every other one is left for its pod's removal.
func (ch *churn) containerLife(ctx context.Context, podID string, pod *runtime.PodSandboxConfig, name string) error {
	cfg := ch.Container(name, "sleep", "1000")
	cfg.Linux.SecurityContext.NamespaceOptions = pod.Linux.SecurityContext.NamespaceOptions
	ch.step()
	created, err := ch.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: pod})
	if err != nil {
		return err
	}
	ch.step()
	_, err = ch.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: created.ContainerId})
	if err != nil || name == "c1" {
		return err
	}
	ch.step()
	if _, err = ch.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: created.ContainerId}); err != nil {
		return err
	}
	ch.step()
	_, err = ch.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: created.ContainerId})
	return err
}

// traces returns what is there of containers: their records, their files in the
// engine, snapshots, mounts, cgroups, and shims.
func (c *crib) traces() (found []string) {
	c.t.Helper()
	engine, root := filepath.Join(lab.State, "engine"), filepath.Join(c.Dir, "root")
	for _, pattern := range []string{
		engine + "/c/*", engine + "/x/*", engine + "/s/*", engine + "/oci/k8s.io/*",
		engine + "/io.containerd.runtime.v2.task/k8s.io/*",
		root + "/engine/io.containerd.runtime.v2.task/k8s.io/*",
		root + "/engine/io.containerd.snapshotter.v1.*/snapshots/*",
		root + "/pods/*", root + "/volumes/*",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			c.t.Fatal(err)
		}
		found = append(found, names...)
	}
	found = append(found, mountsOf(c.t, engine)...)
	found = append(found, mountsOf(c.t, root)...)
	parent := c.Pod("").Linux.CgroupParent
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
	for _, dir := range append(roots, "/sys/fs/cgroup"+parent) {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && path != dir {
				found = append(found, path)
			}
			return nil // it went away
		})
	}
	for range c.shims() {
		found = append(found, "a shim")
	}
	return found
}

// oneLife is that of a pod with a container.
func (c *crib) oneLife() {
	c.t.Helper()
	pod := c.Pod("one")
	id, _ := c.pod(pod)
	c.launch(id, pod, c.Container("c", "true"))
	if err := c.RemoveAll(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// settled waits until there are so many traces and returns those that there are.
// containerd does not collect a snapshot that was removed while it collected others,
// until the next one is removed.
func (c *crib) settled(want int) (now []string) {
	c.t.Helper()
	for range 3 {
		if c.eventually(func() bool { now = c.traces(); return len(now) == want }) {
			break
		}
		c.oneLife()
	}
	return now
}

// TestNothingIsLeftOfContainersAfterKillsDuringTheirChurn kills the daemon at
// another call of the lives of pods and containers each time.
func TestNothingIsLeftOfContainersAfterKillsDuringTheirChurn(t *testing.T) {
	c := startWithImage(t)
	c.oneLife() // the image is unpacked with its first container
	var before []string
	if !c.eventually(func() bool { before = c.traces(); return len(before) <= 1 }) {
		t.Fatalf("before the first kill: %q", before)
	}
	for i := range kills {
		c.churnUntilKilled(int64(9+i*7), i%2 == 1)
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.RemoveAll(t.Context()); err != nil {
			t.Errorf("after kill %d: %v", i, err)
		}
		if now := c.settled(len(before)); len(now) != len(before) {
			t.Fatalf("after kill %d: %s", i, strings.Join(now, "\n"))
		}
	}
}

// kills is how often the daemon is killed.
const kills = 6
