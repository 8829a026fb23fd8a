package cgroup

import "time"

// Figure is a number that a kernel may not have. The zero value is none.
type Figure struct {
	Value uint64
	Known bool
}

func known(value uint64) Figure { return Figure{Value: value, Known: true} }

// Plus returns the sum of what is known.
func (f Figure) Plus(g Figure) Figure {
	return Figure{Value: f.Value + g.Value, Known: f.Known || g.Known}
}

// Usage is what the processes of one cgroup, and of those below it, used.
type Usage struct {
	At        time.Time
	CPU       CPU
	Memory    Memory
	Swap      Swap
	IO        IO
	Processes Processes
	HugePages []HugePages
}

// CPU is time of processors, in nanoseconds of all of them together.
type CPU struct {
	Total, User, System Figure
	Periods             Figure // in which the quota counted
	Throttled           Figure // periods in which it was used up
	ThrottledTime       Figure
	Rate                Figure // nanoseconds in a second, since an earlier reading
	Pressure            Pressure
}

// Memory is in bytes, unless said otherwise.
type Memory struct {
	Usage       Figure
	WorkingSet  Figure // usage without files that were not used for long: the kubelet's measure
	RSS         Figure // anonymous
	Cache       Figure // of files
	Mapped      Figure // of these, what is mapped
	Kernel      Figure
	Peak        Figure // of usage
	Limit       Figure // unknown if there is none
	LimitHits   Figure // how often usage met the limit
	Faults      Figure // of pages
	MajorFaults Figure // of these, with reading
	OOMKills    Figure // processes that were killed for want of memory
	Pressure    Pressure
}

// Swap is in bytes. The limit is unknown if there is none.
type Swap struct{ Usage, Limit Figure }

// IO is what went to block devices.
type IO struct {
	Devices  []Device
	Pressure Pressure
}

// Device is the traffic with one block device.
type Device struct {
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// Processes is how many there are.
type Processes struct {
	Count      Figure
	Threads    Figure
	ThreadsMax Figure // unknown if there is no limit
}

// HugePages are those of one size, as "2MB"; in bytes.
type HugePages struct {
	Size        string
	Usage, Peak Figure
}

// Pressure is how long tasks waited for a resource.
type Pressure struct{ Some, Full Stall }

// Stall is one line of a pressure file.
type Stall struct {
	Known                bool
	Avg10, Avg60, Avg300 float64 // percent of the time
	Total                uint64  // nanoseconds
}

// Add adds what another cgroup used, as far as it can be added: pressure, peaks and
// limits cannot.
func (c *Usage) Add(o Usage) {
	if c.At.IsZero() {
		c.At = o.At
	}
	sum := func(to *Figure, f Figure) { *to = to.Plus(f) }
	sum(&c.CPU.Total, o.CPU.Total)
	sum(&c.CPU.User, o.CPU.User)
	sum(&c.CPU.System, o.CPU.System)
	sum(&c.CPU.Periods, o.CPU.Periods)
	sum(&c.CPU.Throttled, o.CPU.Throttled)
	sum(&c.CPU.ThrottledTime, o.CPU.ThrottledTime)
	sum(&c.Memory.Usage, o.Memory.Usage)
	sum(&c.Memory.WorkingSet, o.Memory.WorkingSet)
	sum(&c.Memory.RSS, o.Memory.RSS)
	sum(&c.Memory.Cache, o.Memory.Cache)
	sum(&c.Memory.Mapped, o.Memory.Mapped)
	sum(&c.Memory.Kernel, o.Memory.Kernel)
	sum(&c.Memory.Faults, o.Memory.Faults)
	sum(&c.Memory.MajorFaults, o.Memory.MajorFaults)
	sum(&c.Memory.OOMKills, o.Memory.OOMKills)
	sum(&c.Swap.Usage, o.Swap.Usage)
	sum(&c.Processes.Count, o.Processes.Count)
	sum(&c.Processes.Threads, o.Processes.Threads)
}
