package engine

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// newEngineLog returns the entry whose lines reach to with their level and
// fields. containerd takes its logger from contexts, and so has one for each
// engine; where it has no context it uses the process's own one, which is sent
// to the engine that was opened last.
func newEngineLog(to *slog.Logger) *log.Entry {
	hooks := make(logrus.LevelHooks)
	hooks.Add(slogHook{to})
	std := logrus.StandardLogger()
	std.SetOutput(io.Discard)
	std.SetFormatter(noFormat{})
	std.ReplaceHooks(hooks)

	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetFormatter(noFormat{})
	l.AddHook(slogHook{to})
	// The process's own logger stays at info: its level is handed to shims, and
	// at debug each opens a second socket.
	if to.Enabled(context.Background(), slog.LevelDebug) {
		l.SetLevel(logrus.DebugLevel)
	}
	return logrus.NewEntry(l)
}

// slogHook hands lines of logrus to slog.
type slogHook struct{ to *slog.Logger }

// Levels implements logrus.Hook.
func (slogHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h slogHook) Fire(e *logrus.Entry) error {
	ctx, level := e.Context, slogLevel(e.Level)
	if ctx == nil {
		ctx = context.Background()
	}
	if !h.to.Enabled(ctx, level) {
		return nil
	}
	r := slog.NewRecord(e.Time, level, e.Message, 0)
	for k, v := range e.Data {
		r.AddAttrs(slog.Any(k, v))
	}
	return h.to.Handler().Handle(ctx, r)
}

// slogLevel is the level that corresponds; fatal and panic become errors.
func slogLevel(l logrus.Level) slog.Level {
	switch l {
	case logrus.TraceLevel:
		return slog.LevelDebug - 4
	case logrus.DebugLevel:
		return slog.LevelDebug
	case logrus.InfoLevel:
		return slog.LevelInfo
	case logrus.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

// noFormat saves formatting what is discarded.
type noFormat struct{}

// Format implements logrus.Formatter.
func (noFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
