package bridge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

func TestDetachIsIdempotent(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	pod, atts := l.run("one", network.PortMapping{Protocol: network.UDP, HostPort: 53, ContainerPort: 53})
	for range 3 {
		must(t, l.n.Detach(t.Context(), pod, atts))
	}
	if r := l.n.Ranges(); r[0].Used != 0 || r[1].Used != 0 {
		t.Errorf("ranges %+v", r)
	}
	if _, err := os.Stat(filepath.Join(l.cfg.Dir, "10.9.0.2")); !os.IsNotExist(err) {
		t.Errorf("the reservation is still there: %v", err)
	}
}

func TestDetachNeedsNoNamespaceAndNoLink(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, atts := l.run("one")
	must(t, unix.Unmount(pod.Netns, unix.MNT_DETACH))
	must(t, os.Remove(pod.Netns))
	eventually(t, "the kernel deleted the link", func() bool { return !linkThere(t, atts[0].HostInterface) })
	must(t, l.n.Detach(t.Context(), pod, atts))
	never := network.Pod{ID: strings.Repeat("0", 64), Netns: "/nowhere"}
	must(t, l.n.Detach(t.Context(), never, []network.Attachment{{Driver: Driver, Network: "crib", Interface: "eth0"}}))
}

func TestDetachDoesNotHeedACancelledContext(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, atts := l.run("one", network.PortMapping{Protocol: network.TCP, HostPort: 80, ContainerPort: 80})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, l.n.Detach(ctx, pod, atts))
	if l.n.Ranges()[0].Used != 0 {
		t.Error("the address is still taken")
	}
}

func TestDetachCutsThePodOffAtOnce(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, atts := l.run("one")
	must(t, l.n.Detach(t.Context(), pod, atts))
	// The flags change at once, the state that ip shows besides in its own time.
	if got := ip(t, network.Pod{}, "link", "show", "dev", atts[0].HostInterface); strings.Contains(got, ",UP") {
		t.Errorf("link: %s", got)
	}
}

func TestALinkThatStaysIsDeletedAndItsHolderNamed(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, atts := l.run("one")
	held, err := os.Open(pod.Netns) // a stray descriptor keeps the namespace
	must(t, err)
	defer func() { must(t, held.Close()) }()
	l.detach(pod)
	must(t, l.n.sweep(time.Now()))
	if !linkThere(t, atts[0].HostInterface) {
		t.Fatal("swept before the kernel had its time")
	}
	var st unix.Stat_t
	must(t, unix.Stat(pod.Netns, &st))
	self, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	if got := strings.Join(holders(st.Ino), ","); !strings.Contains(got, strings.TrimSpace(string(self))) {
		t.Errorf("holders: %q", got)
	}
	must(t, l.n.sweep(time.Now().Add(grace+time.Second)))
	if linkThere(t, atts[0].HostInterface) {
		t.Error("the link is still there")
	}
	must(t, l.n.sweep(time.Now().Add(grace+time.Second)))
	if left := l.n.mem.overdue(time.Now().Add(time.Hour)); len(left) != 0 {
		t.Errorf("still remembered: %v", left)
	}
}

func TestTheNameOfALeavingLinkCanBeTakenAgain(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	pod, _ := l.run("one")
	l.detach(pod)
	l.attach(pod)
	must(t, l.n.sweep(time.Now().Add(time.Hour)))
	listen(t, pod, ":80")
	if err := reaches(network.Pod{}, at(l.n.mem.all()[pod.ID].addrs[0].Addr(), 80)); err != nil {
		t.Error(err)
	}
}
