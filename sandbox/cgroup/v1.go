package cgroup

import (
	"bytes"
	"path/filepath"
)

// readV1 reads a cgroup in each of the hierarchies of cgroup v1. That of memory
// has to be there; a kernel may be without any other.
func (h *Host) readV1(c *Usage, path string, buf *[]byte) error {
	in := func(controller string, read func(g *group)) error {
		g := openGroup(filepath.Join(h.root, controller, path), buf)
		defer g.close()
		if g.dir >= 0 {
			read(&g)
		}
		return g.err
	}
	if err := in("memory", func(g *group) { memoryV1(c, g) }); err != nil {
		return err
	}
	_ = in("cpuacct", func(g *group) {
		c.CPU.Total, c.CPU.User, c.CPU.System = g.number("cpuacct.usage"), g.number("cpuacct.usage_user"), g.number("cpuacct.usage_sys")
	})
	_ = in("cpu", func(g *group) { throttlingV1(&c.CPU, g.read("cpu.stat")) })
	_ = in("pids", func(g *group) {
		c.Processes.Threads, c.Processes.ThreadsMax = g.number("pids.current"), g.number("pids.max")
	})
	_ = in("blkio", func(g *group) { c.IO.Devices = devicesV1(g) })
	_ = in("hugetlb", func(g *group) {
		for _, size := range h.sizes {
			if usage := g.number("hugetlb." + size + ".usage_in_bytes"); usage.Known {
				c.HugePages = append(c.HugePages, HugePages{Size: size, Usage: usage, Peak: g.number("hugetlb." + size + ".max_usage_in_bytes")})
			}
		}
	})
	c.Processes.Count = known(uint64(len(processesBelow(nil, filepath.Join(h.root, "memory", path), buf))))
	return nil
}

func memoryV1(c *Usage, g *group) {
	m := &c.Memory
	m.Usage = g.number("memory.usage_in_bytes")
	m.Peak = g.number("memory.max_usage_in_bytes")
	m.Kernel = g.number("memory.kmem.usage_in_bytes")
	m.LimitHits = g.number("memory.failcnt")
	m.Limit = g.limit("memory.limit_in_bytes")
	var inactive Figure
	lines(g.read("memory.stat"), func(key, value []byte) {
		switch string(key) {
		case "total_inactive_file":
			inactive = parse(value)
		case "total_rss":
			m.RSS = parse(value)
		case "total_cache":
			m.Cache = parse(value)
		case "total_mapped_file":
			m.Mapped = parse(value)
		case "total_pgfault":
			m.Faults = parse(value)
		case "total_pgmajfault":
			m.MajorFaults = parse(value)
		case "total_swap":
			c.Swap.Usage = parse(value)
		}
	})
	m.WorkingSet = workingSet(m.Usage, inactive)
	lines(g.read("memory.oom_control"), func(key, value []byte) {
		if string(key) == "oom_kill" {
			m.OOMKills = parse(value)
		}
	})
	if both := g.limit("memory.memsw.limit_in_bytes"); both.Known && m.Limit.Known {
		c.Swap.Limit = known(both.Value - min(both.Value, m.Limit.Value))
	}
}

func throttlingV1(cpu *CPU, stat []byte) {
	lines(stat, func(key, value []byte) {
		switch string(key) {
		case "nr_periods":
			cpu.Periods = parse(value)
		case "nr_throttled":
			cpu.Throttled = parse(value)
		case "throttled_time":
			cpu.ThrottledTime = parse(value)
		}
	})
}

// devicesV1 reads the traffic that went through the block layer's throttle, which
// is all of it; what buffered writes cause belongs to nobody on cgroup v1.
func devicesV1(g *group) []Device {
	var devices []Device
	lines(g.read("blkio.throttle.io_service_bytes_recursive"), func(key, value []byte) {
		if d := deviceOf(&devices, key); d != nil {
			setOperation(value, &d.ReadBytes, &d.WriteBytes)
		}
	})
	lines(g.read("blkio.throttle.io_serviced_recursive"), func(key, value []byte) {
		if d := deviceOf(&devices, key); d != nil {
			setOperation(value, &d.Reads, &d.Writes)
		}
	})
	return devices
}

// setOperation reads "Read 1" or "Write 2".
func setOperation(line []byte, read, write *uint64) {
	operation, number, _ := bytes.Cut(line, []byte{' '})
	switch string(operation) {
	case "Read":
		*read = parse(number).Value
	case "Write":
		*write = parse(number).Value
	}
}

// deviceOf returns the entry of a device, "major:minor", making it if need be.
func deviceOf(devices *[]Device, name []byte) *Device {
	first, second, ok := bytes.Cut(name, []byte{':'})
	major, minor := parse(first), parse(second)
	if !ok || !major.Known || !minor.Known {
		return nil // the line with the total
	}
	for i, d := range *devices {
		if d.Major == major.Value && d.Minor == minor.Value {
			return &(*devices)[i]
		}
	}
	*devices = append(*devices, Device{Major: major.Value, Minor: minor.Value})
	return &(*devices)[len(*devices)-1]
}
