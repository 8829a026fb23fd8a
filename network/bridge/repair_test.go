package bridge

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
	"golang.org/x/sys/unix"
)

// repaired is a lab with two pods that talk, and a process in each.
type repaired struct {
	*lab
	one, two network.Pod
	att      network.Attachment // of one
}

func newRepaired(t *testing.T) *repaired {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	port := network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80}
	one, atts := l.run("one", port)
	two, _ := l.run("two")
	listen(t, one, ":80")
	l.serve()
	r := &repaired{l, one, two, atts[0]}
	r.calm()
	return r
}

// calm waits until nothing is left to look at.
func (r *repaired) calm() {
	r.t.Helper()
	eventually(r.t, "all is as it should be", func() bool {
		p := r.n.newPass(everything())
		list, err := p.look()
		return err == nil && len(list) == 0
	})
}

// works tells what of the traffic does not flow.
func (r *repaired) works() error {
	var errs []error
	for _, addr := range []string{"10.9.0.2:80", "[fd09::2]:80", "127.0.0.1:8080"} {
		errs = append(errs, reaches(network.Pod{}, addr))
	}
	errs = append(errs, reaches(r.two, "10.9.0.2:80"), reaches(r.two, "[fd09::2]:80"), reaches(r.two, "10.9.0.1:8080"))
	return errors.Join(errs...)
}

// kinds returns what has been repaired, by kind.
func (r *repaired) kinds() map[string]uint64 {
	_, counts := r.n.Repairs()
	return counts
}

// damage is what somebody may do.
type damage struct {
	name string
	do   func(r *repaired)
	kind string // of the repair
	// mended tells whether what the traffic does not need is mended; nil for nothing.
	mended func(r *repaired) bool
}

func command(args ...string) func(r *repaired) {
	return func(r *repaired) {
		r.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			r.t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
}

// onHost runs ip(8) with the name of the pod's host's end in the place of LINK.
func onHost(args ...string) func(r *repaired) {
	return func(r *repaired) {
		i := slices.Index(args, "LINK")
		ip(r.t, network.Pod{}, slices.Replace(slices.Clone(args), i, i+1, r.att.HostInterface)...)
	}
}

func inPod(args ...string) func(r *repaired) {
	return func(r *repaired) { ip(r.t, r.one, args...) }
}

func write(path, value string) func(r *repaired) {
	return func(r *repaired) { must(r.t, setting{path, value}.write()) }
}

func isSet(path, value string) func(r *repaired) bool {
	return func(r *repaired) bool { return sysctl(r.t, network.Pod{}, path) == value }
}

func (r *repaired) file() string { return filepath.Join(r.cfg.Dir, "10.9.0.2") }

func (r *repaired) reserved() bool {
	text, err := os.ReadFile(r.file())
	return err == nil && string(text) == r.one.ID+"\r\neth0"
}

func damagesOfTable() []damage {
	return []damage{
		{"ruleset flushed", command("nft", "flush", "ruleset"), kindTable, nil},
		{"table deleted", command("nft", "delete", "table", "inet", "crib"), kindTable, nil},
		{"element deleted", command("nft", "delete", "element", "inet", "crib", "ports4", "{ tcp . 8080 }"), kindTable, nil},
		{"sources flushed", command("nft", "flush", "set", "bridge", "crib", "sources4"), kindTable, nil},
		{"host forwards nothing", command("nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"), kindFirewall, func(r *repaired) bool {
			out, err := exec.Command("nft", "list", "table", "ip", "filter").CombinedOutput()
			return err == nil && strings.Contains(string(out), `iifname "crib0" accept`) && strings.Contains(string(out), `oifname "crib0" accept`)
		}},
		{"rule for pods taken out", command("nft", "flush", "chain", "ip", "filter", "FORWARD"), kindFirewall, nil},
		{"rule added", command("nft", "insert", "rule", "inet", "crib", "prerouting", "tcp", "dport", "8080", "drop"), kindTable, nil},
	}
}

func damagesOfHost() []damage {
	return []damage{
		{"bridge down", command("ip", "link", "set", "crib0", "down"), kindBridge, nil},
		{"bridge deleted", command("ip", "link", "del", "crib0"), kindBridge, nil},
		{"gateway removed", command("ip", "addr", "del", "10.9.0.1/24", "dev", "crib0"), kindGateway, nil},
		{"gateways flushed", command("ip", "addr", "flush", "dev", "crib0"), kindGateway, nil},
		{"querier off", command("ip", "link", "set", "crib0", "type", "bridge", "mcast_querier", "0"), kindBridge, func(r *repaired) bool {
			return strings.Contains(ip(r.t, network.Pod{}, "-d", "link", "show", "crib0"), "mcast_querier 1")
		}},
		{"no forwarding", write("net/ipv4/ip_forward", "0"), kindSysctl, isSet("net/ipv4/ip_forward", "1")},
		{"no forwarding of IPv6", write("net/ipv6/conf/all/forwarding", "0"), kindSysctl, isSet("net/ipv6/conf/all/forwarding", "1")},
		{"strict rp_filter", write("net/ipv4/conf/crib0/rp_filter", "1"), kindBridge, isSet("net/ipv4/conf/crib0/rp_filter", "2")},
	}
}

func damagesOfPod() []damage {
	return []damage{
		{"host's end down", onHost("link", "set", "LINK", "down"), kindLink, nil},
		{"host's end deleted", onHost("link", "del", "LINK"), kindLink, nil},
		{"host's end off the bridge", onHost("link", "set", "LINK", "nomaster"), kindLink, nil},
		{"hairpin off", onHost("link", "set", "dev", "LINK", "type", "bridge_slave", "hairpin", "off"), kindLink, func(r *repaired) bool {
			return strings.Contains(ip(r.t, network.Pod{}, "-d", "link", "show", r.att.HostInterface), "hairpin on")
		}},
		{"pod's end down", inPod("link", "set", "eth0", "down"), kindInside, nil},
		{"address removed", inPod("addr", "del", "10.9.0.2/24", "dev", "eth0"), kindInside, nil},
		{"IPv6 address removed", inPod("addr", "del", "fd09::2/64", "dev", "eth0"), kindInside, nil},
		{"default route removed", inPod("route", "del", "default"), kindInside, func(r *repaired) bool {
			return strings.Contains(ip(r.t, r.one, "route"), "default via 10.9.0.1")
		}},
		{"reservation deleted", func(r *repaired) { must(r.t, os.Remove(r.file())) }, kindReservation, (*repaired).reserved},
		{"reservation zeroed", func(r *repaired) { must(r.t, os.WriteFile(r.file(), make([]byte, 70), 0o600)) }, kindReservation, (*repaired).reserved},
		{"reservation of another", func(r *repaired) { must(r.t, os.WriteFile(r.file(), []byte("other\r\neth0"), 0o600)) }, kindReservation, (*repaired).reserved},
	}
}

func TestWhatOthersBreakIsRepaired(t *testing.T) {
	r := newRepaired(t)
	for _, d := range slices.Concat(damagesOfTable(), damagesOfHost(), damagesOfPod()) {
		t.Run(d.name, func(t *testing.T) {
			r.t = t
			r.n.journal.rested()
			before := r.kinds()[d.kind]
			inside, link := ip(t, r.one, "-br", "addr"), ip(t, network.Pod{}, "-br", "link", "show", "crib0")
			start := time.Now()
			d.do(r)
			eventually(t, "it is noticed", func() bool { return r.kinds()[d.kind] > before })
			eventually(t, "it is repaired", func() bool {
				return (d.mended == nil || d.mended(r)) && r.works() == nil
			})
			t.Logf("repaired after %v", time.Since(start).Round(time.Millisecond))
			r.calm()
			if after := ip(t, r.one, "-br", "addr"); withoutNumbers(after) != withoutNumbers(inside) {
				t.Errorf("inside of the pod before:\n%safter:\n%s", inside, after)
			}
			if after := ip(t, network.Pod{}, "-br", "link", "show", "crib0"); after != link {
				t.Errorf("before %s, after %s", link, after)
			}
		})
	}
	r.t = t
	command("nft", "delete", "table", "ip", "filter")(r)
}

// withoutNumbers drops the other ends' numbers and the link-local addresses, which
// the kernel makes in its own time.
func withoutNumbers(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		words[i], _, _ = strings.Cut(w, "@")
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "fe80:") }), " ")
}

// rested makes the journal forget how often things were repaired.
func (j *journal) rested() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tries = map[key]try{}
}

// sleeper runs a process in a pod's namespace.
func sleeper(t *testing.T, pod network.Pod) {
	cmd := exec.Command("nsenter", "--net="+pod.Netns, "sleep", "1000")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	inode := inodeOf(pod.Netns)
	eventually(t, "the process is in the pod", func() bool { return len(holders(inode)) > 0 })
}

func TestAPinThatIsUnmountedUnderALivingPodIsMadeAgain(t *testing.T) {
	r := newRepaired(t)
	sleeper(t, r.one)
	inode := inodeOf(r.one.Netns)
	must(t, unix.Unmount(r.one.Netns, unix.MNT_DETACH))
	eventually(t, "it is pinned again", func() bool { return inodeOf(r.one.Netns) == inode })
	must(t, r.works())
}

func TestANamespaceThatIsLostIsReported(t *testing.T) {
	r := newRepaired(t)
	two, _ := r.lab.run("three") // nothing runs or listens in it
	host := network.HostLinkName(two.ID, "eth0")
	must(t, unix.Unmount(two.Netns, unix.MNT_DETACH))
	eventually(t, "it is reported", func() bool {
		return slices.ContainsFunc(r.n.Findings(), func(f network.Finding) bool {
			return f.Kind == kindNetns && strings.HasPrefix(f.Object, host)
		})
	})
	r.detach(two)
	r.n.alarm.ring(everything())
	eventually(t, "it is forgotten with the pod", func() bool { return len(r.n.Findings()) == 0 })
}

func TestALinkOfOursThatBelongsToNothingIsDeleted(t *testing.T) {
	r := newRepaired(t)
	name := network.HostLinkName("nobody", "eth0")
	ip(t, network.Pod{}, "link", "add", name, "type", "veth", "peer", "name", "nobody0")
	ip(t, network.Pod{}, "link", "set", name, "master", "crib0", "up")
	r.n.alarm.ring(everything())
	eventually(t, "it is gone", func() bool { return !linkThere(t, name) })
}

// A manager that sets the bridge down whenever it is up.
func TestAManagerThatUndoesRepairsIsNotFoughtForEver(t *testing.T) {
	r := newRepaired(t)
	k := key{kindBridge, "crib0"}
	for range free {
		before := r.kinds()[kindBridge]
		ip(t, network.Pod{}, "link", "set", "crib0", "down")
		eventually(t, "it is repaired", func() bool { return r.kinds()[kindBridge] > before })
	}
	ip(t, network.Pod{}, "link", "set", "crib0", "down")
	eventually(t, "the network says that somebody undoes it", func() bool {
		return strings.Contains(r.n.Status().Message, "as often as it is repaired")
	})
	if due := r.n.journal.due(k, time.Now()); !due.After(time.Now().Add(-longest)) {
		t.Errorf("the next repair is due at %v", due)
	}
	eventually(t, "it is repaired later", func() bool { return r.works() == nil })
}

func TestAQuietNetworkIsNotRepaired(t *testing.T) {
	r := newRepaired(t)
	r.n.alarm.ring(everything())
	pod, _ := r.lab.run("three")
	r.detach(pod)
	r.calm()
	if last, _ := r.n.Repairs(); len(last) > 0 {
		t.Errorf("repairs %+v", last)
	}
}

// Two managers that undo each repair as soon as they see it.
func TestTwoManagersThatUndoRepairsDoNotDriveItMad(t *testing.T) {
	r := newRepaired(t)
	ctx, cancel := context.WithCancel(t.Context())
	var managers sync.WaitGroup
	undo := func(look, undo []string) {
		for ctx.Err() == nil {
			if exec.CommandContext(ctx, look[0], look[1:]...).Run() == nil {
				_ = exec.CommandContext(ctx, undo[0], undo[1:]...).Run()
			}
		}
	}
	managers.Go(func() {
		undo([]string{"nft", "list", "table", "inet", "crib"}, []string{"nft", "delete", "table", "inet", "crib"})
	})
	managers.Go(func() {
		undo([]string{"sh", "-c", "ip -br link show up | grep -q ^crib0"}, []string{"ip", "link", "set", "crib0", "down"})
	})
	eventually(t, "both are held back", func() bool {
		message := r.n.Status().Message
		return strings.Contains(message, "table inet crib") && strings.Contains(message, "bridge crib0") && strings.Contains(message, "changed by nft")
	})
	cancel()
	managers.Wait()
	for kind, n := range r.kinds() {
		if n > 3*free { // a gateway or two belong to one repair of the bridge
			t.Errorf("%s was repaired %d times", kind, n)
		}
	}
	eventually(t, "all is repaired after they are gone", func() bool { return r.works() == nil })
}

func TestARestartFindsNothingToRepair(t *testing.T) {
	l := newLab(t, "10.9.0.0/24", "fd09::/64")
	port := network.PortMapping{Protocol: network.TCP, HostPort: 8080, ContainerPort: 80}
	pod, atts := l.run("one", port)
	gone, others := l.run("gone") // its record says that it is dead: nobody attaches it again
	l.reopen(network.Held{Pod: pod, Attachments: atts}, network.Held{Pod: gone, Attachments: others})
	_, err := l.n.Attach(t.Context(), pod, atts, l.noSave)
	must(t, err)
	for range 2 {
		again, err := l.n.reconcile(t.Context(), everything())
		if err != nil || !again.IsZero() {
			t.Errorf("come again at %v, %v", again, err)
		}
	}
	if last, _ := l.n.Repairs(); len(last)+len(l.n.Findings()) > 0 {
		t.Errorf("repairs %+v, findings %+v", last, l.n.Findings())
	}
}

func TestADeadPodIsNotMadeAgain(t *testing.T) {
	r := newRepaired(t)
	pod, atts := r.lab.run("three")
	r.detach(pod)
	r.n.alarm.ring(everything())
	r.calm()
	if last, _ := r.n.Repairs(); len(last) > 0 {
		t.Errorf("repairs %+v", last)
	}
	if text := ip(t, network.Pod{}, "-br", "link"); linkThere(t, atts[0].HostInterface) && !strings.Contains(text, "DOWN") {
		t.Errorf("the pod's link is up again:\n%s", text)
	}
}
