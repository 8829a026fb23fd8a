package cri

import (
	"strconv"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/usage"
)

const (
	counter = runtime.MetricType_COUNTER
	gauge   = runtime.MetricType_GAUGE
)

// Labels that few metrics have.
var (
	onCPU      = []string{"cpu"}
	onDevice   = []string{"device"}
	onFailure  = []string{"failure_type", "scope"}
	onIO       = []string{"device", "major", "minor", "operation"}
	onPageSize = []string{"pagesize"}
	onUlimit   = []string{"ulimit"}
	onLink     = []string{"interface"}
)

// containerMetrics are those of a container: cAdvisor's names, since dashboards know
// them.
var containerMetrics = [...]metric{
	{"container_blkio_device_usage_total", "Bytes that went to block devices, by operation.", counter, onIO, blkio},
	{"container_cpu_cfs_periods_total", "Periods in which the quota of CPU counted.", counter, nil, func(m *metered, e *emitter) { e.figure(m.CPU.Periods) }},
	{"container_cpu_cfs_throttled_periods_total", "Periods in which the quota was used up.", counter, nil, func(m *metered, e *emitter) { e.figure(m.CPU.Throttled) }},
	{"container_cpu_cfs_throttled_seconds_total", "Seconds for which tasks were throttled.", counter, nil, func(m *metered, e *emitter) { e.seconds(m.CPU.ThrottledTime) }},
	{"container_cpu_system_seconds_total", "Seconds of CPU in the kernel.", counter, nil, func(m *metered, e *emitter) { e.seconds(m.CPU.System) }},
	{"container_cpu_usage_seconds_total", "Seconds of CPU, of all processors together.", counter, onCPU, func(m *metered, e *emitter) { e.seconds(m.CPU.Total, "total") }},
	{"container_cpu_user_seconds_total", "Seconds of CPU in user mode.", counter, nil, func(m *metered, e *emitter) { e.seconds(m.CPU.User) }},
	{"container_file_descriptors", "Open file descriptors.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.detail.Descriptors) }},
	{"container_fs_inodes_free", "Inodes that are free on the filesystem of writable layers.", gauge, onDevice, func(m *metered, e *emitter) { e.put(m.fs.InodesFree, m.fs.Device) }},
	{"container_fs_inodes_total", "Inodes of the filesystem of writable layers.", gauge, onDevice, func(m *metered, e *emitter) { e.put(m.fs.Inodes, m.fs.Device) }},
	{"container_fs_limit_bytes", "Bytes of the filesystem of writable layers.", gauge, onDevice, func(m *metered, e *emitter) { e.put(m.fs.Bytes, m.fs.Device) }},
	{"container_fs_reads_bytes_total", "Bytes read from block devices.", counter, onDevice, traffic(func(d cgroup.Device) uint64 { return d.ReadBytes })},
	{"container_fs_reads_total", "Reads from block devices.", counter, onDevice, traffic(func(d cgroup.Device) uint64 { return d.Reads })},
	{"container_fs_usage_bytes", "Bytes of the writable layer.", gauge, onDevice, layerBytes},
	{"container_fs_writes_bytes_total", "Bytes written to block devices.", counter, onDevice, traffic(func(d cgroup.Device) uint64 { return d.WriteBytes })},
	{"container_fs_writes_total", "Writes to block devices.", counter, onDevice, traffic(func(d cgroup.Device) uint64 { return d.Writes })},
	{"container_hugetlb_max_usage_bytes", "Peak of huge pages in bytes.", gauge, onPageSize, hugePages(func(h cgroup.HugePages) cgroup.Figure { return h.Peak })},
	{"container_hugetlb_usage_bytes", "Huge pages in bytes.", gauge, onPageSize, hugePages(func(h cgroup.HugePages) cgroup.Figure { return h.Usage })},
	{"container_last_seen", "When the container was last seen, Unix time in seconds.", gauge, nil, func(m *metered, e *emitter) { e.put(uint64(m.now.Unix())) }},
	{"container_memory_cache", "Bytes of files in memory.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.Cache) }},
	{"container_memory_failcnt", "How often the usage of memory met its limit.", counter, nil, func(m *metered, e *emitter) { e.figure(m.Memory.LimitHits) }},
	{"container_memory_failures_total", "Page faults.", counter, onFailure, faults},
	{"container_memory_kernel_usage", "Bytes of the kernel's memory.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.Kernel) }},
	{"container_memory_mapped_file", "Bytes of mapped files.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.Mapped) }},
	{"container_memory_max_usage_bytes", "Peak of memory in bytes.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.Peak) }},
	{"container_memory_rss", "Bytes of anonymous memory.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.RSS) }},
	{"container_memory_swap", "Bytes of swap.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Swap.Usage) }},
	{"container_memory_usage_bytes", "Bytes of memory, whenever they were used.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.Usage) }},
	{"container_memory_working_set_bytes", "Bytes of memory without files that were not used for long.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Memory.WorkingSet) }},
	{"container_oom_events_total", "Processes that were killed for want of memory.", counter, nil, func(m *metered, e *emitter) { e.figure(m.Memory.OOMKills) }},
	{"container_pressure_cpu_stalled_seconds_total", "Seconds for which all tasks waited for CPU.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.CPU.Pressure.Full) }},
	{"container_pressure_cpu_waiting_seconds_total", "Seconds for which some tasks waited for CPU.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.CPU.Pressure.Some) }},
	{"container_pressure_io_stalled_seconds_total", "Seconds for which all tasks waited for devices.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.IO.Pressure.Full) }},
	{"container_pressure_io_waiting_seconds_total", "Seconds for which some tasks waited for devices.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.IO.Pressure.Some) }},
	{"container_pressure_memory_stalled_seconds_total", "Seconds for which all tasks waited for memory.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.Memory.Pressure.Full) }},
	{"container_pressure_memory_waiting_seconds_total", "Seconds for which some tasks waited for memory.", counter, nil, func(m *metered, e *emitter) { e.stalled(m.Memory.Pressure.Some) }},
	{"container_processes", "Processes.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Processes.Count) }},
	{"container_sockets", "Open sockets.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.detail.Sockets) }},
	{"container_spec_cpu_period", "The period of the quota of CPU, in microseconds.", gauge, nil, func(m *metered, e *emitter) { e.setting(m.container.Spec.Resources.CPUPeriod) }},
	{"container_spec_cpu_quota", "The quota of CPU in a period, in microseconds.", gauge, nil, func(m *metered, e *emitter) { e.setting(m.container.Spec.Resources.CPUQuota) }},
	{"container_spec_cpu_shares", "The share of CPU.", gauge, nil, func(m *metered, e *emitter) { e.setting(m.container.Spec.Resources.CPUShares) }},
	{"container_spec_memory_limit_bytes", "The limit of memory, 0 for none.", gauge, nil, func(m *metered, e *emitter) { e.put(orNone(m.container.Spec.Resources.MemoryLimit)) }},
	{"container_spec_memory_reservation_limit_bytes", "The memory that is protected, 0 for none.", gauge, nil, reservation},
	{"container_spec_memory_swap_limit_bytes", "The limit of memory and swap together, 0 for none.", gauge, nil, func(m *metered, e *emitter) { e.put(orNone(m.container.Spec.Resources.MemorySwap)) }},
	{"container_start_time_seconds", "When the container started, Unix time in seconds.", gauge, nil, func(m *metered, e *emitter) { e.put(uint64(max(0, m.container.StartedAt.Unix()))) }},
	{"container_threads", "Threads.", gauge, nil, func(m *metered, e *emitter) { e.figure(m.Processes.Threads) }},
	{"container_threads_max", "The limit of threads, 0 for none.", gauge, nil, threadsMax},
	{"container_ulimits_soft", "Soft limits of the first process.", gauge, onUlimit, func(m *metered, e *emitter) { e.figure(m.detail.OpenFiles, "max_open_files") }},
}

// linkMetrics are those of a pod.
var linkMetrics = [...]metric{
	{"container_network_receive_bytes_total", "Bytes received.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.RxBytes })},
	{"container_network_receive_errors_total", "Errors while receiving.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.RxErrors })},
	{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.RxDropped })},
	{"container_network_receive_packets_total", "Packets received.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.RxPackets })},
	{"container_network_transmit_bytes_total", "Bytes sent.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.TxBytes })},
	{"container_network_transmit_errors_total", "Errors while sending.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.TxErrors })},
	{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.TxDropped })},
	{"container_network_transmit_packets_total", "Packets sent.", counter, onLink, overLinks(func(l usage.Link) uint64 { return l.TxPackets })},
}

// setting adds a limit of the record, if it is set.
func (e *emitter) setting(value int64) {
	if value > 0 {
		e.put(uint64(value))
	}
}

// orNone is a limit, 0 for none.
func orNone(limit int64) uint64 { return uint64(max(0, limit)) }

func blkio(m *metered, e *emitter) {
	for _, d := range m.IO.Devices {
		name, major, minor := deviceName(d), strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
		e.put(d.ReadBytes, name, major, minor, "Read")
		e.put(d.WriteBytes, name, major, minor, "Write")
	}
}

// deviceName is never empty: two metrics of the same labels make a scrape fail.
func deviceName(d cgroup.Device) string {
	if name := usage.DeviceName(d.Major, d.Minor); name != "" {
		return name
	}
	return strconv.FormatUint(d.Major, 10) + ":" + strconv.FormatUint(d.Minor, 10)
}

func traffic(of func(cgroup.Device) uint64) func(*metered, *emitter) {
	return func(m *metered, e *emitter) {
		for _, d := range m.IO.Devices {
			e.put(of(d), deviceName(d))
		}
	}
}

func layerBytes(m *metered, e *emitter) {
	if !m.Layer.At.IsZero() {
		e.put(m.Layer.Bytes, m.fs.Device)
	}
}

func hugePages(of func(cgroup.HugePages) cgroup.Figure) func(*metered, *emitter) {
	return func(m *metered, e *emitter) {
		for _, h := range m.HugePages {
			e.figure(of(h), h.Size)
		}
	}
}

// faults has both of cAdvisor's scopes: what is below a container is the container's.
func faults(m *metered, e *emitter) {
	for _, scope := range [...]string{"container", "hierarchy"} {
		e.figure(m.Memory.Faults, "pgfault", scope)
		e.figure(m.Memory.MajorFaults, "pgmajfault", scope)
	}
}

// threadsMax is 0 without a limit, as cAdvisor has it.
func threadsMax(m *metered, e *emitter) {
	if m.Processes.Threads.Known {
		e.put(m.Processes.ThreadsMax.Value)
	}
}

// reservation is memory.low, as the kubelet sets it for its quality of service.
func reservation(m *metered, e *emitter) {
	low, err := strconv.ParseUint(m.container.Spec.Resources.Unified["memory.low"], 10, 64)
	if err != nil {
		low = 0
	}
	e.put(low)
}

func overLinks(of func(usage.Link) uint64) func(*metered, *emitter) {
	return func(m *metered, e *emitter) {
		for _, l := range m.links {
			e.put(of(l), l.Name)
		}
	}
}
