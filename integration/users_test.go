package integration

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// newRunc names a runc that can map ids of mounts; Debian's cannot.
const newRunc = "CRIB_NEW_RUNC"

const firstUser = 1 << 17 // on the host, of the pods here

func startWithUsers(t *testing.T) *crib {
	t.Helper()
	runc := os.Getenv(newRunc)
	if runc == "" {
		t.Skip("without ", newRunc, " (make tools) there are no user namespaces")
	}
	c := start(t, defaults+fmt.Sprintf("\n[engine]\noci_runtime = %q\n", runc))
	if err := c.ImportImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// usersPod is a pod with users of its own, as a kubelet asks for with hostUsers: false.
func (c *crib) usersPod(name string) *runtime.PodSandboxConfig {
	pod := c.Pod(name)
	options := &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER, UsernsOptions: ourUsers()}
	pod.Linux.SecurityContext = &runtime.LinuxSandboxSecurityContext{NamespaceOptions: options}
	return pod
}

func ourUsers() *runtime.UserNamespace {
	return &runtime.UserNamespace{
		Mode: runtime.NamespaceMode_POD,
		Uids: []*runtime.IDMapping{{HostId: firstUser, Length: 65536}},
		Gids: []*runtime.IDMapping{{HostId: firstUser, Length: 65536}},
	}
}

func (c *crib) usersContainer(name string, command ...string) *runtime.ContainerConfig {
	cfg := c.Container(name, command...)
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = ourUsers()
	return cfg
}

func TestAPodWithUsersOfItsOwn(t *testing.T) {
	c := startWithUsers(t)
	pod := c.usersPod("a")
	pod.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: 8080}}
	podID, ips := c.pod(pod)
	volume := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := c.usersContainer("main", "sh", "-c", "echo mine >/volume/file; while :; do nc -l -p 80 -e echo hello; done")
	cfg.Mounts = []*runtime.Mount{
		{HostPath: volume, ContainerPath: "/volume", UidMappings: ourUsers().Uids, GidMappings: ourUsers().Gids},
		{ContainerPath: "/image", Image: &runtime.ImageSpec{Image: lab.Image}, Readonly: true},
	}
	id := c.launch(podID, pod, cfg)

	c.runsAs(id, firstUser)
	if out, err := c.Exec(t.Context(), id, "sh", "-c", "id -u; cat /proc/self/uid_map; ping -c 1 127.0.0.1 >/dev/null && hostname"); err != nil ||
		strings.Join(strings.Fields(out), " ") != "0 0 131072 65536 a" {
		t.Errorf("inside: %q, %v", out, err)
	}
	if out, err := c.Exec(t.Context(), id, "stat", "-c", "%u", "/image/bin/busybox"); err != nil || strings.TrimSpace(out) != "0" {
		t.Errorf("the file of the image volume is of %q, %v", out, err)
	}
	if out, err := c.Exec(t.Context(), id, "sh", "-c", "mount -t tmpfs none /tmp 2>&1; true"); err != nil || !strings.Contains(out, "not permitted") && !strings.Contains(out, "denied") {
		t.Errorf("a mount inside: %q, %v", out, err)
	}
	// What the container wrote into the volume is root's on the host: ids are mapped there.
	if !c.eventually(func() bool { var st unix.Stat_t; return unix.Stat(volume+"/file", &st) == nil && st.Uid == 0 }) {
		t.Error("the file in the volume is not root's")
	}
	c.saysHello(netip.AddrPortFrom(ips[0], 80).String())
	c.saysHello("127.0.0.1:8080")

	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.runsAs(id, firstUser)
	c.saysHello("127.0.0.1:8080")
	again := c.usersContainer("main", "true")
	again.Metadata.Attempt = 1
	if got := c.exited(c.launch(podID, pod, again)); got.ExitCode != 0 {
		t.Errorf("the second container ended with %d", got.ExitCode)
	}
}

// runsAs checks who the first process of a container is for the host.
func (c *crib) runsAs(id string, user uint32) {
	c.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", c.containerPID(id)), &st); err != nil || st.Uid != user {
		c.t.Errorf("the process belongs to %d, %v, want %d", st.Uid, err, user)
	}
}

func (c *crib) saysHello(to string) {
	c.t.Helper()
	if !c.eventually(func() bool {
		answer, err := lab.Ask(c.t.Context(), lab.Host, netip.MustParseAddrPort(to))
		return err == nil && answer == "hello\n"
	}) {
		c.t.Errorf("nothing answers at %s", to)
	}
}

func TestContainersWithOneViewOfProcessesHaveTheUsersOfTheirPod(t *testing.T) {
	c := startWithUsers(t)
	pod := c.usersPod("a")
	pod.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	podID, _ := c.pod(pod)
	cfg := c.usersContainer("main", "sleep", "1000")
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	id := c.launch(podID, pod, cfg)
	c.runsAs(id, firstUser)
	if out, err := c.Exec(t.Context(), id, "ps"); err != nil || !strings.Contains(out, "crib-init") {
		t.Errorf("ps: %q, %v", out, err)
	}
}

func TestUsersThatAContainerDoesNotShareWithItsPodAreRefused(t *testing.T) {
	c := startWithUsers(t)
	pod := c.usersPod("a")
	podID, _ := c.pod(pod)
	cfg := c.usersContainer("main", "true")
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions.Uids[0].HostId++
	if _, err := c.Launch(t.Context(), podID, pod, cfg); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "userns_options") {
		t.Errorf("Launch() = %v", err)
	}
	host := c.usersPod("b")
	host.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
	if _, err := c.Run(t.Context(), host); status.Code(err) != codes.InvalidArgument {
		t.Errorf("in the host's network: %v", err)
	}
}
