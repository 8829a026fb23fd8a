package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// startWithImage starts crib and imports the lab's image.
func startWithImage(t *testing.T) *crib {
	t.Helper()
	c := start(t, defaults)
	if err := c.ImportImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// launch runs a container in a pod.
func (c *crib) launch(podID string, pod *runtime.PodSandboxConfig, cfg *runtime.ContainerConfig) string {
	c.t.Helper()
	id, err := c.Launch(c.t.Context(), podID, pod, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *crib) container(id string) *runtime.ContainerStatus {
	c.t.Helper()
	resp, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Status
}

// exited waits until a container has ended and returns its status.
func (c *crib) exited(id string) *runtime.ContainerStatus {
	c.t.Helper()
	if !c.eventually(func() bool { return c.container(id).State == runtime.ContainerState_CONTAINER_EXITED }) {
		c.t.Fatalf("container %s does not end: %v", id, c.container(id))
	}
	return c.container(id)
}

func TestAContainersLifeIsTold(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	for _, want := range []struct {
		name   string
		script string
		code   int32
		reason string
	}{
		{"well", "exit 0", 0, "Completed"},
		{"ill", "exit 7", 7, "Error"},
		{"killed", "sh -c 'kill -9 $$'; exit $?", 137, "Error"},
	} {
		cfg := c.Container(want.name, "sh", "-c", want.script)
		cfg.Labels, cfg.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "2"}
		id := c.launch(podID, pod, cfg)
		got := c.exited(id)
		if got.ExitCode != want.code || got.Reason != want.reason || got.FinishedAt < got.StartedAt || got.StartedAt < got.CreatedAt {
			t.Errorf("%s: %v", want.name, got)
		}
		if got.Labels["l"] != "1" || got.Annotations["a"] != "2" || got.ImageRef == "" || got.ImageId == "" || got.Image.GetImage() != lab.Image {
			t.Errorf("%s: not echoed: %v", want.name, got)
		}
	}
	bad := c.Container("absent", "/no/such/program")
	id, err := c.Launch(t.Context(), podID, pod, bad)
	if err == nil {
		t.Fatal("a container without a program started")
	}
	got := c.container(id)
	if got.State != runtime.ContainerState_CONTAINER_EXITED || got.ExitCode != 128 || got.Reason != "StartError" || !strings.Contains(got.Message, "/no/such/program") {
		t.Errorf("a start that failed is told as %v", got)
	}
}

func TestOOMKilledIsTold(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	cfg := c.Container("greedy", "sh", "-c", "tail /dev/zero")
	cfg.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	got := c.exited(c.launch(podID, pod, cfg))
	if got.ExitCode != 137 || got.Reason != "OOMKilled" {
		t.Errorf("got %v", got)
	}
}

// logLine is the format of the CRI logging design proposal.
var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(Z|[+-]\d\d:\d\d) (stdout|stderr) [FP] `)

func TestLogsExecAndRotation(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	id := c.launch(podID, pod, c.Container("talk", "sh", "-c", "echo out; echo err >&2; while [ ! -e /tmp/next ]; do sleep 0.05; done; echo more; sleep 1000"))
	path := filepath.Join(c.LogDir(pod), "talk.log")
	has := func(text string) func() bool {
		return func() bool { b, _ := os.ReadFile(path); return strings.Contains(string(b), text) }
	}
	if !c.eventually(has("stdout F out\n")) || !c.eventually(has("stderr F err\n")) {
		b, err := os.ReadFile(path)
		t.Fatalf("the log is %q, %v", b, err)
	}
	b, _ := os.ReadFile(path)
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if !logLine.MatchString(line) {
			t.Errorf("not a line of a CRI log: %q", line)
		}
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReopenContainerLog(t.Context(), &runtime.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("after ReopenContainerLog: %v", err)
	}
	if out, err := c.Exec(t.Context(), id, "touch", "/tmp/next"); err != nil || out != "" {
		t.Errorf("exec: %q, %v", out, err)
	}
	if !c.eventually(has("stdout F more\n")) {
		t.Error("nothing is written to the new file")
	}
	if _, err := c.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "1000"}, Timeout: 1}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a command that runs too long: %v", err)
	}
	if out, err := c.Exec(t.Context(), id, "sh", "-c", "pidof sleep | wc -w"); err != nil || strings.TrimSpace(out) != "1" {
		t.Errorf("sleeps that run: %q, %v", out, err)
	}
}

func TestStopContainerAsksAndThenKills(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	polite := c.launch(podID, pod, c.Container("polite", "sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done"))
	deaf := c.launch(podID, pod, c.Container("deaf", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"))
	for id, want := range map[string]struct {
		grace int64
		code  int32
	}{polite: {20, 3}, deaf: {1, 137}} {
		for range 2 {
			if _, err := c.StopContainer(t.Context(), &runtime.StopContainerRequest{ContainerId: id, Timeout: want.grace}); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.container(id); got.State != runtime.ContainerState_CONTAINER_EXITED || got.ExitCode != want.code {
			t.Errorf("want %d, got %v", want.code, got)
		}
	}
	for range 2 {
		if _, err := c.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: deaf}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: deaf}); status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed container: %v", err)
	}
}

// TestContainersOutliveTheDaemon kills the daemon while containers run, end and
// write, and looks at what the next one tells.
func TestContainersOutliveTheDaemon(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, ips := c.pod(pod)
	lives := c.launch(podID, pod, c.Container("lives", "sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done"))
	ends := c.launch(podID, pod, c.Container("ends", "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 7"))
	greedy := c.Container("greedy", "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; tail /dev/zero")
	greedy.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	eats := c.launch(podID, pod, greedy)
	created, err := c.CreateContainer(t.Context(), &runtime.CreateContainerRequest{PodSandboxId: podID, Config: c.Container("waits", "true"), SandboxConfig: pod})
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{ends: c.containerPID(ends), eats: c.containerPID(eats)}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	for id, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/tmp/go", pid), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !c.eventually(func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); return err != nil }) {
			t.Fatalf("container %s does not end", id)
		}
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := c.container(lives); got.State != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the one that lives is %v", got)
	}
	if got := c.exited(ends); got.ExitCode != 7 || got.Reason != "Error" {
		t.Errorf("the one that ended with 7 is %v", got)
	}
	if got := c.exited(eats); got.ExitCode != 137 || got.Reason != "OOMKilled" {
		t.Errorf("the one that was killed for want of memory is %v", got)
	}
	if now, err := c.IPs(t.Context(), podID); err != nil || now[0] != ips[0] {
		t.Errorf("the pod has %v, %v", now, err)
	}
	if _, err := c.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Errorf("the one that was not started yet: %v", err)
	}
	if _, err := c.StopContainer(t.Context(), &runtime.StopContainerRequest{ContainerId: lives}); err != nil {
		t.Error(err)
	}
	c.counts(filepath.Join(c.LogDir(pod), "lives.log"))
}

// counts checks that a log has the numbers from 0 on, each once and in order.
func (c *crib) counts(path string) {
	c.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf(" stdout F %d", i); !strings.HasSuffix(line, want) {
			c.t.Fatalf("line %d of %d is %q", i, len(lines), line)
		}
	}
	if len(lines) < 10 {
		c.t.Errorf("the log has %d lines only", len(lines))
	}
}

func (c *crib) containerPID(id string) int {
	c.t.Helper()
	resp, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		c.t.Fatal(err)
	}
	match := regexp.MustCompile(`"pid":\s*(\d+)`).FindStringSubmatch(resp.Info["info"])
	if match == nil {
		c.t.Fatalf("no pid in %v", resp.Info)
	}
	var pid int
	if _, err := fmt.Sscan(match[1], &pid); err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// TestOnePodHasOneShim restarts a container beside another one, 1000 times in a long run.
func TestOnePodHasOneShim(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	stays := c.launch(podID, pod, c.Container("stays", "sleep", "1000"))
	for i := range long(30, 1000) {
		cfg := c.Container("comes", "true")
		cfg.Metadata.Attempt = uint32(i)
		id := c.launch(podID, pod, cfg)
		c.exited(id)
		if _, err := c.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.container(stays); got.State != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other container is %v", got)
	}
	if n := c.shims(); n != 1 {
		t.Errorf("the pod has %d shims", n)
	}
}

// shims counts the shims in our mount namespace.
func (c *crib) shims() (n int) {
	c.t.Helper()
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range names {
		ns, err := os.Readlink(filepath.Join(filepath.Dir(path), "ns/mnt"))
		if b, readErr := os.ReadFile(path); err == nil && readErr == nil && ns == own && string(b) == "crib-shim\n" {
			n++
		}
	}
	return n
}

func TestImagesAreOneThingUnderAllNames(t *testing.T) {
	c := startWithImage(t)
	ctx, images := t.Context(), c.Images()
	list, err := images.ListImages(ctx, &runtime.ListImagesRequest{})
	if err != nil || len(list.Images) != 1 || list.Images[0].RepoTags[0] != lab.Image {
		t.Fatalf("after the import: %v, %v", list, err)
	}
	id := list.Images[0].Id
	for _, name := range []string{id, strings.TrimPrefix(id, "sha256:"), lab.Image} {
		got, err := images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}})
		if err != nil || got.Image.GetId() != id {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	usage, err := images.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil || len(usage.ImageFilesystems) == 0 || usage.ImageFilesystems[0].UsedBytes.GetValue() == 0 {
		t.Errorf("usage: %v, %v", usage, err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	for _, args := range [][]string{{"images", "export", "-o", archive, lab.Image}, {"images", "rm", lab.Image}, {"images", "import", archive}} {
		if out, err := c.Command(ctx, args...).CombinedOutput(); err != nil {
			t.Fatalf("crib %v: %v\n%s", args, err, out)
		}
	}
	got, err := images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: lab.Image}})
	if err != nil || got.Image.GetId() != id {
		t.Errorf("exported, removed and imported: %v, %v", got, err)
	}
	if _, err := images.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: id}}); err != nil {
		t.Error(err)
	}
	gone, err := images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: lab.Image}})
	if err != nil || gone.Image != nil {
		t.Errorf("removed: %v, %v", gone, err)
	}
}

func TestCrictlRunsAContainer(t *testing.T) {
	c := startWithImage(t)
	path, err := exec.LookPath("crictl")
	if err != nil {
		t.Fatal("crictl is not in PATH: make tools builds it, make test puts it there")
	}
	crictl := func(args ...string) string {
		args = append([]string{"--config", "testdata/crictl.yaml", "--runtime-endpoint", "unix://" + lab.Socket}, args...)
		return strings.TrimSpace(c.host(path, args...))
	}
	dir := t.TempDir()
	podFile, containerFile := filepath.Join(dir, "pod.json"), filepath.Join(dir, "container.json")
	pod := fmt.Sprintf(`{"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "log_directory": %q, "linux": {}}`, dir)
	container := fmt.Sprintf(`{"metadata": {"name": "c"}, "image": {"image": %q}, "command": ["sh", "-c", "echo hello; exec httpd -f -p 80"], "log_path": "c.log", "linux": {}}`, lab.Image)
	if err := errors.Join(os.WriteFile(podFile, []byte(pod), 0o600), os.WriteFile(containerFile, []byte(container), 0o600)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(crictl("run", "--no-pull", containerFile, podFile), "\n")
	id := lines[len(lines)-1]
	if got := crictl("exec", id, "cat", "/etc/hostname"); got == "" {
		t.Error("exec says nothing")
	}
	if !c.eventually(func() bool { return crictl("logs", id) == "hello" }) {
		t.Errorf("logs: %q", crictl("logs", id))
	}
	if got := crictl("ps"); !strings.Contains(got, "Running") || !strings.Contains(got, lab.Image) {
		t.Errorf("ps: %s", got)
	}
	if got := crictl("stats", "-o", "table"); !strings.Contains(got, id[:13]) {
		t.Errorf("stats: %s", got)
	}
	if got := crictl("images"); !strings.Contains(got, "crib.test/busybox") {
		t.Errorf("images: %s", got)
	}
	start := time.Now()
	crictl("stop", "--timeout", "0", id)
	crictl("rm", id)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("stop and rm took %s", took)
	}
}
