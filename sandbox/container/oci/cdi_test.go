package oci

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

const vendorSpec = `{"cdiVersion":"0.6.0","kind":"vendor.com/gpu","devices":[
{"name":"0","containerEdits":{"env":["GPU=0"],"deviceNodes":[{"path":"/dev/null"}],
 "mounts":[{"hostPath":"/usr/lib","containerPath":"/opt/gpu","options":["ro","bind"]}]}},
{"name":"1","containerEdits":{"env":["SECOND=1"]}}]}`

func TestCDIDevicesOfFieldAndAnnotationsAreAdded(t *testing.T) {
	in := kubelet(t)
	in.CDIDirs = []string{filepath.Join(filepath.Dir(in.PodDir), "cdi")}
	write(t, filepath.Join(in.CDIDirs[0], "vendor.json"), vendorSpec)
	in.Container.Spec.CDIDevices = []string{"vendor.com/gpu=0", "vendor.com/gpu=0"}
	in.Container.Spec.Annotations = map[string]string{"cdi.k8s.io/plugin_x": "vendor.com/gpu=1,vendor.com/gpu=0"}
	s, _ := build(t, in)
	if !slices.Contains(s.Process.Env, "GPU=0") || !slices.Contains(s.Process.Env, "SECOND=1") {
		t.Errorf("env %q", s.Process.Env)
	}
	if len(s.Linux.Devices) != 1 || len(s.Linux.Resources.Devices) != 2 {
		t.Errorf("nodes %+v, rules %+v", s.Linux.Devices, s.Linux.Resources.Devices)
	}
	if m := mountAt(t, s, "/opt/gpu"); m.Source != "/usr/lib" {
		t.Errorf("got %+v", m)
	}
}

func TestCDIDevicesThatNobodyDescribesAreRefused(t *testing.T) {
	in := kubelet(t)
	in.CDIDirs = []string{filepath.Join(filepath.Dir(in.PodDir), "cdi")}
	write(t, filepath.Join(in.CDIDirs[0], "broken.json"), "{")
	in.Container.Spec.CDIDevices = []string{"vendor.com/gpu=7"}
	_, _, err := Build(in)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "vendor.com/gpu=7") || !strings.Contains(err.Error(), "broken.json") {
		t.Errorf("got %v, want the device and the broken file named", err)
	}
	in.Container.Spec.CDIDevices, in.Container.Spec.Annotations = nil, map[string]string{"cdi.k8s.io/x": "nonsense"}
	wantRefused(t, in, "config.annotations")
}
