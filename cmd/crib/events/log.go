package events

import (
	"context"
	"log/slog"
	"slices"
)

// Log returns a log that writes to another one, and from which the hub gets its events.
func (h *Hub) Log(log *slog.Logger) *slog.Logger {
	return slog.New(handler{hub: h, inner: log.Handler()})
}

// handler passes records on, and events to a hub.
type handler struct {
	hub   *Hub
	inner slog.Handler
	attrs []slog.Attr
}

// Enabled implements slog.Handler: events are of level info or above.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		if e, ok := h.eventOf(r); ok {
			h.hub.Publish(e)
		}
	}
	if !h.inner.Enabled(ctx, r.Level) {
		return nil
	}
	return h.inner.Handle(ctx, r)
}

// eventOf makes an event of a record, if it is one.
func (h handler) eventOf(r slog.Record) (Event, bool) {
	e := Event{At: r.Time, Text: r.Message, Of: map[string]string{}}
	take := func(a slog.Attr) bool {
		e.Of[a.Key] = a.Value.Resolve().String()
		return true
	}
	for _, a := range h.attrs {
		take(a)
	}
	r.Attrs(take)
	e.Kind = e.Of["event"]
	delete(e.Of, "event")
	if _, ok := e.Of["network"]; ok && e.Kind == "" {
		e.Kind = "Network"
	}
	return e, e.Kind != ""
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.hub, h.inner.WithAttrs(attrs), slices.Concat(h.attrs, attrs)}
}

// WithGroup implements slog.Handler. Attributes of groups are not the events'.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.hub, h.inner.WithGroup(name), h.attrs}
}
