package cgroup

import "testing"

func TestCgroupPathIsWhereTheDriverPutsIt(t *testing.T) {
	for _, c := range []struct {
		spec    string
		systemd bool
		want    string
	}{
		{"/kubepods/pod1/abc", false, "/kubepods/pod1/abc"},
		{"kubepods-burstable-pod1.slice:crib:abc", true, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/crib-abc.scope"},
		{"system.slice:crib:abc", true, "/system.slice/crib-abc.scope"},
		{"-.slice:crib:abc", true, "/crib-abc.scope"},
		{"/a:b:c", false, "/a:b:c"},
	} {
		if got := Path(c.spec, c.systemd); got != c.want {
			t.Errorf("%s, systemd %v: %s, want %s", c.spec, c.systemd, got, c.want)
		}
	}
}
