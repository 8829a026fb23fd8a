package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

func TestStatusesLackNothingThatTheKubeletNeeds(t *testing.T) {
	for _, state := range []container.State{container.Created, container.Running, container.Exited, container.Unknown} {
		c := one("a", state)
		c.StartedAt = time.Unix(11, 0)
		got := containerStatusOf(c)
		if got.Id == "" || got.Metadata.GetName() == "" || got.CreatedAt == 0 || got.Image.GetImage() == "" ||
			got.ImageRef == "" || got.ImageId == "" || got.Resources.GetLinux() == nil || got.User.GetLinux() == nil {
			t.Errorf("%s: got %v", state, got)
		}
		if started := state != container.Created; (got.StartedAt != 0) != started {
			t.Errorf("%s: started at %d", state, got.StartedAt)
		}
		if finished := state == container.Exited || state == container.Unknown; (got.FinishedAt != 0) != finished {
			t.Errorf("%s: finished at %d", state, got.FinishedAt)
		}
		if item := containerItemOf(c); item.Image.GetImage() == "" || item.ImageRef == "" || item.ImageId == "" || item.Metadata == nil {
			t.Errorf("%s: listed as %v", state, item)
		}
	}
}

func TestAStartThatFailedIsToldAsIt(t *testing.T) {
	c := one("a", container.Exited)
	c.Exit = container.Exit{At: time.Unix(12, 0), Code: 128, Reason: container.ReasonStartError, Message: "no such file"}
	got := containerStatusOf(c)
	if got.State != runtime.ContainerState_CONTAINER_EXITED || got.ExitCode != 128 || got.Reason != "StartError" ||
		got.Message != "no such file" || got.FinishedAt != c.Exit.At.UnixNano() || got.StartedAt != 0 {
		t.Errorf("got %v", got)
	}
}

func TestStatusesEchoWhatWasAsked(t *testing.T) {
	req := createRequest(func(c *config) {
		c.Labels, c.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "2"}
		c.Mounts = []*runtime.Mount{{ContainerPath: "/dev/termination-log", HostPath: "/pods/x"}}
		c.StopSignal, c.LogPath = runtime.Signal_SIGNAL_SIGUSR1, "0.log"
		c.Linux.Resources = &runtime.LinuxContainerResources{CpuShares: 2}
	})
	c := one("a", container.Running)
	spec, err := containerSpecFrom(req, &sandbox.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	c.Spec, c.User = spec, container.EffectiveUser{UID: 1, GID: 2, Groups: []int64{3}}
	got := containerStatusOf(c)
	if got.Labels["l"] != "1" || got.Annotations["a"] != "2" || !proto.Equal(got.Mounts[0], req.Config.Mounts[0]) ||
		got.StopSignal != req.Config.StopSignal || got.LogPath != "/logs/0.log" || got.Image.Image != "busybox" ||
		!proto.Equal(got.Resources.Linux, req.Config.Linux.Resources) || got.User.Linux.SupplementalGroups[0] != 3 {
		t.Errorf("got %v", got)
	}
}

func TestInfoHasTheKeysThatScriptsRead(t *testing.T) {
	c := one("a", container.Running)
	c.PID, c.Spec.Process.Env = 7, []string{"A=b"}
	resp, err := (&world{containers: []*container.Container{c}}).service(t).ContainerStatus(context.Background(),
		&runtime.ContainerStatusRequest{ContainerId: "aa", Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		PID         int
		SandboxID   string
		SnapshotKey string
		RuntimeType string
		Config      struct{ Envs []struct{ Key string } }
	}
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if info.PID != 7 || info.SandboxID != "pod-of-a" || info.SnapshotKey != c.ID || info.RuntimeType == "" || info.Config.Envs[0].Key != "A" {
		t.Errorf("got %+v", info)
	}
}

func TestListsHaveWhatTheFilterLeaves(t *testing.T) {
	s := (&world{containers: []*container.Container{
		one("a", container.Running), one("b", container.Exited), one("c", container.Creating), one("d", container.Unknown),
	}}).service(t)
	running := &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING}
	for _, test := range []struct {
		filter *runtime.ContainerFilter
		want   string
	}{
		{nil, "abd"},
		{&runtime.ContainerFilter{Id: "aaa"}, "a"},
		{&runtime.ContainerFilter{State: running}, "a"},
		{&runtime.ContainerFilter{PodSandboxId: "pod-of-b"}, "b"},
		{&runtime.ContainerFilter{LabelSelector: map[string]string{"l": "d"}}, "d"},
		{&runtime.ContainerFilter{LabelSelector: map[string]string{"l": "d", "m": ""}}, ""},
		{&runtime.ContainerFilter{Id: "b", State: running}, ""},
	} {
		resp, err := s.ListContainers(context.Background(), &runtime.ListContainersRequest{Filter: test.filter})
		var got string
		for _, c := range resp.GetContainers() {
			got += c.Metadata.Name
		}
		if err != nil || got != test.want {
			t.Errorf("%v: got %q, %v, want %q", test.filter, got, err, test.want)
		}
	}
}

func TestStopAndRemoveOfUnknownContainersAreOK(t *testing.T) {
	ctx, unknown := context.Background(), fmt.Errorf("container: %w", errdefs.ErrNotFound)
	s := (&world{err: unknown}).service(t)
	if _, err := s.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: "x"}); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := s.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: "x"}); err != nil {
		t.Errorf("remove: %v", err)
	}
	s = (&world{err: unknown, containers: []*container.Container{one("a", container.Running)}}).service(t)
	if _, err := s.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: "a"}); !errdefs.IsNotFound(err) {
		t.Errorf("stop of one that is there, but lacks something: %v", err)
	}
	if _, err := s.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: "x"}); !errdefs.IsNotFound(err) {
		t.Errorf("status: %v", err)
	}
	if _, err := s.ContainerStatus(ctx, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("status of nothing: %v", err)
	}
}

func TestShortIDsAreOfOneContainerOnly(t *testing.T) {
	all := []string{"aaa", "aab", "b"}
	for short, want := range map[string]string{"aaa": "aaa", "aa": "aa", "b": "b", "c": "c", "": ""} {
		if got := complete(short, slices.Values(all)); got != want {
			t.Errorf("%q: got %q", short, got)
		}
	}
}

func TestGraceIsNeverNegativeNorTooLong(t *testing.T) {
	for n, want := range map[int64]time.Duration{-3: 0, 0: 0, 10: 10 * time.Second} {
		w := &world{}
		if _, err := w.service(t).StopContainer(context.Background(), &runtime.StopContainerRequest{Timeout: n}); err != nil || w.stopped != want {
			t.Errorf("%d: got %s, %v", n, w.stopped, err)
		}
	}
	if got := seconds(math.MaxInt64); got <= 0 {
		t.Errorf("the longest: got %s", got)
	}
}

func TestUpdatesOfNothingChangeNothing(t *testing.T) {
	w := &world{}
	if _, err := w.service(t).UpdateContainerResources(context.Background(), &runtime.UpdateContainerResourcesRequest{}); err != nil || w.updated.CPUShares != 0 {
		t.Errorf("got %+v, %v", w.updated, err)
	}
	req := &runtime.UpdateContainerResourcesRequest{Linux: &runtime.LinuxContainerResources{CpusetCpus: "1"}}
	if _, err := w.service(t).UpdateContainerResources(context.Background(), req); err != nil || w.updated.CPUSetCPUs != "1" {
		t.Errorf("got %+v, %v", w.updated, err)
	}
}

func TestExecSyncTellsATimeOutByItsCode(t *testing.T) {
	w := &world{containers: []*container.Container{one("a", container.Running), one("b", container.Exited)}, output: []byte("out")}
	s := w.service(t)
	exec := func(id string) (*runtime.ExecSyncResponse, error) {
		return s.ExecSync(context.Background(), &runtime.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 1})
	}
	if resp, err := exec("a"); err != nil || resp.ExitCode != 3 || string(resp.Stdout) != "out" {
		t.Errorf("got %v, %v", resp, err)
	}
	w.execErr = fmt.Errorf("running true: %w", context.DeadlineExceeded)
	if _, err := exec("a"); status.Code(statusFrom(err)) != codes.DeadlineExceeded {
		t.Errorf("time-out: got %v", statusFrom(err))
	}
	if _, err := exec("b"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("one that has ended: got %v", err)
	}
	if _, err := s.ExecSync(context.Background(), &runtime.ExecSyncRequest{ContainerId: "a"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no command: got %v", err)
	}
}

func TestOutputsFitIntoOneMessage(t *testing.T) {
	all := bytes.Repeat([]byte("x"), maxMessage)
	for _, test := range []struct{ out, errs int }{{maxMessage, 0}, {0, maxMessage}, {maxMessage, maxMessage}, {maxMessage, 100}, {5, 6}} {
		stdout, stderr := fit(all[:test.out], all[:test.errs])
		if n := proto.Size(&runtime.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: 255}); n > maxMessage {
			t.Errorf("%+v: the message has %d bytes", test, n)
		}
		if test.errs <= 100 && len(stderr) != test.errs || test.out <= 100 && len(stdout) != test.out {
			t.Errorf("%+v: cut to %d and %d", test, len(stdout), len(stderr))
		}
	}
}

func TestSessionsAreOfContainersThatRun(t *testing.T) {
	w := &world{containers: []*container.Container{one("a", container.Running), one("b", container.Created)}}
	s := w.service(t)
	for _, test := range []struct {
		req  *runtime.ExecRequest
		want error
	}{
		{&runtime.ExecRequest{ContainerId: "aa", Cmd: []string{"sh"}, Stdout: true, Stderr: true}, nil},
		{&runtime.ExecRequest{ContainerId: "aa", Cmd: []string{"sh"}, Stdin: true, Stdout: true, Tty: true}, nil},
		{&runtime.ExecRequest{ContainerId: "aa", Stdout: true}, errdefs.ErrInvalidArgument},
		{&runtime.ExecRequest{ContainerId: "aa", Cmd: []string{"sh"}}, errdefs.ErrInvalidArgument},
		{&runtime.ExecRequest{ContainerId: "aa", Cmd: []string{"sh"}, Tty: true, Stderr: true}, errdefs.ErrInvalidArgument},
		{&runtime.ExecRequest{Cmd: []string{"sh"}, Stdout: true}, errdefs.ErrInvalidArgument},
		{&runtime.ExecRequest{ContainerId: "b", Cmd: []string{"sh"}, Stdout: true}, errdefs.ErrFailedPrecondition},
		{&runtime.ExecRequest{ContainerId: "c", Cmd: []string{"sh"}, Stdout: true}, errdefs.ErrNotFound},
	} {
		resp, err := s.Exec(context.Background(), test.req)
		if !errors.Is(err, test.want) || err == nil && (resp.Url != "http://host/exec" || w.session.ContainerID != w.containers[0].ID) {
			t.Errorf("%v: got %v, %v", test.req, resp, err)
		}
	}
	if resp, err := s.Attach(context.Background(), &runtime.AttachRequest{ContainerId: "a", Stdin: true}); err != nil || resp.Url != "http://host/attach" {
		t.Errorf("attach: got %v, %v", resp, err)
	}
	if _, err := s.PortForward(context.Background(), &runtime.PortForwardRequest{Port: []int32{80, 70000}}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "port[1]") {
		t.Errorf("port-forward: got %v", err)
	}
}
