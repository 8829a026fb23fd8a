package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// TestAnotherRootTakesNothingFromADaemonThatRuns: the state is the first one's by
// default, and with it sockets, pins and the engine's files.
func TestAnotherRootTakesNothingFromADaemonThatRuns(t *testing.T) {
	c := start(t, defaults)
	id, ips := c.pod(c.Pod("a"))
	c.listen(lab.Netns(id), 80, "a")
	for _, command := range []string{"serve", "reset"} {
		other := c.Command(t.Context(), command)
		other.Args = append(other.Args, "--root", t.TempDir()) // the last one counts
		if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "another crib") {
			t.Errorf("%s with another root: %s, %v", command, out, err)
		}
	}
	c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "a")
	shared := c.Pod("b")
	shared.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	c.pod(shared) // the engine is all there
}

// TestARestartHoldsNoAddressOfAStoppedPod: the kubelet keeps stopped pods for a
// while, and others have got their addresses by then.
func TestARestartHoldsNoAddressOfAStoppedPod(t *testing.T) {
	c := start(t, strings.Replace(defaults, `"10.85.0.0/24", "fd85::/64"`, `"10.85.0.0/30"`, 1)) // .2 is all there is
	stopped, _ := c.pod(c.Pod("a"))
	if _, err := c.StopPodSandbox(t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: stopped}); err != nil {
		t.Fatal(err)
	}
	living, ips := c.pod(c.Pod("b"))
	c.listen(lab.Netns(living), 80, "b")
	for range 3 { // records come in no order
		if err := errors.Join(c.Kill(), c.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		c.answers(lab.Host, netip.AddrPortFrom(ips[0], 80).String(), "b")
		if used := c.used(); used != 1 {
			t.Errorf("%d addresses are used", used)
		}
	}
	if err := c.Remove(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), c.Pod("c")); err == nil {
		t.Error("a third pod got the address of the second")
	}
	if err := c.Remove(t.Context(), living); err != nil {
		t.Fatal(err)
	}
	c.pod(c.Pod("d"))
}

// used returns how many addresses `crib net` says are used.
func (c *crib) used() (n int) {
	c.t.Helper()
	args := c.Command(c.t.Context(), "net", "-o", "json").Args
	var networks []struct{ Ranges []struct{ Used int } }
	if err := json.Unmarshal([]byte(c.host(args[0], args[1:]...)), &networks); err != nil {
		c.t.Fatal(err)
	}
	for _, network := range networks {
		for _, r := range network.Ranges {
			n += r.Used
		}
	}
	return n
}

// TestAStrictUmaskAndAClosedStandardErrorHarmNobody: the one would hide
// resolv.conf from pods, the other, as when the journal restarts, end the daemon.
func TestAStrictUmaskAndAClosedStandardErrorHarmNobody(t *testing.T) {
	c := start(t, defaults)
	if err := c.Terminate(); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("sh", append([]string{"-c", `umask 077; exec "$0" "$@"`}, c.Command(t.Context(), "serve").Args...)...)
	daemon.Stderr = writer
	err = errors.Join(daemon.Start(), writer.Close(), reader.Close())
	if err != nil {
		t.Fatal(err)
	}
	if !c.eventually(func() bool {
		_, err := c.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{}, grpc.WaitForReady(true))
		return err == nil
	}) {
		t.Error("the daemon does not answer")
	}
	id, _ := c.pod(c.Pod("a"))
	for name, want := range map[string]os.FileMode{"": 0o711, "hosts": 0o644, "resolv.conf": 0o644, "hostname": 0o644, "shm": 0o777} {
		if info, err := os.Stat(filepath.Join(lab.State, "pods", id, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q of the pod: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if err := errors.Join(daemon.Process.Signal(unix.SIGTERM), daemon.Wait(), c.Restart(t.Context())); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
}

// TestAllPodsAreToldInTheFirstAnswerAfterAKill has a hundred, with a container in every
// tenth: a kubelet that is told of fewer would end the others. How long it took is only
// printed: with the daemon's start, until Status says ready and all are listed.
func TestAllPodsAreToldInTheFirstAnswerAfterAKill(t *testing.T) {
	c := startWithImage(t)
	for i := range 100 {
		cfg := c.Pod(fmt.Sprint("p", i))
		id, _ := c.pod(cfg)
		if i%10 == 0 {
			c.launch(id, cfg, c.Container("c", "sleep", "1000"))
		}
	}
	begin := time.Now()
	if err := errors.Join(c.Kill(), c.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{runtime.RuntimeReady, runtime.NetworkReady} {
		if condition := c.condition(kind); !condition.Status {
			t.Errorf("%v", condition)
		}
	}
	pods, err := c.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY}}})
	if err != nil || len(pods.Items) != 100 {
		t.Errorf("%d pods are ready, %v", len(pods.GetItems()), err)
	}
	containers, err := c.ListContainers(t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{
		State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING}}})
	if err != nil || len(containers.Containers) != 10 {
		t.Errorf("%d containers run, %v", len(containers.GetContainers()), err)
	}
	t.Logf("all is told after %v", time.Since(begin).Round(time.Millisecond))
}
