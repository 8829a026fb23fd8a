package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cgroupParent is the parent of the lab's pods; each process has its own.
func cgroupParent() string { return fmt.Sprintf("/crib-lab-%d", os.Getpid()) }

// removeCgroups removes what is left of the lab's cgroups, deepest first.
func removeCgroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + cgroupParent())
	if err != nil {
		return err
	}
	roots = append(roots, "/sys/fs/cgroup"+cgroupParent())
	var errs []error
	for _, root := range roots {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, dir := range slices.Backward(dirs) {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// Pod returns the configuration of a pod as a kubelet sends it: each container in
// a PID namespace of its own, no host ports.
func (c *Crib) Pod(name string) *runtime.PodSandboxConfig {
	pod := &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname: name,
		Labels:   map[string]string{"io.kubernetes.pod.name": name},
		Linux: &runtime.LinuxPodSandboxConfig{
			CgroupParent: cgroupParent(),
			SecurityContext: &runtime.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
			},
		},
	}
	pod.LogDirectory = c.LogDir(pod)
	return pod
}

// Run makes a pod and returns its id.
func (c *Crib) Run(ctx context.Context, pod *runtime.PodSandboxConfig) (string, error) {
	resp, err := c.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: pod})
	return resp.GetPodSandboxId(), err
}

// Remove stops and removes a pod.
func (c *Crib) Remove(ctx context.Context, id string) error {
	if _, err := c.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := c.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// RemoveAll stops and removes every pod.
func (c *Crib) RemoveAll(ctx context.Context) error {
	list, err := c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	errs := []error{err}
	for _, pod := range list.GetItems() {
		errs = append(errs, c.Remove(ctx, pod.Id))
	}
	return errors.Join(errs...)
}

// IPs returns the addresses of a pod.
func (c *Crib) IPs(ctx context.Context, id string) ([]netip.Addr, error) {
	resp, err := c.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	texts := []string{resp.Status.Network.GetIp()}
	for _, more := range resp.Status.Network.GetAdditionalIps() {
		texts = append(texts, more.Ip)
	}
	var ips []netip.Addr
	for _, text := range texts {
		if text == "" {
			continue
		}
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		ips = append(ips, ip)
	}
	return ips, nil
}
