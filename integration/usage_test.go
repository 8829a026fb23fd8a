package integration

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAResizeIsInForceAndEchoed(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	cfg := c.Container("resized", "sleep", "1000")
	cfg.Linux.Resources = &runtime.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20, OomScoreAdj: 900,
	}
	created, err := c.CreateContainer(t.Context(), &runtime.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: pod})
	if err != nil {
		t.Fatal(err)
	}
	id := created.ContainerId
	update := func(r *runtime.LinuxContainerResources) error {
		_, err := c.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
		return err
	}
	if err := update(&runtime.LinuxContainerResources{CpusetCpus: "0", MemoryLimitInBytes: 32 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		out, err := c.Exec(t.Context(), id, "cat", path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	if got := read("/sys/fs/cgroup/memory/memory.limit_in_bytes"); got != fmt.Sprint(32<<20) {
		t.Errorf("before its start: memory %s", got)
	}
	if _, err := c.UpdatePodSandboxResources(t.Context(), &runtime.UpdatePodSandboxResourcesRequest{PodSandboxId: podID}); err != nil {
		t.Errorf("the pod's: %v", err)
	}
	if err := update(&runtime.LinuxContainerResources{CpuQuota: 70000, CpuShares: 700, MemoryLimitInBytes: 48 << 20, OomScoreAdj: 950}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/sys/fs/cgroup/memory/memory.limit_in_bytes": fmt.Sprint(48 << 20), "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "70000",
		"/sys/fs/cgroup/cpu/cpu.shares": "700", "/sys/fs/cgroup/cpuset/cpuset.cpus": "0", "/proc/1/oom_score_adj": "950",
	} {
		if got := read(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if err := update(&runtime.LinuxContainerResources{MemoryLimitInBytes: 4096}); err == nil {
		t.Error("less memory than is used is no error")
	}
	got := c.container(id).Resources.Linux
	if got.CpuQuota != 70000 || got.CpuPeriod != 100000 || got.CpuShares != 700 || got.CpusetCpus != "0" ||
		got.MemoryLimitInBytes != 48<<20 || got.MemorySwapLimitInBytes != 48<<20 || got.OomScoreAdj != 950 {
		t.Errorf("echoed: %v", got)
	}
}

func TestStatsMoveWithTheLoad(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	cfg := c.Container("busy", "sh", "-c", "i=0; while :; do i=$((i+1)); [ $((i%1000)) = 0 ] && echo $i >>/tmp/f; done")
	id := c.launch(podID, pod, cfg)
	idle := c.launch(podID, pod, c.Container("idle", "sleep", "1000"))
	stats := func() *runtime.PodSandboxStats {
		resp, err := c.ListPodSandboxStats(t.Context(), &runtime.ListPodSandboxStatsRequest{Filter: &runtime.PodSandboxStatsFilter{Id: podID[:8]}})
		if err != nil || len(resp.Stats) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		return resp.Stats[0]
	}
	of := func(s *runtime.PodSandboxStats, id string) *runtime.ContainerStats {
		for _, c := range s.Linux.Containers {
			if c.Attributes.Id == id {
				return c
			}
		}
		t.Fatalf("%s is missing in %v", id, s)
		return nil
	}
	first := stats()
	if of(first, id).Cpu.UsageNanoCores != nil {
		t.Errorf("a rate of one sample: %v", of(first, id).Cpu)
	}
	if !c.eventually(func() bool { return of(stats(), id).Cpu.UsageNanoCores.GetValue() > 1e6 }) {
		t.Errorf("the busy one has no rate: %v", stats())
	}
	s := stats()
	if s.Linux.Process.ProcessCount.Value != 2 || s.Linux.Network.DefaultInterface.Name != "eth0" || s.Linux.Cpu.UsageCoreNanoSeconds.Value <= first.Linux.Cpu.UsageCoreNanoSeconds.Value {
		t.Errorf("the pod: %v", s.Linux)
	}
	if m := of(s, id).Memory; m.WorkingSetBytes.GetValue() == 0 || m.PageFaults.GetValue() == 0 || of(s, id).WritableLayer.UsedBytes.GetValue() == 0 {
		t.Errorf("the busy one: %v", of(s, id))
	}
	if got, most := of(s, idle).Cpu.UsageNanoCores.GetValue(), of(s, id).Cpu.UsageNanoCores.GetValue(); got >= most {
		t.Errorf("the idle one works: %d of the busy one's %d", got, most)
	}
	one, err := c.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: podID})
	if err != nil || len(one.Stats.Linux.Containers) != 2 {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := c.StopPodSandbox(t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: podID}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: podID}); status.Code(err) != codes.Unavailable {
		t.Errorf("of a stopped pod: %v", err)
	}
}
