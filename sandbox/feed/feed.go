package feed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/container"
)

// Kind is what happened.
type Kind string

// The kinds of events. A pod that is ready is Created and Started.
const (
	Created Kind = "Created"
	Started Kind = "Started"
	Stopped Kind = "Stopped"
	Deleted Kind = "Deleted"
)

// Event is what happened to a pod or a container.
type Event struct {
	Kind       Kind
	ID         string // of the container or of the pod
	At         time.Time
	Pod        *sandbox.Pod           // nil if it is not known any more
	Containers []*container.Container // of the pod
}

const (
	// kept is how many events a feed has at least, up to twice as many, and keptFor how old they may be for
	// a listener who comes back.
	kept    = 1000
	keptFor = 5 * time.Minute
)

// Feed tells listeners of events. It is safe for concurrent use.
type Feed struct {
	log    *slog.Logger
	closed chan struct{}

	mu     sync.Mutex // guards all below; never held across a call
	known  world
	events []Event
	first  uint64        // the number of events[0]
	left   uint64        // where the last listener to leave stopped
	wake   chan struct{} // closed and replaced at each event
}

// New returns a feed without events. [Feed.Close] ends its listeners.
func New(log *slog.Logger) *Feed {
	return &Feed{
		log: log, closed: make(chan struct{}), wake: make(chan struct{}),
		known: world{pods: map[string]*sandbox.Pod{}, containers: map[string]*container.Container{}},
	}
}

// Close ends all listeners, with errdefs.ErrUnavailable. It is called once.
func (f *Feed) Close() { close(f.closed) }

// Stream calls send for each event until that fails, ctx ends or the feed is closed.
func (f *Feed) Stream(ctx context.Context, send func(Event) error) error {
	next := f.join(time.Now())
	for {
		events, first, wake := f.after(next)
		if first > next {
			f.log.Warn("a listener of events is too slow, some are lost to it", "events", first-next)
		}
		for i, event := range events {
			if err := send(event); err != nil {
				f.leave(first + uint64(i))
				return err
			}
		}
		next = first + uint64(len(events))
		select {
		case <-wake:
			continue
		case <-ctx.Done():
			f.leave(next)
			return ctx.Err()
		case <-f.closed:
			f.leave(next)
			return fmt.Errorf("crib ends, try again: %w", errdefs.ErrUnavailable)
		}
	}
}

// join returns the number of the first event for a new listener.
func (f *Feed) join(now time.Time) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.first
	for _, event := range f.events {
		if next >= f.left && now.Sub(event.At) <= keptFor {
			break
		}
		next++
	}
	return next
}

func (f *Feed) leave(next uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = next
}

// after returns the events from a number on, or from the oldest that is left, and
// what is closed when there are more.
func (f *Feed) after(next uint64) (events []Event, first uint64, wake <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = max(next, f.first)
	return append(events, f.events[first-f.first:]...), first, f.wake
}

// tellLocked adds an event.
func (f *Feed) tellLocked(kind Kind, id string, pod *sandbox.Pod, podID string) {
	if len(f.events) == 2*kept { // not one by one, since each time all are copied
		f.events = slices.Clone(f.events[kept:])
		f.first += kept
	}
	f.events = append(f.events, Event{Kind: kind, ID: id, At: time.Now(), Pod: pod, Containers: f.known.of(podID)})
	close(f.wake)
	f.wake = make(chan struct{})
}
