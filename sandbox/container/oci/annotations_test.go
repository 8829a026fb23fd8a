package oci

import "testing"

func TestSystemdGivesTheScopeTheGraceOfThePod(t *testing.T) {
	for grace, want := range map[string]string{
		"30": "uint64 30000000", "0": "uint64 1000000",
		"": "", "-1": "", "1s": "", "99999999999": "",
	} {
		in := kubelet(t)
		in.Container.Spec.Annotations = map[string]string{
			"io.kubernetes.pod.terminationGracePeriod": grace,
			"org.systemd.property.ExecStop":            "nothing of the user's gets to systemd",
		}
		s, _, err := Build(in)
		must(t, err)
		if got := s.Annotations["org.systemd.property.TimeoutStopUSec"]; got != want {
			t.Errorf("grace %q: %q, want %q", grace, got, want)
		}
		if got := s.Annotations["org.systemd.property.ExecStop"]; got != "" {
			t.Errorf("the container's annotations are the runtime's: %q", got)
		}
	}
}
