package bridge

import (
	"testing"

	"github.com/crib-runtime/crib/network"
)

// steps are those of an attachment, in their order; a crash comes after each.
var steps = []struct {
	name string
	do   func(t *testing.T, l *lab, pod network.Pod, att network.Attachment)
}{
	{"plan", func(*testing.T, *lab, network.Pod, network.Attachment) {}},
	{"reservations", func(t *testing.T, l *lab, pod network.Pod, att network.Attachment) {
		must(t, l.n.claimFiles(pod, claim{[]network.Attachment{att}, 0, l.noSave}))
	}},
	{"link", func(t *testing.T, l *lab, pod network.Pod, att network.Attachment) {
		must(t, l.wanted(t, pod, att).create())
	}},
	{"pod's end", func(t *testing.T, l *lab, pod network.Pod, att network.Attachment) {
		must(t, l.wanted(t, pod, att).configurePod())
	}},
	{"host ports", func(t *testing.T, l *lab, pod network.Pod, _ network.Attachment) {
		must(t, l.table.Publish(t.Context(), pod.ID))
	}},
}

// wanted is the pod's link.
func (l *lab) wanted(t *testing.T, pod network.Pod, att network.Attachment) link {
	w, err := l.n.link(t.Context(), pod, att)
	must(t, err)
	return w
}

// crash plans a pod and goes as far as the given step.
func crash(t *testing.T, last int) (*lab, network.Held) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod := l.newPod("one", network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80})
	atts, err := l.n.Plan(pod, 0)
	must(t, err)
	for _, step := range steps[:last+1] {
		step.do(t, l, pod, atts[0])
	}
	return l, network.Held{Pod: pod, Attachments: atts}
}

func TestAttachGoesOnAfterACrashAtEachStep(t *testing.T) {
	for i, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			l, held := crash(t, i)
			l.reopen(held)
			_, err := l.n.Attach(t.Context(), held.Pod, held.Attachments, l.noSave)
			must(t, err)
			listen(t, held.Pod, ":80")
			for _, addr := range []string{"10.9.0.2:80", "[fd09::2]:80", "127.0.0.1:8080"} {
				if err := reaches(network.Pod{}, addr); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestDetachUndoesACrashAtEachStep(t *testing.T) {
	for i, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			l, held := crash(t, i)
			l.reopen(held)
			must(t, l.n.Detach(t.Context(), held.Pod, held.Attachments))
			if r := l.n.Ranges(); r[0].Used+r[1].Used != 0 {
				t.Errorf("ranges %+v", r)
			}
			entries, err := l.n.files.Entries()
			must(t, err)
			if len(entries) != 0 {
				t.Errorf("reservations %v", entries)
			}
			if err := reaches(network.Pod{}, "127.0.0.1:8080"); err == nil {
				t.Error("the host port is open")
			}
		})
	}
}

func TestAPodOfAFormerRangeIsPlannedAsItIs(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, atts := l.run("one")
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.10.0.0/24")))
	l.reopen(network.Held{Pod: pod, Attachments: atts})
	again, err := l.n.Plan(pod, 0)
	must(t, err)
	if again[0].Addresses[0] != atts[0].Addresses[0] || again[0].Gateways[0] != atts[0].Gateways[0] {
		t.Errorf("planned %+v, was %+v", again[0], atts[0])
	}
}
