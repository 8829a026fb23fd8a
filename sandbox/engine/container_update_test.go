package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
)

// used reads what a container of the lab uses.
func (l *lab) used(c container.Launch) (cgroup.Usage, error) {
	return cgroup.NewHost(cgroup.Root).Read(cgroup.Path(c.Spec.Linux.CgroupsPath, false))
}

// waiting runs a container that waits.
func (l *lab) waiting(e *Engine) (container.Launch, int) {
	l.Helper()
	c := l.launch("limited", "wait")
	pid := l.runContainer(e, c)
	l.awaitLog(c.LogPath, "stdout F ready")
	return c, pid
}

func TestUpdateChangesTheLimitAndUsageShowsIt(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c, _ := l.waiting(e)
	limit := int64(64 << 20)
	l.must(e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}}))
	u, err := l.used(c)
	if err != nil || u.Memory.Limit.Value != uint64(limit) || u.CPU.Total.Value == 0 || u.Memory.WorkingSet.Value == 0 || u.Processes.Count.Value != 1 {
		t.Errorf("used: %+v, %v", u, err)
	}
	tiny := int64(4096)
	if err := e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &tiny}}}); err == nil {
		t.Error("less memory than is used is no error")
	}
	if u, err = l.used(c); err != nil || u.Memory.Limit.Value != uint64(limit) {
		t.Errorf("what was refused changed the limit: %+v, %v", u.Memory, err)
	}
	l.removeContainer(e, c.ID)
	if _, err := l.used(c); !errdefs.IsNotFound(err) {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestUpdateOfCPUsLeavesTheRest(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c, _ := l.waiting(e)
	quota, period, limit := int64(20000), uint64(100000), int64(64<<20)
	l.must(e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}, Memory: &specs.LinuxMemory{Limit: &limit},
	}}))
	l.must(e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}}}))
	path := cgroup.Path(c.Spec.Linux.CgroupsPath, false)
	for file, want := range map[string]string{
		"cpuset/" + path + "/cpuset.cpus": "0", "cpu/" + path + "/cpu.cfs_quota_us": "20000",
		"memory/" + path + "/memory.limit_in_bytes": strconv.Itoa(64 << 20),
	} {
		if b, err := os.ReadFile(filepath.Join(cgroup.Root, file)); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s: %q, %v, want %s", file, b, err, want)
		}
	}
	l.removeContainer(e, c.ID)
}

func TestUpdateRescoresTheProcessesThatHadTheScore(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c, pid := l.waiting(e)
	score := func() string {
		b, err := os.ReadFile(oomScoreFile(pid))
		l.must(err)
		return strings.TrimSpace(string(b))
	}
	l.must(e.Update(t.Context(), c.ID, container.Change{OOMScoreAdj: 987}))
	if got := score(); got != "987" {
		t.Errorf("the first process has %s", got)
	}
	l.must(e.Update(t.Context(), c.ID, container.Change{OOMScoreAdj: 987})) // again is fine
	l.must(e.Update(t.Context(), c.ID, container.Change{}))
	if got := score(); got != "987" {
		t.Errorf("a change of nothing makes it %s", got)
	}
	l.removeContainer(e, c.ID)
}

func TestHugePagesAndUnifiedAreUpdatedOnCgroupV2(t *testing.T) {
	l := newUnifiedLab(t)
	e := l.open()
	c, _ := l.waiting(e)
	file := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(cgroup.Root, c.Spec.Linux.CgroupsPath, name))
		return strings.TrimSpace(string(b))
	}
	if file("hugetlb.2MB.max") == "" {
		l.removeContainer(e, c.ID)
		t.Skip("this kernel cannot limit huge pages on cgroup v2")
	}
	l.must(e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}},
	}}))
	if got := file("hugetlb.2MB.max"); got != strconv.Itoa(4<<20) {
		t.Errorf("the limit of huge pages is %q", got)
	}
	l.must(e.Update(t.Context(), c.ID, container.Change{Limits: &specs.LinuxResources{Unified: map[string]string{"hugetlb.2MB.max": "8388608"}}}))
	if got := file("hugetlb.2MB.max"); got != strconv.Itoa(8<<20) {
		t.Errorf("by its file's name the limit is %q", got)
	}
	l.removeContainer(e, c.ID)
}

func TestALayerIsWalkedAgainOnlyAfterWork(t *testing.T) {
	l := newLab(t)
	e := l.open()
	c, _ := l.waiting(e)
	idle := cgroup.Figure{Value: 5, Known: true}
	first, err := e.Layer(t.Context(), c.ID, idle)
	if err != nil || first.Bytes < 100_000 || first.Inodes == 0 || first.At.IsZero() {
		t.Fatalf("Layer() = %+v, %v", first, err)
	}
	// The past lets the walk be due.
	l.must(keepSize(filepath.Join(e.containerDir(c.ID), "size.json"), layerSize{Bytes: 1, Inodes: 1, Spent: idle, At: time.Unix(1, 0)}))
	if again, err := e.Layer(t.Context(), c.ID, idle); err != nil || again.Bytes != 1 || time.Since(again.At) > patience {
		t.Errorf("an idle one was walked: %+v, %v", again, err)
	}
	if again, err := e.Layer(t.Context(), c.ID, cgroup.Figure{Value: 6, Known: true}); err != nil || again.Bytes != first.Bytes {
		t.Errorf("one that worked was not walked: %+v, %v", again, err)
	}
	l.removeContainer(e, c.ID)
	if _, err := e.Layer(t.Context(), c.ID, cgroup.Figure{}); err == nil {
		t.Error("Layer() of one that is gone gives no error")
	}
}
