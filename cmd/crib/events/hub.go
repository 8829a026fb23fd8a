package events

import (
	"sync"
	"time"
)

// kept is how many events are kept, and how many a listener may be behind.
const kept = 256

// Event is something that happened.
type Event struct {
	At   time.Time         `json:"at"`
	Kind string            `json:"kind"` // "PodReady", "ContainerExited", "Network" and so on
	Text string            `json:"text"`
	Of   map[string]string `json:"of"`             // pod, id, container, network, error: what the log says
	Lost int               `json:"lost,omitempty"` // events before this one that the listener did not get
}

// Hub passes events to listeners. Its zero value works; it is safe for concurrent use.
type Hub struct {
	mu        sync.Mutex // guards all below
	last      []Event
	listeners map[*listener]struct{}
}

// listener gets events; lost is guarded by the hub's mutex.
type listener struct {
	events chan Event
	lost   int
}

// Publish passes an event on and never blocks.
func (h *Hub) Publish(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.last) == kept {
		h.last = append(h.last[:0], h.last[1:]...)
	}
	h.last = append(h.last, e)
	for l := range h.listeners {
		e.Lost = l.lost
		select {
		case l.events <- e:
			l.lost = 0
		default:
			l.lost++
		}
	}
}

// Listen returns the events that are kept, oldest first, and those that follow. End
// is called once; no event comes after it.
func (h *Hub) Listen() (last []Event, following <-chan Event, end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	l := &listener{events: make(chan Event, kept)}
	h.listeners[l] = struct{}{}
	return append([]Event{}, h.last...), l.events, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, l)
	}
}
