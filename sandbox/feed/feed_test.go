package feed

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// disk takes everything, or nothing if it has an error.
type disk struct{ err error }

func (d disk) Put(*sandbox.Pod) error                  { return d.err }
func (d disk) Delete(string) error                     { return d.err }
func (d disk) PutContainer(*container.Container) error { return d.err }
func (d disk) DeleteContainer(string, string) error    { return d.err }
func (d disk) Load() ([]*sandbox.Pod, []string, error) {
	return []*sandbox.Pod{{ID: "old", State: sandbox.Ready}}, nil, d.err
}
func (d disk) LoadContainers() ([]*container.Container, []string, error) {
	return []*container.Container{one("x", container.Running)}, nil, d.err
}

func one(id string, state container.State) *container.Container {
	return &container.Container{ID: id, State: state, Spec: container.Spec{Key: container.Key{PodID: "p"}}}
}

// heard returns what a listener hears now, as "Kind id containers...", and leaves.
func heard(f *Feed) []string {
	ctx, cancel := context.WithCancel(context.Background())
	var texts []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Stream(ctx, func(e Event) error {
			text := string(e.Kind) + " " + e.ID
			for _, c := range e.Containers {
				text += " " + c.ID + "=" + string(c.State)
			}
			texts = append(texts, text)
			return nil
		})
	}()
	synctest.Wait()
	cancel()
	<-done
	return texts
}

func TestEachChangeOfStateIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(slog.New(slog.DiscardHandler))
		pods, containers := f.Pods(disk{}), f.Containers(disk{errors.New("the disk is full")})
		_, _, _ = pods.Load()
		_, _, _ = containers.LoadContainers()
		put := func(state sandbox.State) { _ = pods.Put(&sandbox.Pod{ID: "p", State: state}) }
		_ = pods.Put(&sandbox.Pod{ID: "old", State: sandbox.Ready}) // as it was
		put(sandbox.Creating)
		put(sandbox.Ready)
		put(sandbox.Ready)
		for _, state := range []container.State{container.Creating, container.Created, container.Created, container.Running, container.Exited} {
			_ = containers.PutContainer(one("a", state))
		}
		put(sandbox.NotReady)
		_ = f.Containers(disk{}).DeleteContainer("p", "a")
		_ = containers.DeleteContainer("p", "a")
		_ = pods.Delete("p")
		_ = pods.Delete("p")
		want := []string{
			"Created p x=Running", "Started p x=Running", "Created a a=Created x=Running", "Started a a=Running x=Running",
			"Stopped a a=Exited x=Running", "Stopped p a=Exited x=Running", "Deleted a x=Running", "Deleted p x=Running",
		}
		got := heard(f)
		for i := range got { // containers of one moment have no order
			words := strings.Fields(got[i])
			slices.Sort(words[2:])
			got[i] = strings.Join(words, " ")
		}
		if !slices.Equal(got, want) {
			t.Errorf("heard\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestOneWhoComesBackGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(slog.New(slog.DiscardHandler))
		s := f.Containers(disk{})
		_ = s.PutContainer(one("a", container.Created))
		if got := heard(f); len(got) != 1 {
			t.Errorf("at first: %q", got)
		}
		_ = s.PutContainer(one("a", container.Running))
		if got := heard(f); len(got) != 1 || got[0] != "Started a a=Running" {
			t.Errorf("back again: %q", got)
		}
		_ = s.PutContainer(one("a", container.Exited))
		time.Sleep(keptFor + time.Second)
		if got := heard(f); len(got) != 0 {
			t.Errorf("too late: %q", got)
		}
	})
}

func TestASlowListenerLosesTheOldestAndBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := New(slog.New(slog.NewTextHandler(&log, nil)))
		s := f.Containers(disk{})
		release, count, done := make(chan struct{}), 0, make(chan error)
		go func() {
			done <- f.Stream(t.Context(), func(Event) error {
				<-release
				count++
				return nil
			})
		}()
		_ = s.PutContainer(one("a", container.Created))
		synctest.Wait() // it is stuck with the first
		for range 2 * kept {
			_ = s.PutContainer(one("a", container.Running))
			_ = s.PutContainer(one("a", container.Exited))
		}
		close(release)
		synctest.Wait()
		if len(f.events) > 2*kept || count < kept || count > 2*kept+1 || !strings.Contains(log.String(), "too slow") {
			t.Errorf("%d are kept, %d were heard, log: %s", len(f.events), count, log.String())
		}
		f.Close()
		if err := <-done; !errdefs.IsUnavailable(err) {
			t.Errorf("at the end: %v", err)
		}
	})
}

func TestWhatAListenerRefusedIsToldAgain(t *testing.T) {
	f := New(slog.New(slog.DiscardHandler))
	s := f.Containers(disk{})
	_ = s.PutContainer(one("a", container.Created))
	refused := errors.New("gone")
	for range 2 {
		if err := f.Stream(t.Context(), func(Event) error { return refused }); !errors.Is(err, refused) {
			t.Error(err)
		}
	}
}
