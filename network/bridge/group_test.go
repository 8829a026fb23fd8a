package bridge

import (
	"os/exec"
	"strings"
	"testing"
)

// A solicitation that came before the pod's own report was lost: the first packet
// to a new pod waited a second.
func TestSolicitationsForAPodGoToItsPortFromTheStart(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	_, atts := l.run("one")
	_, again := l.run("one-again")
	shown, err := exec.Command("bridge", "mdb", "show", "dev", "crib0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, shown)
	}
	for _, att := range append(atts, again...) {
		group := solicitedNode(att.Addresses[1].Addr()).String()
		found := false
		for line := range strings.Lines(string(shown)) {
			found = found || strings.Contains(line, "port "+att.HostInterface+" ") && strings.Contains(line, " "+group+" ") && strings.Contains(line, "permanent")
		}
		if !found {
			t.Errorf("%s is no permanent member of %s:\n%s", att.HostInterface, group, shown)
		}
	}
}
