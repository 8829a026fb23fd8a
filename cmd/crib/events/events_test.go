package events_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/cmd/crib/events"
)

func TestEventsAreRecordsThatSaySoWhateverTheLogsLevel(t *testing.T) {
	var hub events.Hub
	var out bytes.Buffer
	log := hub.Log(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Info("a pod is ready", "event", "PodReady", "pod", "default/web")
	log.With("part", "engine").Info("nobody's event")
	log.With("network", "crib").Warn("a link stays", "link", "crib123")
	log.Debug("too small", "event", "PodReady")
	last, _, end := hub.Listen()
	end()
	if len(last) != 2 || last[0].Kind != "PodReady" || last[0].Text != "a pod is ready" || last[0].Of["pod"] != "default/web" ||
		last[1].Kind != "Network" || last[1].Of["link"] != "crib123" {
		t.Errorf("got %+v", last)
	}
	if strings.Contains(out.String(), "a pod is ready") || !strings.Contains(out.String(), "network=crib link=crib123") {
		t.Errorf("the log has %s", out.String())
	}
}

func TestASlowListenerIsToldWhatItLostAndHoldsNobodyUp(t *testing.T) {
	var hub events.Hub
	_, following, end := hub.Listen()
	defer end()
	const many = 1000
	for i := range many {
		hub.Publish(events.Event{Kind: "PodReady", Text: fmt.Sprint(i)})
	}
	got := 0
	for len(following) > 0 {
		if e := <-following; e.Text != fmt.Sprint(got) || e.Lost != 0 {
			t.Fatalf("event %d is %+v", got, e)
		}
		got++
	}
	hub.Publish(events.Event{Kind: "PodReady"})
	if e := <-following; e.Lost != many-got {
		t.Errorf("got %d of %d, and then %+v", got, many, e)
	}
}

func TestTheLastEventsAreKept(t *testing.T) {
	var hub events.Hub
	for i := range 1000 {
		hub.Publish(events.Event{Text: fmt.Sprint(i)})
	}
	last, _, end := hub.Listen()
	defer end()
	if len(last) != 256 || last[0].Text != "744" || last[255].Text != "999" {
		t.Errorf("%d are kept, from %+v", len(last), last[0])
	}
}
