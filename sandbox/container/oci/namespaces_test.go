package oci

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// namespaceOf returns the path of a namespace, "new" without one, and "host" if it is not named.
func namespaceOf(s *specs.Spec, kind specs.LinuxNamespaceType) string {
	for _, n := range s.Linux.Namespaces {
		switch {
		case n.Type == kind && n.Path == "":
			return "new"
		case n.Type == kind:
			return n.Path
		}
	}
	return "host"
}

func TestPIDNamespaceIsTheOneAskedFor(t *testing.T) {
	tests := []struct {
		claim, mode string
		change      func(*Input)
		want        string
	}{
		{"container", "container", func(*Input) {}, "new"},
		{"unset", "", func(*Input) {}, "new"},
		{"pod", "pod", func(in *Input) { in.Pod.Spec.Namespaces.SharedPID, in.Pod.InitPID = true, 7 }, "/proc/7/ns/pid"},
		{"pod by path", "pod", func(in *Input) { in.PIDNamespace = "/proc/8/ns/pid" }, "/proc/8/ns/pid"},
		{"pod that shares none", "pod", func(*Input) {}, "new"},
		{"pod in the host's", "pod", func(in *Input) { in.Pod.Spec.Namespaces.HostPID = true }, "host"},
		{"node", "node", func(in *Input) { in.Pod.Spec.Namespaces.HostPID = true }, "host"},
		{"target", "target", func(in *Input) { in.PIDNamespace = "/proc/9/ns/pid" }, "/proc/9/ns/pid"},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			in := kubelet(t)
			in.Container.Spec.Security.Namespaces.PID = test.mode
			test.change(&in)
			s, _ := build(t, in)
			if got := namespaceOf(s, specs.PIDNamespace); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestNamespacesThatThePodDoesNotHaveAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Input){
		"pid is NODE":                   func(in *Input) { in.Container.Spec.Security.Namespaces.PID = "node" },
		"pid is TARGET":                 func(in *Input) { in.Container.Spec.Security.Namespaces.PID = "target" },
		"is not a mode":                 func(in *Input) { in.Container.Spec.Security.Namespaces.PID = "planet" },
		"network is NODE, and pod shop": func(in *Input) { in.Container.Spec.Security.Namespaces.HostNetwork = true },
		"ipc is NODE, and pod shop/web": func(in *Input) { in.Container.Spec.Security.Namespaces.HostIPC = true },
	} {
		t.Run(what, func(t *testing.T) {
			in := kubelet(t)
			change(&in)
			wantRefused(t, in, what)
		})
	}
}

func TestPodWhoseInitEndedIsSaid(t *testing.T) {
	in := kubelet(t)
	in.Pod.Spec.Namespaces.SharedPID, in.Container.Spec.Security.Namespaces.PID = true, "pod"
	if _, _, err := Build(in); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("got %v", err)
	}
}

func TestNamespacesOfTheHostAreNotNamed(t *testing.T) {
	in := kubelet(t)
	in.Pod.Pins.Net.Path, in.Pod.Pins.IPC.Path, in.Pod.Pins.UTS.Path = "", "", ""
	s, _ := build(t, in)
	for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		if got := namespaceOf(s, kind); got != "host" {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if s.Hostname != "" {
		t.Error("a hostname would rename the host")
	}
}
