package integration

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// TestInspectHasTheKeysThatScriptsRead: they are containerd's, and the timeline.
func TestInspectHasTheKeysThatScriptsRead(t *testing.T) {
	c := startWithImage(t)
	cfg := c.Pod("a")
	id, ips := c.pod(cfg)
	var pod struct {
		RuntimeSpec specs.Spec
		CNIResult   struct {
			Interfaces map[string]struct {
				IPConfigs []struct{ IP, Gateway string }
			}
		}
		Config   struct{ Metadata struct{ Name string } }
		Timeline map[string]float64
	}
	resp, err := c.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err == nil {
		err = json.Unmarshal([]byte(resp.Info["info"]), &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	if eth0 := pod.CNIResult.Interfaces["eth0"].IPConfigs; len(eth0) != 2 || eth0[0].IP != ips[0].String() || eth0[0].Gateway != "10.85.0.1" {
		t.Errorf("info.cniResult: %+v", pod.CNIResult)
	}
	if ns := pod.RuntimeSpec.Linux.Namespaces; len(ns) == 0 || ns[0].Type != specs.NetworkNamespace || ns[0].Path != lab.Netns(id) {
		t.Errorf("info.runtimeSpec.linux.namespaces: %+v", ns)
	}
	if pod.Config.Metadata.Name != "a" {
		t.Errorf("info.config: %+v", pod.Config)
	}
	for _, stage := range []string{"plan", "record", "files", "namespaces", "network", "total"} {
		if pod.Timeline[stage] <= 0 || pod.Timeline[stage] > pod.Timeline["total"] {
			t.Errorf("info.timeline.%s is %v ms of %v", stage, pod.Timeline[stage], pod.Timeline)
		}
	}

	var container struct {
		PID         int
		RuntimeSpec specs.Spec
		SandboxID   string
	}
	ctr := c.launch(id, cfg, c.Container("main", "sleep", "1000"))
	status, err := c.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: ctr, Verbose: true})
	if err == nil {
		err = json.Unmarshal([]byte(status.Info["info"]), &container)
	}
	if err != nil {
		t.Fatal(err)
	}
	if container.PID == 0 || container.SandboxID != id || len(container.RuntimeSpec.Process.Args) != 2 || container.RuntimeSpec.Process.Args[0] != "sleep" {
		t.Errorf("inspect shows %+v", container)
	}
}
