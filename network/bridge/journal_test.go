package bridge

import (
	"testing"
	"time"

	"github.com/crib-runtime/crib/network"
)

func TestRepairsThatAreUndoneBecomeRare(t *testing.T) {
	j, k := newJournal(), key{kindLink, "x"}
	now := time.Unix(1e9, 0)
	var waits []time.Duration
	for range free + 12 {
		due := j.due(k, now)
		if due.Before(now) {
			due = now
		}
		waits = append(waits, due.Sub(now))
		now = due
		j.note(k, network.Repair{At: now})
	}
	for i, wait := range waits {
		want := time.Duration(0)
		if i >= free {
			want = min(longest, time.Second<<(i-free))
		}
		if wait != want {
			t.Errorf("repair %d came after %v, want %v", i, wait, want)
		}
	}
}

func TestRepairsNowAndThenAreNotHeldBack(t *testing.T) {
	j, k := newJournal(), key{kindLink, "x"}
	now := time.Unix(1e9, 0)
	for range 1000 {
		if due := j.due(k, now); due.After(now) {
			t.Fatalf("at %v it is due at %v", now, due)
		}
		j.note(k, network.Repair{At: now})
		now = now.Add(quiet)
	}
	if last, counts := j.repairs(); len(last) != remembered || counts[kindLink] != 1000 {
		t.Errorf("%d remembered, counts %v", len(last), counts)
	}
}

func TestAFindingIsNewsOnce(t *testing.T) {
	j := newJournal()
	all := func(string) bool { return true }
	found := map[key]network.Finding{{kindLink, "x"}: {Kind: kindLink, Object: "x", Text: "down"}}
	for i, want := range []int{1, 0, 0} {
		if news := j.leave(all, found); len(news) != want {
			t.Errorf("pass %d: news %v", i, news)
		}
	}
	j.leave(all, nil)
	if len(j.findings()) != 0 {
		t.Errorf("findings %v", j.findings())
	}
}
