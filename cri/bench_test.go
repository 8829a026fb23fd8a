package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/counters"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/usage"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }

const benchPods = 500

// crowd is many pods with a link and a container of one process each.
type crowd struct {
	*Service
	pods       []*sandbox.Pod
	containers [][]*container.Container
}

// newCrowd makes their links and cgroups, of v1 where the kernel still has it.
func newCrowd(b *testing.B) *crowd {
	b.Helper()
	nstest.Lab(b)
	root := b.TempDir()
	hierarchies := mountCgroups(b, root)
	c := &crowd{Service: (&world{}).service(b)}
	var links bytes.Buffer
	for i := range benchPods {
		pod := &sandbox.Pod{ID: fmt.Sprintf("%064d", i), State: sandbox.Ready, Spec: sandbox.Spec{Key: sandbox.Key{Namespace: "default", Name: fmt.Sprintf("pod-%d", i)}}}
		host := network.HostLinkName(pod.ID, "eth0")
		pod.Attachments = []network.Attachment{{Interface: "eth0", HostInterface: host}}
		fmt.Fprintf(&links, "link add %s type veth peer name p%d\n", host, i)
		one := one("a", container.Running)
		one.ID = fmt.Sprintf("%064d", benchPods+i)
		one.PID = uint32(populate(b, hierarchies, one.ID))
		c.pods, c.containers = append(c.pods, pod), append(c.containers, []*container.Container{one})
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = &links
	if out, err := ip.CombinedOutput(); err != nil {
		b.Fatalf("making links: %v: %s", err, out)
	}
	b.Cleanup(func() {
		for _, pod := range c.pods {
			_ = exec.Command("ip", "link", "del", pod.Attachments[0].HostInterface).Run() // the leak check tells
		}
	})
	c.cfg.Usage = usage.NewMeter(usage.Config{
		Root: root, Links: counters.Read, Layers: layer{}, Log: slog.New(slog.DiscardHandler),
		Path: func(_ *sandbox.Pod, id string) string { return filepath.Join(benchParent(), id) },
	})
	return c
}

func benchParent() string { return fmt.Sprintf("/crib-test-%d", os.Getpid()) }

// mountCgroups returns the parents of the cgroups of the test in all hierarchies.
func mountCgroups(b *testing.B, root string) []string {
	b.Helper()
	var parents []string
	mount := func(dir, kind, options string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", dir, kind, 0, options); err != nil {
			return err
		}
		b.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		parents = append(parents, filepath.Join(dir, benchParent()))
		return nil
	}
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids", "blkio"} {
		if mount(filepath.Join(root, controller), "cgroup", controller) != nil {
			break
		}
	}
	if len(parents) == 0 {
		if err := mount(root, "cgroup2", ""); err != nil {
			b.Skip("no cgroups can be mounted: ", err)
		}
	}
	for _, parent := range parents {
		if err := os.Mkdir(parent, 0o755); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { removeCgroup(b, parent) })
	}
	return parents
}

// populate makes a cgroup in each hierarchy with one process, which it returns.
func populate(b *testing.B, parents []string, id string) int {
	b.Helper()
	for _, parent := range parents {
		dir := filepath.Join(parent, id)
		b.Cleanup(func() { removeCgroup(b, dir) })
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, parent := range parents {
		if err := os.WriteFile(filepath.Join(parent, id, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			b.Fatal(err)
		}
	}
	return cmd.Process.Pid
}

// removeCgroup waits until the kernel has taken out what has ended.
func removeCgroup(b *testing.B, dir string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		<-tick.C
	}
	b.Errorf("%s is left", dir)
}

func BenchmarkMetricsOf500Pods(b *testing.B) {
	c := newCrowd(b)
	bytes := 0
	for b.Loop() {
		pass, list := c.pass(), &runtime.ListPodSandboxMetricsResponse{}
		for i, pod := range c.pods {
			list.PodMetrics = append(list.PodMetrics, pass.podMetrics(context.Background(), pod, c.containers[i]))
		}
		out, err := proto.Marshal(list)
		if err != nil {
			b.Fatal(err)
		}
		bytes = len(out)
	}
	b.ReportMetric(float64(bytes)/benchPods, "B/pod")
}

func BenchmarkStatsOf500Pods(b *testing.B) {
	c := newCrowd(b)
	for b.Loop() {
		pass, list := c.pass(), &runtime.ListPodSandboxStatsResponse{}
		for i, pod := range c.pods {
			list.Stats = append(list.Stats, pass.podStats(context.Background(), pod, c.containers[i]))
		}
		if _, err := proto.Marshal(list); err != nil {
			b.Fatal(err)
		}
	}
}
