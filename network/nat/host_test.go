package nat

import (
	"context"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network"
)

// dockers are the chains of a host with docker, as iptables makes them.
const dockers = `
add table ip filter
add chain ip filter DOCKER-USER
add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }
add rule ip filter FORWARD counter jump DOCKER-USER
add rule ip filter FORWARD oifname "docker0" ct state related,established counter accept
add rule ip filter DOCKER-USER counter return
`

// behindDocker is a lab whose host drops what it forwards.
func behindDocker(t *testing.T, letThrough bool) *lab {
	l := newLab(t)
	t.Cleanup(func() { nft(t, "delete", "table", "ip", "filter") })
	l.table.cfg.LetThrough = letThrough
	for line := range strings.SplitSeq(strings.TrimSpace(dockers), "\n") {
		nft(t, line)
	}
	l.outside.serveTCP(t, "outside", outside4+":80")
	if got := l.pod1.ask(t, outside4+":80"); strings.HasPrefix(got, "outside") {
		t.Fatal("the host forwards in spite of the policy")
	}
	return l
}

func TestPodsAreLetThroughAHostThatDropsByPolicy(t *testing.T) {
	l := behindDocker(t, true)
	found, err := l.table.Check(t.Context())
	must(t, err)
	if len(found) != 1 || found[0].Object != "ip filter FORWARD" || found[0].Remedy != "" {
		t.Errorf("found %+v", found)
	}
	for range 2 {
		must(t, l.table.Ensure(t.Context()))
	}
	wantAnswer(t, "a pod to outside", l.pod1.ask(t, outside4+":80"), "outside "+node4)
	if found, err := l.table.Check(t.Context()); len(found) > 0 || err != nil {
		t.Error(found, err)
	}
	if got := nft(t, "list", "chain", "ip", "filter", "FORWARD"); strings.Count(got, passComment) != 2 {
		t.Error(got)
	}
	nft(t, "insert", "rule", "ip", "filter", "DOCKER-USER", "ip", "saddr", "10.9.0.2", "drop")
	if got := l.pod1.ask(t, outside4+":80"); strings.HasPrefix(got, "outside") {
		t.Error("a rule of the administrator's is passed by")
	}
	must(t, l.table.Delete(t.Context()))
	if got := nft(t, "list", "table", "ip", "filter"); strings.Contains(got, "crib") || !strings.Contains(got, "docker0") {
		t.Error("after Delete:", got)
	}
}

func TestAHostThatDropsByPolicyIsReportedWithTheRemedy(t *testing.T) {
	l := behindDocker(t, false)
	must(t, l.table.Ensure(t.Context()))
	found, err := l.table.Check(t.Context())
	must(t, err)
	if len(found) != 1 || found[0].Kind != kindFirewall {
		t.Fatalf("found %+v", found)
	}
	_, commands, _ := strings.Cut(found[0].Remedy, "run: ")
	for c := range strings.SplitSeq(commands, "; ") {
		nft(t, strings.Fields(c)[1:]...)
	}
	wantAnswer(t, "a pod to outside after the remedy", l.pod1.ask(t, outside4+":80"), "outside "+node4)
}

func TestWatchTellsOfOthersChangesAndNotOfOurs(t *testing.T) {
	table := filled(t)
	changes := make(chan struct{}, 100)
	ended := make(chan error)
	ctx, cancel := contextOf(t)
	go func() { ended <- table.Watch(ctx, func() { changes <- struct{}{} }) }()
	// Until it listens there is nothing to be seen of it, so change until it tells.
	for told := false; !told; {
		nft(t, "add", "element", "inet", "crib", "ports4", "{ tcp . 9 : 10.9.0.9 . 9 }")
		nft(t, "delete", "element", "inet", "crib", "ports4", "{ tcp . 9 }")
		select {
		case <-changes:
			told = true
		default:
		}
	}
	publish(t, table, "pod2", []network.PortMapping{mapping(network.TCP, "", 9000, 80)}, "10.9.0.3")
	nft(t, "add", "table", "inet", "crib_beside")
	nft(t, "delete", "table", "inet", "crib_beside")
	nft(t, "insert", "rule", "inet", "crib", "output", "accept")
	for who := false; !who; {
		<-changes
		found, err := table.Check(t.Context())
		must(t, err)
		who = len(found) > 0 && strings.Contains(found[0].Text, "changed by nft, process ")
	}
	must(t, table.Unpublish(t.Context(), "pod2"))
	cancel()
	must(t, <-ended)
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}
