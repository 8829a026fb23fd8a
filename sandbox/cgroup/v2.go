package cgroup

import (
	"bytes"
	"strconv"
)

// readV2 reads a cgroup of cgroup v2.
func readV2(c *Usage, path string, sizes []string, buf *[]byte) error {
	g := openGroup(path, buf)
	defer g.close()
	if g.dir < 0 {
		return g.err
	}
	cpuV2(&c.CPU, g.read("cpu.stat"))
	c.CPU.Pressure = pressureOf(g.read("cpu.pressure"))
	memoryV2(&c.Memory, &g)
	c.Memory.Pressure = pressureOf(g.read("memory.pressure"))
	c.Swap = Swap{Usage: g.number("memory.swap.current"), Limit: g.number("memory.swap.max")}
	c.IO.Devices = devicesV2(g.read("io.stat"))
	c.IO.Pressure = pressureOf(g.read("io.pressure"))
	c.Processes.Threads, c.Processes.ThreadsMax = g.number("pids.current"), g.number("pids.max")
	for _, size := range sizes {
		if usage := g.number("hugetlb." + size + ".current"); usage.Known {
			c.HugePages = append(c.HugePages, HugePages{Size: size, Usage: usage})
		}
	}
	c.Processes.Count = known(uint64(len(processesBelow(nil, path, buf))))
	return g.err
}

func cpuV2(cpu *CPU, stat []byte) {
	micro := func(value []byte) Figure {
		f := parse(value)
		f.Value *= 1000
		return f
	}
	lines(stat, func(key, value []byte) {
		switch string(key) {
		case "usage_usec":
			cpu.Total = micro(value)
		case "user_usec":
			cpu.User = micro(value)
		case "system_usec":
			cpu.System = micro(value)
		case "nr_periods":
			cpu.Periods = parse(value)
		case "nr_throttled":
			cpu.Throttled = parse(value)
		case "throttled_usec":
			cpu.ThrottledTime = micro(value)
		}
	})
}

func memoryV2(m *Memory, g *group) {
	m.Usage, m.Peak, m.Limit = g.number("memory.current"), g.number("memory.peak"), g.number("memory.max")
	var inactive Figure
	lines(g.read("memory.stat"), func(key, value []byte) {
		switch string(key) {
		case "inactive_file":
			inactive = parse(value)
		case "anon":
			m.RSS = parse(value)
		case "file":
			m.Cache = parse(value)
		case "file_mapped":
			m.Mapped = parse(value)
		case "kernel":
			m.Kernel = parse(value)
		case "pgfault":
			m.Faults = parse(value)
		case "pgmajfault":
			m.MajorFaults = parse(value)
		}
	})
	m.WorkingSet = workingSet(m.Usage, inactive)
	lines(g.read("memory.events"), func(key, value []byte) {
		switch string(key) {
		case "max":
			m.LimitHits = parse(value)
		case "oom_kill":
			m.OOMKills = parse(value)
		}
	})
}

// devicesV2 reads lines like "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func devicesV2(stat []byte) []Device {
	var devices []Device
	lines(stat, func(key, value []byte) {
		d := deviceOf(&devices, key)
		if d == nil {
			return
		}
		for field := range bytes.FieldsSeq(value) {
			name, number, _ := bytes.Cut(field, []byte{'='})
			switch string(name) {
			case "rbytes":
				d.ReadBytes = parse(number).Value
			case "wbytes":
				d.WriteBytes = parse(number).Value
			case "rios":
				d.Reads = parse(number).Value
			case "wios":
				d.Writes = parse(number).Value
			}
		}
	})
	return devices
}

// pressureOf reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and "full ...".
func pressureOf(file []byte) Pressure {
	var p Pressure
	lines(file, func(key, value []byte) {
		switch string(key) {
		case "some":
			p.Some = stallOf(value)
		case "full":
			p.Full = stallOf(value)
		}
	})
	return p
}

func stallOf(line []byte) Stall {
	s := Stall{Known: true}
	for field := range bytes.FieldsSeq(line) {
		name, number, _ := bytes.Cut(field, []byte{'='})
		switch string(name) {
		case "avg10":
			s.Avg10 = percent(number)
		case "avg60":
			s.Avg60 = percent(number)
		case "avg300":
			s.Avg300 = percent(number)
		case "total":
			s.Total = parse(number).Value * 1000
		}
	}
	return s
}

func percent(number []byte) float64 {
	f, _ := strconv.ParseFloat(string(number), 64) // the kernel's are well formed; 0 else
	return f
}
