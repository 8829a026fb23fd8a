package bridge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crib-runtime/crib/network"
)

// The kinds of things that facts are about, and that findings and repairs are
// counted by.
const (
	kindSysctl      = "sysctl"      // of the host; the object is its path
	kindBridge      = "bridge"      // the object is the link's name
	kindGateway     = "gateway"     // an address of the bridge
	kindLink        = "link"        // a pod's link, the host's end; the object is its name
	kindInside      = "pod"         // the pod's end; the object is the host's end's name
	kindNetns       = "netns"       // the pin of the pod's namespace; the object as before
	kindReservation = "reservation" // a file of host-local's directory; the object is the address
	kindTable       = "table"       // of nftables
	kindFirewall    = "firewall"    // of somebody else
)

// fact names one property of one thing.
type fact struct{ kind, object, name string }

// world says what is, or what is to be: the value of each property. A thing that
// is not there has none.
type world map[fact]string

// there is the value of what only has to be.
const there = "there"

// deviation is what is wrong with one thing.
type deviation struct {
	kind, object string
	text         string
}

// compare returns what is wrong with the things that are wanted, and which of
// those that bear our mark are not wanted at all. Properties that nothing is
// wanted of do not matter.
func compare(wanted, actual world) []deviation {
	type thing struct{ kind, object string }
	type state struct {
		wanted, found int
		wrong         []string
	}
	things := map[thing]*state{}
	at := func(f fact) *state {
		t := thing{f.kind, f.object}
		if things[t] == nil {
			things[t] = &state{}
		}
		return things[t]
	}
	for f := range actual {
		at(f).found++
	}
	for f, want := range wanted {
		s := at(f)
		s.wanted++
		if is, ok := actual[f]; !ok || is != want {
			s.wrong = append(s.wrong, differs(f.name, want, is, ok))
		}
	}
	var list []deviation
	for t, s := range things {
		if text := verdict(s.wanted, s.found, s.wrong); text != "" {
			list = append(list, deviation{t.kind, t.object, text})
		}
	}
	slices.SortFunc(list, func(a, b deviation) int {
		return strings.Compare(a.kind+" "+a.object, b.kind+" "+b.object)
	})
	return list
}

// verdict says what is wrong with a thing, "" for nothing.
func verdict(wanted, found int, wrong []string) string {
	switch {
	case wanted == 0:
		return "it belongs to nothing"
	case found == 0:
		return "it is missing"
	}
	slices.Sort(wrong)
	return strings.Join(wrong, ", ")
}

// differs says what is wrong with one property.
func differs(name, want, is string, known bool) string {
	switch {
	case !known && want == there:
		return name + " is missing"
	case !known:
		return fmt.Sprintf("no %s, want %s", name, want)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s, want %s", name, is, want))
}

// action is one thing to do to the world.
type action struct {
	do     string // one of the verbs below
	object string // a host's end, or an address
}

// The verbs of actions, in the order in which they are done.
const (
	doHost    = "make the bridge and the sysctls right"
	doPod     = "make the pod's link right"
	doReserve = "write the reservation"
	doDelete  = "delete the link"
)

// actions returns what mends the deviations: each thing once, the bridge first.
func actions(list []deviation) []action {
	var out []action
	for _, d := range list {
		a := action{do: doPod, object: d.object}
		switch {
		case d.kind == kindSysctl || d.kind == kindBridge || d.kind == kindGateway:
			a = action{do: doHost}
		case d.kind == kindReservation:
			a.do = doReserve
		case d.text == verdict(0, 1, nil):
			a.do = doDelete
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	order := []string{doHost, doPod, doReserve, doDelete}
	slices.SortStableFunc(out, func(a, b action) int {
		return slices.Index(order, a.do) - slices.Index(order, b.do)
	})
	return out
}

// mends reports whether the action is for the deviation.
func (a action) mends(d deviation) bool { return slices.Equal(actions([]deviation{d}), []action{a}) }

// finding is the deviation for people; names tells whose link a link is.
func (d deviation) finding(names map[string]string) network.Finding {
	object := d.object
	if whose := names[object]; whose != "" {
		object += " of " + whose
	}
	return network.Finding{Kind: d.kind, Object: object, Text: d.text}
}
