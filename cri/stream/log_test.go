package stream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestTheLibrarysErrorsAreForDebugging(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelDebug: 2, slog.LevelInfo: 0} {
		var out bytes.Buffer
		log := slog.New(debugHandler{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})})
		log.Error("a client went away")
		log.WithGroup("g").With("port", 80).Info("a stream")
		if got := strings.Count(out.String(), "level=DEBUG"); got != want || strings.Contains(out.String(), "ERROR") {
			t.Errorf("at %s: %d lines for debugging, want %d:\n%s", level, got, want, out.String())
		}
	}
}
