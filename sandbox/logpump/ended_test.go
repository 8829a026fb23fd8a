package logpump

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTheEndIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadEnded(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the end: %v", err)
	}
	want := Ended{At: time.Now().UTC().Round(0), Code: 137, OOMKilled: true}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadEnded(dir); err != nil || got != want {
		t.Errorf("ReadEnded() = %+v, %v, want %+v", got, err, want)
	}
	for range 2 {
		if err := RemoveEnded(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := ReadEnded(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was removed: %v", err)
	}
}

func TestADamagedEndIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(endedPath(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEnded(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadEnded() = %v", err)
	}
}

func TestTheMemoryControllerIsFoundInEitherVersion(t *testing.T) {
	for lines, want := range map[string][]string{
		"0::/pod/c\n": {"/sys/fs/cgroup/pod/c/memory.events"},
		"9:memory:/pod/c\n1:name=systemd:/x\n0::/x\n": {
			"/sys/fs/cgroup/memory/pod/c/memory.oom_control", "/sys/fs/cgroup/x/memory.events"},
		"nonsense\n": nil,
	} {
		if got := oomFiles(lines); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
}

func TestOOMKillsAreCountedOnEitherVersion(t *testing.T) {
	dir := t.TempDir()
	if killed, err := OOMKilled(dir); err != nil || killed {
		t.Errorf("never noted: %v, %v", killed, err)
	}
	counts := filepath.Join(dir, "counts")
	if err := os.WriteFile(filepath.Join(dir, "oom"), []byte(counts), 0o600); err != nil {
		t.Fatal(err)
	}
	if killed, err := OOMKilled(dir); err != nil || killed {
		t.Errorf("the cgroup is gone: %v, %v", killed, err)
	}
	for text, want := range map[string]bool{
		"low 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n": false,
		"low 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 0\n": true,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n":       false,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n":       true,
	} {
		if err := os.WriteFile(counts, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if killed, err := OOMKilled(dir); err != nil || killed != want {
			t.Errorf("%q: %v, %v", text, killed, err)
		}
	}
}
