package ops

import (
	"context"
	"sync/atomic"
)

// Call is a request of a client, and the operation that it led to.
type Call struct{ op atomic.Pointer[Op] }

type callKey struct{}

// WithCall returns a context in which the operation that begins last is the call's.
func WithCall(ctx context.Context) (context.Context, *Call) {
	call := &Call{}
	return context.WithValue(ctx, callKey{}, call), call
}

// Now returns what the call is doing; ok is false if it has led to no operation.
func (c *Call) Now() (now Operation, ok bool) {
	op := c.op.Load()
	return op.Now(), op != nil
}
