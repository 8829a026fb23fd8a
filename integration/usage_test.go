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
		CpuPeriod: 100000, CpuQuota: 60000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20, OomScoreAdj: 900,
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

// works does what moves counters: it computes, reads and writes the disk past the
// page cache, has memory, faults, descriptors, sockets and processes, sends and
// receives, and is throttled.
const works = `
exec 5</dev/null 6</dev/null
dd if=/dev/zero of=/tmp/f bs=64k count=32 oflag=direct 2>/dev/null || dd if=/dev/zero of=/tmp/f bs=64k count=32 2>/dev/null
x=$(head -c 4000000 /dev/zero | tr '\0' a)
cp /bin/busybox /tmp/busybox; /tmp/busybox sleep 1000 & nc -l -p 9 >/dev/null 2>&1 &
while :; do cat /tmp/f >/dev/null; done &
i=0; while :; do i=$((i+1)); [ $((i%20000)) = 0 ] && echo x | nc -w 1 GATEWAY 9 >/dev/null 2>&1; done`

// still are the metrics that a load in this lab does not move: limits and times of
// the specification, what needs memory to run out or swap, devices that a kernel
// does not account, and errors of links.
var still = map[string]string{
	"container_blkio_device_usage_total":               "not every block device is accounted",
	"container_fs_reads_bytes_total":                   "see container_blkio_device_usage_total",
	"container_fs_reads_total":                         "see container_blkio_device_usage_total",
	"container_fs_writes_bytes_total":                  "see container_blkio_device_usage_total",
	"container_fs_writes_total":                        "see container_blkio_device_usage_total",
	"container_hugetlb_max_usage_bytes":                "this needs huge pages",
	"container_hugetlb_usage_bytes":                    "this needs huge pages",
	"container_memory_failcnt":                         "this needs memory to run out",
	"container_memory_swap":                            "this needs swap",
	"container_network_receive_errors_total":           "a veth has no errors",
	"container_network_receive_packets_dropped_total":  "nothing drops",
	"container_network_transmit_errors_total":          "a veth has no errors",
	"container_network_transmit_packets_dropped_total": "nothing drops",
	"container_oom_events_total":                       "this needs memory to run out",
	"container_pressure_cpu_stalled_seconds_total":     "cgroup v1 has no pressure",
	"container_pressure_cpu_waiting_seconds_total":     "cgroup v1 has no pressure",
	"container_pressure_io_stalled_seconds_total":      "cgroup v1 has no pressure",
	"container_pressure_io_waiting_seconds_total":      "cgroup v1 has no pressure",
	"container_pressure_memory_stalled_seconds_total":  "cgroup v1 has no pressure",
	"container_pressure_memory_waiting_seconds_total":  "cgroup v1 has no pressure",
	"container_spec_memory_reservation_limit_bytes":    "this needs memory.low",
	"container_threads_max":                            "containers have no limit of threads",
}

func TestMetricsMoveUnderALoadThatMovesThem(t *testing.T) {
	c := startWithImage(t)
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	ips, err := c.IPs(t.Context(), podID)
	if err != nil {
		t.Fatal(err)
	}
	gateway := ips[0].Prev().String()
	cfg := c.Container("works", "sh", "-c", strings.Replace(works, "GATEWAY", gateway, 1))
	cfg.Linux.Resources = &runtime.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 60000, CpuShares: 512, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20,
	}
	c.launch(podID, pod, cfg)
	descriptors, err := c.ListMetricDescriptors(t.Context(), &runtime.ListMetricDescriptorsRequest{})
	if err != nil || len(descriptors.Descriptors) != 56 {
		t.Fatalf("%d descriptors, %v", len(descriptors.GetDescriptors()), err)
	}
	missing := map[string]bool{}
	moved := func() bool {
		clear(missing)
		most := mostOf(t, c)
		for _, d := range descriptors.Descriptors {
			if most[d.Name] == 0 && still[d.Name] == "" {
				missing[d.Name] = true
			}
		}
		return len(missing) == 0
	}
	if !c.eventually(moved) && !c.eventually(moved) { // seconds are whole ones
		t.Errorf("not moved: %v", missing)
	}
}

// mostOf returns the greatest value of each metric.
func mostOf(t *testing.T, c *crib) map[string]uint64 {
	t.Helper()
	resp, err := c.ListPodSandboxMetrics(t.Context(), &runtime.ListPodSandboxMetricsRequest{})
	if err != nil || len(resp.PodMetrics) != 1 || len(resp.PodMetrics[0].ContainerMetrics) != 1 {
		t.Fatalf("%v, %v", resp, err)
	}
	most := map[string]uint64{}
	for _, m := range append(resp.PodMetrics[0].Metrics, resp.PodMetrics[0].ContainerMetrics[0].Metrics...) {
		most[m.Name] = max(most[m.Name], m.Value.Value)
	}
	return most
}
