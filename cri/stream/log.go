package stream

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// AdoptLog has what the Kubernetes libraries of this process log, cri-streaming among
// them, in a log of ours instead of on standard error. What is an error there is a
// client that went away, so it is all for debugging. There is one such log for the
// process: it is called once, and before the first [Server] serves.
func AdoptLog(log *slog.Logger) { klog.SetSlogLogger(slog.New(debugHandler{log.Handler()})) }

// debugHandler hands everything on at the level of debugging.
type debugHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (h debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{h.Handler.WithGroup(name)}
}
