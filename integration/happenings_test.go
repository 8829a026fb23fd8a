package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// happening is a line of `crib events -o json`.
type happening struct {
	Kind string
	Of   map[string]string
}

// TestEventsTellALifeInItsOrder follows a pod and its container.
func TestEventsTellALifeInItsOrder(t *testing.T) {
	c := startWithImage(t)
	follow := c.Command(t.Context(), "events", "-o", "json")
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pod := c.Pod("a")
	podID, _ := c.pod(pod)
	c.exited(c.launch(podID, pod, c.Container("main", "true")))
	if err := c.Remove(t.Context(), podID); err != nil {
		t.Fatal(err)
	}
	want := []string{"PodReady", "ContainerCreated", "ContainerStarted", "ContainerExited", "PodStopped", "ContainerRemoved", "PodRemoved"}
	var got []string
	for lines := bufio.NewScanner(out); len(got) < len(want) && lines.Scan(); {
		var h happening
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		if h.Kind == "Network" {
			continue
		}
		got = append(got, h.Kind)
		if h.Kind == "PodReady" && (h.Of["pod"] != "default/a" || h.Of["id"] != podID) {
			t.Errorf("a pod is ready: %+v", h)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := errors.Join(follow.Process.Kill(), out.Close()); err != nil {
		t.Error(err)
	}
	_ = follow.Wait() // killed
	c.tells("events --follow=false", true, "PodReady", "pod=default/a", "PodRemoved")
}

// TestADaemonEndsThoughSomebodyFollowsItsEvents: the stream has no end of its own.
func TestADaemonEndsThoughSomebodyFollowsItsEvents(t *testing.T) {
	c := start(t, defaults)
	follow := c.Command(t.Context(), "events")
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.pod(c.Pod("a"))
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := c.Terminate(); err != nil {
		t.Error(err)
	}
	_ = out.Close()
	_ = follow.Wait() // with an error: the daemon is gone
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{}); err != nil {
		t.Error(err)
	}
}
