package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
)

func TestInitRunsOnCgroupV2(t *testing.T) {
	l := newUnifiedLab(t)
	e := l.open()
	pid := l.start(e, Init{})
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(b), "0::"+l.cg+"\n") {
		t.Errorf("cgroup of init: %s, %v", b, err)
	}
	l.stop(e)
}

func TestOOMScoreBelowOursIsClampedOnceInTheLog(t *testing.T) {
	l := newLab(t)
	e := l.open()
	own, err := ownOOMScore()
	if err != nil {
		t.Fatal(err)
	}
	wish := own - 100
	want, lines := wish, 0
	if !mayLowerOOMScore() {
		want, lines = own, 1
	}
	for range 2 {
		pid := l.start(e, Init{OOMScoreAdj: wish})
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(want) {
			t.Errorf("oom_score_adj = %s, %v, want %d", b, err, want)
		}
		l.stop(e)
	}
	if n := strings.Count(l.log.String(), "CAP_SYS_RESOURCE"); n != lines {
		t.Errorf("said %d times, want %d", n, lines)
	}
}

// TestOOMScoreOfAContainerBelowOursIsClampedForItsExecsToo is what a critical pod asks for.
func TestOOMScoreOfAContainerBelowOursIsClampedForItsExecsToo(t *testing.T) {
	l := newLab(t)
	e := l.open()
	own, err := ownOOMScore()
	l.must(err)
	wish := own - 100
	want := wish
	if !mayLowerOOMScore() {
		want = own
	}
	c := l.launch("critical", "wait")
	c.Spec.Process.OOMScoreAdj = &wish
	l.createContainer(e, c)
	spec, err := e.Spec(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := *spec.Process.OOMScoreAdj; got != want { // which an exec takes over
		t.Errorf("the spec has %d, want %d", got, want)
	}
	if *c.Spec.Process.OOMScoreAdj != wish {
		t.Error("the caller's spec is changed")
	}
	pid, err := e.Start(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(want) {
		t.Errorf("oom_score_adj = %s, %v, want %d", b, err, want)
	}
	l.removeContainer(e, c.ID)
}

func TestContainersOfThePodShareItsShim(t *testing.T) {
	l := newLab(t)
	e := l.open()
	l.start(e, Init{})
	second := l.pod[:32] + "-second"
	in := Init{PodID: l.pod, CgroupsPath: l.cg + "-second"}
	spec, err := typeurl.MarshalAny(initSpec(in, e.info.OCIVersion))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := e.runtime()
	if err != nil {
		t.Fatal(err)
	}
	c := containers.Container{ID: second, SandboxID: e.sandboxID(l.pod), Labels: map[string]string{labelPod: l.pod}, Spec: spec, Runtime: rt}
	if _, err := e.client.ContainerService().Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	root := []*types.Mount{{Type: "bind", Source: e.root, Options: []string{"rbind", "ro"}}}
	pid, err := e.runTask(t.Context(), l.pod, &tasks.CreateTaskRequest{ContainerID: second, Rootfs: root})
	if err != nil {
		t.Fatal(err)
	}
	if shims := processes(t, "crib-shim", l.cfg.State); len(shims) != 1 {
		t.Errorf("shims %v", shims)
	}
	// The other one goes on without the init, and so does their shim.
	l.must(e.StopInit(t.Context(), l.pod))
	if running, err := e.runningPid(t.Context(), second); err != nil || running != pid {
		t.Errorf("runningPid() = %d, %v, want %d", running, err, pid)
	}
	shims := processes(t, "crib-shim", l.cfg.State)
	l.must(e.remove(t.Context(), second))
	l.must(e.Release(t.Context(), l.pod))
	for _, shim := range shims {
		l.awaitEnd(shim)
	}
	l.noTraces(l.pod[:32])
}

func TestHostnameIsNotSetInTheHostsNamespace(t *testing.T) {
	if s := initSpec(Init{Hostname: "a-pod"}, "1.0.2"); s.Hostname != "" {
		t.Errorf("hostname %q without a UTS namespace", s.Hostname)
	}
}

func TestCallersLabelsAreKeptAndNotChanged(t *testing.T) {
	mine := map[string]string{"app": "web"}
	in := Init{PodID: "p", Labels: mine, Annotations: mine}
	if l := initLabels(in); l["app"] != "web" || l[labelPod] != "p" || l[labelKind] != kindSandbox {
		t.Errorf("labels %v", l)
	}
	if a := initSpec(in, "1.0.2").Annotations; a["app"] != "web" || a[annotationPod] != "p" {
		t.Errorf("annotations %v", a)
	}
	if len(mine) != 1 {
		t.Errorf("the caller's map is now %v", mine)
	}
}

func TestInitIsNotStartedWithoutItsProgram(t *testing.T) {
	l := newLab(t)
	l.cfg.Init = ""
	e := l.open()
	if _, err := e.StartInit(t.Context(), Init{PodID: l.pod}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("StartInit() = %v, want failed precondition", err)
	}
	l.must(e.StopInit(t.Context(), l.pod))
}

func TestNewVersionOfTheInitReplacesTheOldOne(t *testing.T) {
	state, program := t.TempDir(), filepath.Join(t.TempDir(), "crib-init")
	for _, content := range []string{"one", "one", "two"} {
		if err := os.WriteFile(program, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := buildInitRoot(state, program)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(root, initName)); err != nil || string(got) != content {
			t.Errorf("program = %q, %v, want %q", got, err, content)
		}
		if st, err := os.Stat(filepath.Join(root, initName)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	}
}
