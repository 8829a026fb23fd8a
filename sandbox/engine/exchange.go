package engine

import (
	"fmt"
	"reflect"

	"github.com/containerd/containerd/v2/core/events/exchange"
	"github.com/containerd/errdefs"
	events "github.com/docker/go-events"
)

// closeExchange ends the goroutine that hands out events, for which containerd,
// whose exchange lives as long as its process, has no call. It reads a field
// that is not exported; should that one day be of another type, it says so.
func closeExchange(e *exchange.Exchange) error {
	field := reflect.ValueOf(e).Elem().FieldByName("broadcaster")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*events.Broadcaster]() {
		return fmt.Errorf("ending the exchange of events: its inside has changed: %w", errdefs.ErrNotImplemented)
	}
	return (*events.Broadcaster)(field.UnsafePointer()).Close()
}
