package container

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSignalsAreKnownByAllTheirNames(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"SIGTERM": syscall.SIGTERM, "term": syscall.SIGTERM, "15": syscall.SIGTERM, "SIGQUIT": syscall.SIGQUIT,
		"SIGRTMIN+3": 37, "RTMAX-1": 63, "SIGRTMIN": 34, "64": 64,
		"": 0, "0": 0, "65": 0, "-1": 0, "SIGNONE": 0, "SIGRTMIN+31": 0, "SIGRTMAX-40": 0, "SIGRTMIN3": 0,
	} {
		if got := signalOf(name); got != want {
			t.Errorf("%q is %d, want %d", name, got, want)
		}
	}
	if got := stopSignal("", "NONSENSE"); got != "SIGTERM" {
		t.Errorf("the default is %q", got)
	}
}

func TestAHangingProcessIsToldByStateAndPlace(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "42")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"stat": "42 (a) R (b) D 1 42 42 0\n", "wchan": "rpc_wait_bit"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := processState(proc, 42); got != "is in uninterruptible sleep (D) in rpc_wait_bit" {
		t.Errorf("got %q", got)
	}
	if got := processState(proc, 43); !strings.Contains(got, "cannot be looked at") {
		t.Errorf("of none: %q", got)
	}
	if got := processState("/proc", uint32(os.Getpid())); !strings.HasPrefix(got, "is in state ") {
		t.Errorf("of this process: %q", got)
	}
}
