package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTime bounds each call.
const callTime = time.Minute

// target is a runtime to measure.
type target struct {
	daemon
	name      string
	client    runtime.RuntimeServiceClient
	pod       func(name string) *runtime.PodSandboxConfig
	container func(name string, command ...string) *runtime.ContainerConfig
	many      int // pods to weigh
	named     int // pods that had a name so far
}

// daemon is what there is of a runtime on the machine.
type daemon struct {
	pid   int
	shim  string // program of its shims
	group string // cgroup that counts its CPU time, may be empty
}

// verb is one of the calls that are measured.
type verb string

// The calls, in the order of a pod's life.
const (
	runPod    verb = "run_pod_sandbox"
	stopPod   verb = "stop_pod_sandbox"
	removePod verb = "remove_pod_sandbox"
)

// names returns names of n pods that the runtime has not seen.
func (t *target) names(n int) []string {
	names := make([]string, n)
	for i := range names {
		t.named++
		names[i] = fmt.Sprintf("pod-%d", t.named)
	}
	return names
}

// call makes one call about one pod. It takes the pod's name where it runs it,
// else its id, and returns the id.
func (t *target) call(ctx context.Context, v verb, pod string) (id string, took time.Duration, err error) {
	run := &runtime.RunPodSandboxRequest{}
	if v == runPod {
		run.Config = t.pod(pod)
	}
	id = pod
	took, err = t.timed(ctx, v, pod, func(ctx context.Context) (err error) {
		switch v {
		case runPod:
			var resp *runtime.RunPodSandboxResponse
			resp, err = t.client.RunPodSandbox(ctx, run)
			id = resp.GetPodSandboxId()
		case stopPod:
			_, err = t.client.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: pod})
		case removePod:
			_, err = t.client.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod})
		}
		return err
	})
	return id, took, err
}

// timed makes one call about something. A call that has begun is waited for,
// whatever becomes of ctx: a runtime goes on with one that is given up, unseen.
func (t *target) timed(ctx context.Context, v verb, about string, call func(context.Context) error) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	took := time.Since(start)
	if err != nil {
		err = fmt.Errorf("%s of %s, %s: %w", v, t.name, about, err)
	}
	return took, err
}

// each makes a call about every pod, as many at a time, and returns ids and times
// in the order of pods.
func (t *target) each(ctx context.Context, v verb, pods []string, atATime int) ([]string, []time.Duration, error) {
	ids, times := make([]string, len(pods)), make([]time.Duration, len(pods))
	return ids, times, sideBySide(ctx, len(pods), atATime, func(ctx context.Context, i int) (err error) {
		ids[i], times[i], err = t.call(ctx, v, pods[i])
		return err
	})
}

// sideBySide calls f with 0 to n-1, as many at a time, until one fails.
func sideBySide(ctx context.Context, n, atATime int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// end stops and removes pods, and returns the times of both.
func (t *target) end(ctx context.Context, ids []string, atATime int) (stop, remove []time.Duration, err error) {
	if _, stop, err = t.each(ctx, stopPod, ids, atATime); err != nil {
		return nil, nil, err
	}
	_, remove, err = t.each(ctx, removePod, ids, atATime)
	return stop, remove, err
}

// removeAll removes every pod of every runtime, after an error.
func removeAll(ctx context.Context, targets []*target) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*callTime)
	defer cancel()
	var errs []error
	for _, t := range targets {
		list, err := t.client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
		errs = append(errs, err)
		for _, pod := range list.GetItems() {
			_, _, err := t.end(ctx, []string{pod.Id}, 1)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
