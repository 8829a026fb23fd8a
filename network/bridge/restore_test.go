package bridge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/crib-runtime/crib/network"
)

func TestRestoreKeepsLivingPodsAndRemovesStrays(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	port := network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80}
	kept, atts := l.run("kept", port)
	stray, strays := l.run("stray")
	listen(t, kept, ":80")
	must(t, os.Remove(filepath.Join(l.cfg.Dir, "10.9.0.2")))
	foreign := filepath.Join(l.cfg.Dir, "10.9.0.4")
	must(t, os.WriteFile(foreign, []byte("somebody\r\neth0"), 0o600))

	l.reopen(network.Held{Pod: kept, Attachments: atts})

	eventually(t, "the stray's link is gone", func() bool { return !linkThere(t, strays[0].HostInterface) })
	for _, addr := range []string{"10.9.0.2:80", "[fd09::2]:80", "127.0.0.1:8080"} {
		if err := reaches(network.Pod{}, addr); err != nil {
			t.Error(err)
		}
	}
	files, err := l.n.files.Entries()
	must(t, err)
	var got []string
	for _, e := range files {
		got = append(got, e.Addr.String()+" "+e.ID[:min(8, len(e.ID))])
	}
	want := "10.9.0.2 " + kept.ID[:8] + ", 10.9.0.4 somebody, fd09::2 " + kept.ID[:8]
	if strings.Join(got, ", ") != want {
		t.Errorf("reservations %q, want %q", got, want)
	}
	if again := l.attach(stray); again[0].Addresses[0].String() != "10.9.0.3/24" {
		t.Errorf("the stray pod was given %v", again[0].Addresses)
	}
	if next := l.attach(l.newPod("next")); next[0].Addresses[0].String() != "10.9.0.5/24" {
		t.Errorf("the next pod was given %v", next[0].Addresses)
	}
	must(t, os.Remove(foreign))
}

func TestRestoreGoesOnAfterARecordThatCannotBeHonoured(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	one, atts := l.run("one")
	two := l.newPod("two")
	three := l.newPod("three")
	same := []network.Attachment{attachment("crib", two, "eth0", atts[0].Addresses)}
	other := []network.Attachment{attachment("crib", three, "eth0", prefixes("10.9.0.7/24"))}
	must(t, l.table.Close())
	n, err := Open(l.cfg, l.table)
	must(t, err)
	l.n = n
	must(t, n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24")))
	err = n.Restore(t.Context(), []network.Held{{Pod: one, Attachments: atts}, {Pod: two, Attachments: same}, {Pod: three, Attachments: other}})
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "default/two") {
		t.Errorf("got %v", err)
	}
	if n.Ranges()[0].Used != 2 {
		t.Errorf("ranges %+v", n.Ranges())
	}
}

func TestNothingIsTouchedBeforeRestore(t *testing.T) {
	l := newLab(t)
	must(t, l.table.Close())
	n, err := Open(l.cfg, l.table)
	must(t, err)
	l.n = n
	must(t, n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24")))
	if linkThere(t, "crib0") {
		t.Error("the bridge was made")
	}
	must(t, n.Restore(t.Context(), nil))
	if !linkThere(t, "crib0") {
		t.Error("no bridge")
	}
}

func TestANewCIDRLeavesThePodsOfTheOldOne(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	old, atts := l.run("old")
	listen(t, old, ":80")
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.10.0.0/24", "fd10::/64")))
	fresh, others := l.run("fresh")
	if others[0].Addresses[0].String() != "10.10.0.2/24" {
		t.Errorf("the new pod was given %v", others[0].Addresses)
	}
	if err := reaches(fresh, "10.9.0.2:80"); err != nil {
		t.Error(err)
	}
	l.reopen(network.Held{Pod: old, Attachments: atts}, network.Held{Pod: fresh, Attachments: others})
	if got := ip(t, network.Pod{}, "addr", "show", "dev", "crib0"); !strings.Contains(got, "10.9.0.1/24") {
		t.Errorf("the old gateway is gone:\n%s", got)
	}
	l.detach(old)
	must(t, l.n.apply(t.Context()))
	got := ip(t, network.Pod{}, "addr", "show", "dev", "crib0")
	if strings.Contains(got, "10.9.0.1/24") || !strings.Contains(got, "10.10.0.1/24") || !strings.Contains(got, "fd10::1/64") {
		t.Errorf("gateways:\n%s", got)
	}
}

func TestServeTellsOfTheLastPodOfAnOldRange(t *testing.T) {
	l := newLab(t, "10.9.0.0/24")
	old, _ := l.run("old")
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.10.0.0/24")))
	l.serve()
	l.detach(old)
	eventually(t, "the old gateway is gone", func() bool {
		return !strings.Contains(ip(t, network.Pod{}, "addr", "show", "dev", "crib0"), "10.9.0.1/24")
	})
}

func TestStatus(t *testing.T) {
	l := newLab(t)
	if s := l.n.Status(); s.Ready || s.Reason != "NoPodCIDR" || !strings.Contains(s.Message, "network.cidrs") {
		t.Errorf("without CIDR: %+v", s)
	}
	must(t, l.n.SetCIDRs(t.Context(), prefixes("10.9.0.0/24")))
	if s := l.n.Status(); !s.Ready {
		t.Errorf("with CIDR: %+v", s)
	}
	now := time.Now()
	l.n.mem.report(now, os.ErrPermission, nil)
	if s := l.n.status(now.Add(patience - time.Second)); !s.Ready || !strings.Contains(s.Message, "permission") {
		t.Errorf("broken for a moment: %+v", s)
	}
	l.n.mem.report(now.Add(patience), os.ErrPermission, nil)
	if s := l.n.status(now.Add(patience + time.Second)); s.Ready || s.Reason != "BridgeBroken" {
		t.Errorf("broken for long: %+v", s)
	}
	l.n.mem.report(now, nil, nil)
	if s := l.n.status(now.Add(time.Hour)); !s.Ready || s.Message != "" {
		t.Errorf("mended: %+v", s)
	}
}

func TestStatusIsNotReadyWhenNothingEverWorked(t *testing.T) {
	n := &Network{mem: newMemory(), journal: newJournal()}
	n.mem.setRanges(prefixes("10.9.0.0/24"), nil)
	n.mem.report(time.Now(), nil, os.ErrInvalid)
	if s := n.Status(); s.Ready || s.Reason != "NFTUnavailable" {
		t.Errorf("got %+v", s)
	}
}
