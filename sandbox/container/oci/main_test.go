package oci

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/network/netns"
	"github.com/crib-runtime/crib/network/netns/nstest"
	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
	"github.com/crib-runtime/crib/sandbox/image"
)

// TestMain fuzzes without namespaces: the processes that Go starts for it do not
// find their way through another run of the binary, and fuzzing mounts nothing.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(m.Run())
	}
	os.Exit(nstest.Main(m))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file and the directories above it.
func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// kubelet is what the kubelet asks for an ordinary container on cgroup v2.
func kubelet(t testing.TB) Input {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, name := range []string{"hostname", "hosts", "resolv.conf"} {
		write(t, filepath.Join(dir, "pod", name), "")
	}
	must(t, os.MkdirAll(filepath.Join(dir, "pod/shm"), 0o755))
	write(t, filepath.Join(dir, "root/etc/passwd"), "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")
	write(t, filepath.Join(dir, "root/etc/group"), "root:x:0:\napp:x:1001:\nmail:x:8:app\nstaff:x:50:app,root\n")
	pod := &sandbox.Pod{
		ID:   strings.Repeat("a", 64),
		Spec: sandbox.Spec{Key: sandbox.Key{Namespace: "shop", Name: "web", UID: "u-1"}, Hostname: "web"},
		Pins: netns.Pins{
			Net: netns.Pin{Path: "/run/netns/crib-aaaa"}, IPC: netns.Pin{Path: "/run/crib/pods/a/ns/ipc"},
			UTS: netns.Pin{Path: "/run/crib/pods/a/ns/uts"},
		},
	}
	return Input{
		Container: &container.Container{ID: strings.Repeat("c", 64), Spec: container.Spec{
			Key:     container.Key{PodID: pod.ID, Name: "nginx"},
			Image:   container.ImageSpec{Image: "sha256:1234", UserImage: "nginx:1.29"},
			Process: container.Process{Env: []string{"KUBERNETES_PORT=tcp://10.96.0.1:443"}},
			Security: container.Security{
				Namespaces: container.Namespaces{PID: "container"}, Seccomp: container.Profile{Kind: "default"},
				MaskedPaths: []string{"/proc/acpi", "/proc/kcore"}, ReadOnlyPaths: []string{"/proc/bus", "/proc/sys"},
			},
			Resources: container.Resources{CPUShares: 102, OOMScoreAdj: 996, MemoryLimit: 64 << 20, CPUQuota: 20000, CPUPeriod: 100000},
		}},
		Pod:         pod,
		PodDir:      filepath.Join(dir, "pod"),
		Image:       image.Config{Entrypoint: []string{"/entry"}, Cmd: []string{"nginx", "-g"}, Env: []string{"PATH=/bin", "NGINX=1"}},
		Root:        filepath.Join(dir, "root"),
		Volumes:     filepath.Join(dir, "volumes"),
		CgroupsPath: "/kubepods/burstable/pod-u-1/" + strings.Repeat("c", 64),
		Features:    Features{OCIVersion: "1.2.0", Unified: true, Swap: true, Hugetlb: true, Seccomp: true, RecursiveReadOnly: true},
	}
}

// build builds what must be buildable.
func build(t testing.TB, in Input) (*specs.Spec, container.EffectiveUser) {
	t.Helper()
	s, user, err := Build(in)
	must(t, err)
	return s, user
}

// wantRefused wants an error about the request that says what.
func wantRefused(t *testing.T, in Input, what string) {
	t.Helper()
	_, _, err := Build(in)
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), what) {
		t.Errorf("got %v, want InvalidArgument about %q", err, what)
	}
}

// destinations are where the mounts are, in their order.
func destinations(s *specs.Spec) []string {
	var all []string
	for _, m := range s.Mounts {
		all = append(all, m.Destination)
	}
	return all
}

// mountAt returns the mount at a path of the container.
func mountAt(t *testing.T, s *specs.Spec, path string) specs.Mount {
	t.Helper()
	for _, m := range s.Mounts {
		if m.Destination == path {
			return m
		}
	}
	t.Fatalf("no mount at %s among %v", path, destinations(s))
	return specs.Mount{}
}
