package engine

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/containerd/log"
)

func TestContainerdsLinesKeepLevelAndFields(t *testing.T) {
	var buf logBuffer
	e := newEngineLog(slog.New(slog.NewTextHandler(&buf, nil)))
	e.WithError(errors.New("broken")).WithField("id", "abc").Warn("a line")
	e.Debug("not asked for")
	log.L.Info("without a context")
	got := buf.String()
	for _, want := range []string{`level=WARN msg="a line"`, "error=broken", "id=abc", `level=INFO msg="without a context"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "not asked for") {
		t.Errorf("a debug line in\n%s", got)
	}
}
