package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/crib-runtime/crib/cmd/crib/events"
)

// handleEvents adds the stream of events: a line of JSON for each, first those that
// are kept, and with follow=true those to come until the client goes.
func handleEvents(mux *http.ServeMux, hub *events.Hub) {
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		last, following, end := hub.Listen()
		defer end()
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
		for _, e := range last {
			if lines.Encode(e) != nil {
				return
			}
		}
		follow := r.URL.Query().Get("follow") == "true"
		for follow && flusher.Flush() == nil {
			select {
			case e := <-following:
				follow = lines.Encode(e) == nil
			case <-r.Context().Done():
				return
			}
		}
	})
}

// Events calls tell with the events that the daemon keeps, and with follow with those to
// come, until ctx or the daemon ends or tell returns an error.
func (c Client) Events(ctx context.Context, follow bool, tell func(events.Event) error) error {
	path := "/v1/events"
	if follow {
		path += "?follow=true"
	}
	return c.do(ctx, call{http.MethodGet, path, nil}, func(body io.Reader) error {
		for lines := json.NewDecoder(body); ; {
			var e events.Event
			err := lines.Decode(&e)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = tell(e)
			}
			if err != nil {
				return err
			}
		}
	})
}
