package main

import (
	"context"
	"fmt"
	"os"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	perContainerTurn = 10 // pods with one container, of a turn
	lives            = 20 // containers whose CPU time is counted
)

// What is timed of containers, beside the calls of pods.
const (
	createContainer verb = "create_container"
	startContainer  verb = "start_container"
	startConfined   verb = "start_container_seccomp"
	execSync        verb = "exec_sync"
	stopContainer   verb = "stop_container"
	removeContainer verb = "remove_container"
	fromScratch     verb = "pod_and_container" // run, create and start
	toTheEnd        verb = "stop_and_remove_container"
)

// containerCalls are told of each way but the confined one.
var containerCalls = []verb{
	createContainer, startContainer, execSync, stopContainer, removeContainer, fromScratch, toTheEnd,
}

// born is a pod with one running container.
type born struct{ pod, container string }

// way is how a turn of containers goes.
type way struct {
	atATime  int
	prefix   string // of keys
	confined bool   // by the runtime's own seccomp profile; only the start is told
}

// containers measures all about containers.
func containers(ctx context.Context, r report, o options, targets []*target) error {
	if err := containerTurns(ctx, r, targets, o.containers); err != nil {
		return err
	}
	for _, t := range targets {
		if err := containerCost(ctx, r, t); err != nil {
			return err
		}
	}
	if o.weighed == 0 {
		return nil
	}
	for _, t := range targets {
		if err := containerCrowd(ctx, r, t, o.weighed); err != nil {
			return err
		}
	}
	return nil
}

// containerTurns measures the calls of containers, in turns of all runtimes.
func containerTurns(ctx context.Context, r report, targets []*target, n int) error {
	samples := map[string][]time.Duration{}
	for turn := range n + 1 {
		progress("containers, turn %d of %d", turn, n)
		if turn == 1 {
			clear(samples)
		}
		for _, t := range targets {
			if err := t.containerWays(ctx, samples); err != nil {
				return err
			}
		}
	}
	for key, times := range samples {
		r.percentiles(key, times)
	}
	return nil
}

// containerWays is one runtime's turn, in all ways.
func (t *target) containerWays(ctx context.Context, samples map[string][]time.Duration) error {
	for _, w := range []way{{1, "", false}, {1, "", true}, {10, "ten_", false}} {
		if err := t.containerTurn(ctx, samples, w); err != nil {
			return err
		}
	}
	return nil
}

// containerTurn is one turn of one way: pods with a container come up, a program runs in each
// container, and all of it goes again.
func (t *target) containerTurn(ctx context.Context, samples map[string][]time.Duration, w way) error {
	if err := pause(ctx, rest); err != nil {
		return err
	}
	names := t.names(perContainerTurn)
	all, times := make([]born, len(names)), newTimes(len(names))
	verbs := []verb{runPod, createContainer, startContainer, execSync, stopContainer, removeContainer, stopPod, removePod}
	for _, v := range verbs {
		err := sideBySide(ctx, len(all), w.atATime, func(ctx context.Context, i int) (err error) {
			switch v {
			case runPod:
				all[i].pod, times[v][i], err = t.run(ctx, names[i])
			case createContainer:
				all[i].container, times[v][i], err = t.create(ctx, all[i].pod, t.pod(names[i]), w.confined)
			default:
				times[v][i], err = t.do(ctx, v, all[i])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range all {
		times[fromScratch][i] = times[runPod][i] + times[createContainer][i] + times[startContainer][i]
		times[toTheEnd][i] = times[stopContainer][i] + times[removeContainer][i]
	}
	told := containerCalls
	if w.confined {
		told = []verb{startConfined}
		times[startConfined] = times[startContainer]
	}
	for _, v := range told {
		key := t.name + "_" + w.prefix + string(v)
		samples[key] = append(samples[key], times[v]...)
	}
	return nil
}

// newTimes has room for n times of each call.
func newTimes(n int) map[verb][]time.Duration {
	times := map[verb][]time.Duration{}
	for _, v := range append([]verb{runPod, stopPod, removePod}, containerCalls...) {
		times[v] = make([]time.Duration, n)
	}
	return times
}

// run makes a pod that has a directory for logs, as the kubelet makes it.
func (t *target) run(ctx context.Context, name string) (string, time.Duration, error) {
	if err := os.MkdirAll(t.pod(name).LogDirectory, 0o755); err != nil {
		return "", 0, err
	}
	return t.call(ctx, runPod, name)
}

// bear brings up a pod with one container.
func (t *target) bear(ctx context.Context, name string) (b born, err error) {
	if b.pod, _, err = t.run(ctx, name); err != nil {
		return b, err
	}
	if b.container, _, err = t.create(ctx, b.pod, t.pod(name), false); err != nil {
		return b, err
	}
	_, err = t.do(ctx, startContainer, b)
	return b, err
}

// create makes a container that sleeps in a pod.
func (t *target) create(ctx context.Context, podID string, pod *runtime.PodSandboxConfig, confined bool) (id string, took time.Duration, err error) {
	cfg := t.container("main", "sleep", "100000")
	if confined {
		cfg.Linux.SecurityContext.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault}
	}
	took, err = t.timed(ctx, createContainer, podID, func(ctx context.Context) error {
		resp, err := t.client.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: pod})
		id = resp.GetContainerId()
		return err
	})
	return id, took, err
}

// do makes one call about a pod or its container.
func (t *target) do(ctx context.Context, v verb, b born) (time.Duration, error) {
	switch v {
	case stopPod, removePod:
		_, took, err := t.call(ctx, v, b.pod)
		return took, err
	}
	return t.timed(ctx, v, b.container, func(ctx context.Context) (err error) {
		switch v {
		case startContainer:
			_, err = t.client.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: b.container})
		case execSync:
			var resp *runtime.ExecSyncResponse
			resp, err = t.client.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: b.container, Cmd: []string{"true"}})
			if err == nil && resp.ExitCode != 0 {
				err = fmt.Errorf("exit code %d: %s", resp.ExitCode, resp.Stderr)
			}
		case stopContainer:
			_, err = t.client.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: b.container})
		case removeContainer:
			_, err = t.client.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: b.container})
		}
		return err
	})
}

// containerCost counts the CPU time of the lives of containers in pods that are
// there. It is left out where the kernel does not count by cgroups of version 1.
func containerCost(ctx context.Context, r report, t *target) error {
	progress("cost of containers of %s", t.name)
	names := t.names(lives)
	pods, _, err := t.each(ctx, runPod, names, 1)
	if err != nil {
		return err
	}
	before, counted := t.cpu(names[0])
	for i, pod := range pods {
		if err := t.live(ctx, pod, names[i]); err != nil {
			return err
		}
	}
	if err := pause(ctx, rest); err != nil { // what goes on after the last answer
		return err
	}
	if after, _ := t.cpu(names[0]); counted {
		r[t.name+"_cpu_per_container_life_ms"] = millis(after-before) / lives
	}
	_, _, err = t.end(ctx, pods, 1)
	return err
}

// live is the life of one container in a pod.
func (t *target) live(ctx context.Context, podID, name string) error {
	pod := t.pod(name)
	if err := os.MkdirAll(pod.LogDirectory, 0o755); err != nil {
		return err
	}
	id, _, err := t.create(ctx, podID, pod, false)
	if err != nil {
		return err
	}
	for _, v := range []verb{startContainer, stopContainer, removeContainer} {
		if _, err := t.do(ctx, v, born{podID, id}); err != nil {
			return err
		}
	}
	return nil
}

// containerCrowd weighs pods with one container each.
func containerCrowd(ctx context.Context, r report, t *target, n int) error {
	progress("%d pods of %s with a container", n, t.name)
	before, err := t.weigh(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, n)
	for i, name := range t.names(n) {
		b, err := t.bear(ctx, name)
		if err != nil {
			return err
		}
		ids[i] = b.pod
	}
	after, err := t.weigh(ctx)
	if err != nil {
		return err
	}
	r[t.name+"_pss_per_pod_with_container_kib"] = (after.pss - before.pss) / float64(n)
	r[t.name+"_kernel_per_pod_with_container_kib"] = (after.kernel - before.kernel) / float64(n)
	_, _, err = t.end(ctx, ids, 1)
	return err
}
