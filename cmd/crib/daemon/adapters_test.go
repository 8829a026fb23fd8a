package daemon

import "testing"

func TestCgroupsPathIsBelowThePodsParent(t *testing.T) {
	for _, test := range []struct {
		systemd      bool
		parent, want string
	}{
		{false, "/kubepods/burstable/pod1", "/kubepods/burstable/pod1/abc"},
		{false, "kubepods/pod1/", "/kubepods/pod1/abc"},
		{false, "/../../escape", "/escape/abc"},
		{false, "", "/crib-abc"},
		{true, "/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice:crib:abc"},
		{true, "kubepods-pod1.slice", "kubepods-pod1.slice:crib:abc"},
		{true, "", "system.slice:crib:abc"},
	} {
		if got := cgroupsPath(test.systemd, test.parent, "abc"); got != test.want {
			t.Errorf("parent %q, systemd %t: got %q, want %q", test.parent, test.systemd, got, test.want)
		}
	}
}
