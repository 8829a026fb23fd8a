package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
	"github.com/crib-runtime/crib/network/netns/nstest"
)

// containerdSocket is where clients of containerd look for it.
const containerdSocket = "/run/containerd/containerd.sock"

// startAsContainerd starts crib where containerd is expected, on one socket.
func startAsContainerd(t *testing.T) *crib {
	t.Helper()
	nstest.Lab(t)
	return startWith(t, lab.Options{Config: "listen = \"" + containerdSocket + "\"\n" + defaults, Socket: containerdSocket})
}

// ctr runs ctr, which finds the socket by itself, and returns what it prints.
func (c *crib) ctr(args ...string) string {
	c.t.Helper()
	return c.ctrWith(nil, args...)
}

func (c *crib) ctrWith(stdin []byte, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), os.Getenv(ctrEnv), args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("ctr %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// kindLoad imports the lab's image as `kind load` does.
func (c *crib) kindLoad() {
	c.t.Helper()
	archive, err := lab.Archive()
	if err != nil {
		c.t.Fatal(err)
	}
	c.ctrWith(archive, "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "--snapshotter=overlayfs", "-")
}

// images returns the tags of all images by their ids, as CRI tells them.
func (c *crib) images() map[string][]string {
	c.t.Helper()
	resp, err := c.Images().ListImages(c.t.Context(), &runtime.ListImagesRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string][]string{}
	for _, image := range resp.Images {
		all[image.Id] = image.RepoTags
	}
	return all
}

// TestImagesOfKindAndCtrAreCRIsAtOnce: and are ctr's, when CRI has changed them.
func TestImagesOfKindAndCtrAreCRIsAtOnce(t *testing.T) {
	c := startAsContainerd(t)
	c.kindLoad()
	loaded := c.images()
	if len(loaded) != 1 {
		t.Fatalf("images after an import: %v", loaded)
	}
	const tag = "crib.test/of-ctr:2"
	c.ctr("-n", "k8s.io", "images", "tag", lab.Image, tag)
	c.ctr("-n", "k8s.io", "images", "tag", lab.Image, "short:3") // as it is written
	for id, tags := range loaded {
		if got := c.images()[id]; !slices.Equal(tags, []string{lab.Image}) || !slices.Equal(got, []string{lab.Image, tag, "short:3"}) {
			t.Errorf("image %s: tags %v, then %v", id, tags, got)
		}
	}
	c.ctr("-n", "k8s.io", "images", "rm", lab.Image)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	for _, name := range []string{tag, "short:3"} {
		cfg := c.Container("of-"+strings.NewReplacer("/", "-", ":", "-").Replace(name), "true")
		cfg.Image.Image = name
		if got := c.exited(c.launch(podID, pod, cfg)); got.ExitCode != 0 || loaded[got.ImageId] == nil {
			t.Errorf("a container of %s: %v", name, got)
		}
	}
	if err := errors.Join(c.Kill(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := c.images(); len(got) != 1 {
		t.Errorf("images after a crash: %v", got)
	}
	if _, err := c.Images().RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: "short:3"}}); err != nil {
		t.Fatal(err)
	}
	if names := c.ctr("-n", "k8s.io", "images", "ls", "-q"); strings.Contains(names, tag) || len(c.images()) != 0 {
		t.Errorf("after its removal: %s, %v", names, c.images())
	}
}

// TestContainersOfCtrOutliveTheDaemon, and are no part of what it sweeps or resets.
func TestContainersOfCtrOutliveTheDaemon(t *testing.T) {
	c := startAsContainerd(t)
	c.kindLoad()
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	ours := c.launch(podID, pod, c.Container("ours", "sleep", "1000"))
	archive, err := lab.Archive()
	if err != nil {
		t.Fatal(err)
	}
	c.ctrWith(archive, "-n", "moby", "images", "import", "-")
	pids := map[string]string{}
	for _, namespace := range []string{"k8s.io", "moby"} {
		cgroup := "--cgroup=" + pod.Linux.CgroupParent + "/" + namespace
		c.ctr("-n", namespace, "run", "-d", "--null-io", cgroup, lab.Image, "theirs", "/bin/sleep", "1000")
		pids[namespace] = taskPID(t, c.ctr("-n", namespace, "tasks", "ls"), "theirs")
	}
	theyRun := func() {
		for namespace, pid := range pids {
			if got := taskPID(t, c.ctr("-n", namespace, "tasks", "ls"), "theirs"); got != pid {
				t.Errorf("%s: process %s before, %s after", namespace, pid, got)
			}
		}
	}
	c.sees(podID, ours)

	events := c.followEvents()
	// A client that follows events does not hold up the end.
	if err := errors.Join(c.Terminate(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := events.Wait(); err == nil {
		t.Error("ctr events does not know that the daemon ended")
	}
	if err := errors.Join(c.Kill(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	theyRun()
	c.sees(podID, ours)

	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Command(t.Context(), "reset").CombinedOutput(); err == nil || !strings.Contains(string(out), "k8s.io/theirs, moby/theirs") {
		t.Errorf("crib reset with others' containers: %v\n%s", err, out)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	theyRun()
	for namespace := range pids {
		c.ctr("-n", namespace, "tasks", "rm", "-f", "theirs")
		c.ctr("-n", namespace, "containers", "rm", "theirs")
	}
}

// followEvents starts a client that follows events, and waits until it does.
func (c *crib) followEvents() *exec.Cmd {
	c.t.Helper()
	events := exec.CommandContext(c.t.Context(), os.Getenv(ctrEnv), "events")
	first := &firstLine{seen: make(chan struct{})}
	events.Stdout = first
	if err := events.Start(); err != nil {
		c.t.Fatal(err)
	}
	for i := 0; !first.closed(); i++ {
		c.ctr("-n", "moby", "images", "label", lab.Image, "i="+strconv.Itoa(i))
	}
	return events
}

// sees checks that ctr lists a pod's process and a container of it as running.
func (c *crib) sees(ids ...string) {
	c.t.Helper()
	listed := c.ctr("-n", "k8s.io", "tasks", "ls")
	for _, id := range ids {
		taskPID(c.t, listed, id)
	}
}

// taskPID finds the process of a task that runs in what `ctr tasks ls` prints.
func taskPID(t *testing.T, listed, id string) string {
	t.Helper()
	for line := range strings.Lines(listed) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == id && fields[2] == "RUNNING" {
			return fields[1]
		}
	}
	t.Errorf("task %s does not run:\n%s", id, listed)
	return ""
}

// firstLine tells when something is written to it.
type firstLine struct{ seen chan struct{} }

func (f *firstLine) Write(b []byte) (int, error) {
	if !f.closed() {
		close(f.seen)
	}
	return len(b), nil
}

func (f *firstLine) closed() bool {
	select {
	case <-f.seen:
		return true
	default:
		return false
	}
}

// TestCAdvisorFindsAPodsNetworkByItsSandbox: of a cgroup it takes the 64 digits at the
// end, asks for the container of that id, and reads the network of the process of one
// whose kind is sandbox. By the labels it tells whose it is.
func TestCAdvisorFindsAPodsNetworkByItsSandbox(t *testing.T) {
	c := startAsContainerd(t)
	c.kindLoad()
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	cfg := c.Container("b", "sleep", "1000")
	cfg.Labels = map[string]string{"io.kubernetes.container.name": "b"}
	id := c.launch(podID, pod, cfg)
	listed := c.ctr("-n", "k8s.io", "tasks", "ls")
	for _, want := range []struct{ id, kind, image, label, value string }{
		{podID, "sandbox", "", "io.kubernetes.pod.name", "a"},
		{id, "container", lab.Image, "io.kubernetes.container.name", "b"},
	} {
		var info struct {
			Labels map[string]string
			Image  string
		}
		if err := json.Unmarshal([]byte(c.ctr("-n", "k8s.io", "containers", "info", want.id)), &info); err != nil {
			t.Fatal(err)
		}
		if info.Labels["io.cri-containerd.kind"] != want.kind || info.Labels[want.label] != want.value {
			t.Errorf("labels of the %s: %v", want.kind, info.Labels)
		}
		if info.Image != want.image {
			t.Errorf("image of the %s: %q, want %q", want.kind, info.Image, want.image)
		}
		pid := taskPID(t, listed, want.id)
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil || !strings.Contains(string(groups), want.id) {
			t.Errorf("cgroups of the %s: %s, %v", want.kind, groups, err)
		}
	}
	netns, err := os.Stat("/proc/" + taskPID(t, listed, podID) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if pinned, err := os.Stat(filepath.Join("/run/netns", filepath.Base(lab.Netns(podID)))); err != nil || !os.SameFile(netns, pinned) {
		t.Errorf("the sandbox is not in its pod's network: %v", err)
	}
}
