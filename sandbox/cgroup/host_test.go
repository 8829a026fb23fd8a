package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// testdata/v1 is of a shell with a quota of 20 % on Linux 6.18, testdata/v2 of
// systemd-journald on Linux 6.12.

func TestAllOfCgroupV1IsRead(t *testing.T) {
	dir := t.TempDir()
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids"} {
		link(t, filepath.Join("testdata/v1", controller), filepath.Join(dir, controller))
	}
	u, err := newHost(dir, false, nil).Read("/")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, map[string][2]Figure{
		"cpu":        {u.CPU.Total, known(277296547)},
		"periods":    {u.CPU.Periods, known(15)},
		"throttled":  {u.CPU.ThrottledTime, known(560903790)},
		"usage":      {u.Memory.Usage, known(3334144)},
		"working":    {u.Memory.WorkingSet, known(3334144)},
		"rss":        {u.Memory.RSS, known(3219456)},
		"kernel":     {u.Memory.Kernel, known(114688)},
		"peak":       {u.Memory.Peak, known(6729728)},
		"limit":      {u.Memory.Limit, known(16 << 20)},
		"faults":     {u.Memory.Faults, known(2489)},
		"kills":      {u.Memory.OOMKills, known(0)},
		"swap":       {u.Swap.Usage, known(0)},
		"swap limit": {u.Swap.Limit, Figure{}},
		"processes":  {u.Processes.Count, known(2)},
		"threads":    {u.Processes.Threads, known(2)},
		"maximum":    {u.Processes.ThreadsMax, Figure{}},
	})
	if u.CPU.Pressure.Some.Known || len(u.HugePages) != 0 || time.Since(u.At) > time.Minute {
		t.Errorf("what the kernel lacks is there: %+v", u)
	}
}

func TestAllOfCgroupV2IsRead(t *testing.T) {
	u, err := newHost("testdata", true, []string{"2MB"}).Read("v2")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, map[string][2]Figure{
		"cpu":        {u.CPU.Total, known(3795903000)},
		"user":       {u.CPU.User, known(1424291000)},
		"periods":    {u.CPU.Periods, known(0)},
		"usage":      {u.Memory.Usage, known(7286784)},
		"working":    {u.Memory.WorkingSet, known(7286784 - 339968)},
		"rss":        {u.Memory.RSS, known(1097728)},
		"cache":      {u.Memory.Cache, known(5623808)},
		"mapped":     {u.Memory.Mapped, known(4775936)},
		"kernel":     {u.Memory.Kernel, known(565248)},
		"peak":       {u.Memory.Peak, known(11919360)},
		"limit":      {u.Memory.Limit, Figure{}},
		"faults":     {u.Memory.Faults, known(2696)},
		"major":      {u.Memory.MajorFaults, known(6)},
		"hits":       {u.Memory.LimitHits, known(0)},
		"swap":       {u.Swap.Usage, known(0)},
		"swap limit": {u.Swap.Limit, Figure{}},
		"processes":  {u.Processes.Count, known(1)},
		"maximum":    {u.Processes.ThreadsMax, known(2352)},
	})
	if want := (Device{Major: 254, ReadBytes: 880640, WriteBytes: 7065600, Reads: 84, Writes: 223}); len(u.IO.Devices) != 1 || u.IO.Devices[0] != want {
		t.Errorf("devices: %+v", u.IO.Devices)
	}
	if want := (Stall{Known: true, Avg10: 4.30, Avg60: 3.23, Avg300: 0.95, Total: 3526099000}); u.CPU.Pressure.Some != want {
		t.Errorf("pressure: %+v", u.CPU.Pressure.Some)
	}
	if u.IO.Pressure.Full.Total != 321065000 || len(u.HugePages) != 0 {
		t.Errorf("%+v, %v", u.IO.Pressure, u.HugePages)
	}
}

func TestDevicesOfCgroupV1AreJoined(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "blkio.throttle.io_service_bytes_recursive", "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:16 Read 5\nTotal 12288\n")
	write(t, dir, "blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n")
	buf := make([]byte, 4)
	g := openGroup(dir, &buf)
	defer g.close()
	got := devicesV1(&g)
	if len(got) != 2 || got[0] != (Device{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2}) || got[1].ReadBytes != 5 {
		t.Errorf("%+v", got)
	}
}

func TestACgroupThatIsGoneIsNotFound(t *testing.T) {
	for _, h := range []*Host{newHost(t.TempDir(), false, nil), newHost(t.TempDir(), true, nil)} {
		if _, err := h.Read("/a/b"); !errdefs.IsNotFound(err) {
			t.Errorf("unified %v: %v", h.unified, err)
		}
	}
}

func TestPageSizesAreNamedAsTheKernelDoes(t *testing.T) {
	for kib, want := range map[uint64]string{64: "64KB", 2048: "2MB", 1 << 20: "1GB", 32 << 10: "32MB"} {
		if got := pageSize(kib); got != want {
			t.Errorf("%d KiB: %s, want %s", kib, got, want)
		}
	}
}

func TestNumbersThatAreNoneAreUnknown(t *testing.T) {
	for text, want := range map[string]Figure{"0": known(0), "12": known(12), "max": {}, "": {}, "-1": {}, "99999999999999999999": {}} {
		if got := parse([]byte(text)); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzDevicesAndPressureTakeAnything(f *testing.F) {
	f.Add("254:0 rbytes=1 wbytes=2\n", "some avg10=0.00 total=5\n")
	f.Add("254:0 \n", "full \n")
	f.Fuzz(func(_ *testing.T, devices, pressure string) {
		devicesV2([]byte(devices))
		pressureOf([]byte(pressure))
	})
}

func compare(t *testing.T, figures map[string][2]Figure) {
	t.Helper()
	for name, pair := range figures {
		if pair[0] != pair[1] {
			t.Errorf("%s: %+v, want %+v", name, pair[0], pair[1])
		}
	}
}

func link(t *testing.T, from, to string) {
	t.Helper()
	abs, err := filepath.Abs(from)
	if err == nil {
		err = os.Symlink(abs, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
