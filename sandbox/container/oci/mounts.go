package oci

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crib-runtime/crib/sandbox/container"
)

// bind is a bind mount on its way into the specification.
type bind struct {
	container.Mount
	where  string // what an error calls it
	create bool   // a source that is missing is made as a directory
}

// setMounts sets what every container has, without what the request covers, and
// then the rest, the parents first.
func setMounts(in Input, s *specs.Spec) error {
	binds := requested(in)
	taken := map[string]bool{}
	for _, b := range binds {
		taken[b.ContainerPath] = true
	}
	binds = append(binds, podFiles(in, taken)...)
	volumes, err := imageVolumes(in, taken)
	if err != nil {
		return err
	}
	binds = append(binds, volumes...)
	for _, b := range binds {
		taken[b.ContainerPath] = true
	}
	s.Mounts = slices.DeleteFunc(standardMounts(in), func(m specs.Mount) bool { return covered(m.Destination, taken) })
	slices.SortStableFunc(binds, func(a, b bind) int { return depth(a.ContainerPath) - depth(b.ContainerPath) })
	for _, b := range binds {
		m, propagation, err := b.mount(in)
		if err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, m)
		s.Linux.RootfsPropagation = stronger(s.Linux.RootfsPropagation, propagation)
	}
	return nil
}

// checkMounts refuses requests for mounts that cannot be; nothing is touched.
func checkMounts(in Input, _ *specs.Spec) error {
	for _, b := range requested(in) {
		if err := b.check(in.Features); err != nil {
			return err
		}
	}
	return nil
}

// requested are the mounts of the request.
func requested(in Input) []bind {
	var binds []bind
	for i, m := range in.Container.Spec.Mounts {
		m.ContainerPath = cleanInside(m.ContainerPath)
		binds = append(binds, bind{Mount: m, where: fmt.Sprintf("config.mounts[%d] (%s)", i, m.ContainerPath), create: true})
	}
	return binds
}

func depth(path string) int { return strings.Count(path, "/") }

// covered says whether a mount at path would be replaced or hidden.
func covered(path string, taken map[string]bool) bool {
	for ; path != "/"; path = filepath.Dir(path) {
		if taken[path] {
			return true
		}
	}
	return false
}

// standardMounts are those of every container.
func standardMounts(in Input) []specs.Mount {
	mode := "ro"
	if in.Container.Spec.Security.Privileged {
		mode = "rw"
	}
	harmless := []string{"nosuid", "noexec", "nodev"}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: harmless},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: harmless},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: slices.Concat(harmless, []string{mode})},
		cgroupMount(in, slices.Concat(harmless, []string{"relatime", mode})),
	}
}

// cgroupMount is the container's view of the cgroups; see the second decision.
func cgroupMount(in Input, options []string) specs.Mount {
	m := specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: options}
	if in.Features.Unified && !ownCgroups(in) {
		m.Type, m.Source, m.Options = "bind", m.Destination, slices.Concat([]string{"rbind", "rprivate"}, options)
	}
	return m
}

// podFiles are the files of the pod that each of its containers sees, unless the
// request has something else there.
func podFiles(in Input, taken map[string]bool) []bind {
	shm := filepath.Join(in.PodDir, "shm")
	if in.Pod.Pins.IPC.Path == "" {
		shm = "/dev/shm" // the host's IPC goes with the host's shared memory
	}
	readOnly := in.Container.Spec.Security.ReadOnlyRoot
	var files []bind
	for _, m := range []container.Mount{
		{ContainerPath: "/etc/hostname", HostPath: filepath.Join(in.PodDir, "hostname"), ReadOnly: readOnly},
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(in.PodDir, "hosts"), ReadOnly: readOnly},
		{ContainerPath: "/etc/resolv.conf", HostPath: filepath.Join(in.PodDir, "resolv.conf"), ReadOnly: readOnly},
		{ContainerPath: "/dev/shm", HostPath: shm},
	} {
		if !taken[m.ContainerPath] {
			files = append(files, bind{Mount: m, where: "the pod's " + m.ContainerPath})
		}
	}
	return files
}
