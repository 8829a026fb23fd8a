package logpump

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroups is where cgroups are mounted.
const cgroups = "/sys/fs/cgroup"

// Ended is how a container ended.
type Ended struct {
	At        time.Time `json:"at"`
	Code      uint32    `json:"code"` // 128 and the signal, if it was one
	OOMKilled bool      `json:"oomKilled,omitempty"`
}

// Write puts the end into a container's directory, atomically. It is not synced:
// the directory does not outlive a reboot.
func (e Ended) Write(dir string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding the end of a container: %w", err)
	}
	next := filepath.Join(dir, ".exit.json")
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return fmt.Errorf("writing the end of a container: %w", err)
	}
	if err := os.Rename(next, endedPath(dir)); err != nil {
		return fmt.Errorf("writing the end of a container: %w", err)
	}
	return nil
}

// ReadEnded reads the end of the container of a directory; fs.ErrNotExist while
// there is none.
func ReadEnded(dir string) (e Ended, err error) {
	b, err := os.ReadFile(endedPath(dir))
	if err != nil {
		return e, fmt.Errorf("reading the end of a container: %w", err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("reading the end of a container: %s: %w", endedPath(dir), err)
	}
	return e, nil
}

// RemoveEnded forgets an earlier end of the container of a directory. It is idempotent.
func RemoveEnded(dir string) error {
	if err := os.Remove(endedPath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the end of a container: %w", err)
	}
	return nil
}

func endedPath(dir string) string { return filepath.Join(dir, "exit.json") }

// oomFiles are where the count may be, from the lines of /proc/PID/cgroup: with
// both versions mounted, the memory controller is in one of them.
func oomFiles(lines string) (paths []string) {
	for line := range strings.Lines(lines) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers := strings.Split(fields[1], ","); {
		case fields[0] == "0":
			paths = append(paths, filepath.Join(cgroups, fields[2], "memory.events"))
		case controllers[0] == "memory":
			paths = append(paths, filepath.Join(cgroups, "memory", fields[2], "memory.oom_control"))
		}
	}
	return paths
}

// OOMKilled says whether something in the container's cgroup was killed for want
// of memory, for when its [OOMWatch] is gone. It says no where the cgroup is gone
// too or was never noted.
func OOMKilled(dir string) (bool, error) {
	path, err := os.ReadFile(filepath.Join(dir, "oom"))
	if err != nil {
		return false, ignoreMissing(err)
	}
	counts, err := os.ReadFile(string(path))
	if err != nil {
		return false, ignoreMissing(err)
	}
	return oomKilled(string(counts))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("reading the count of OOM kills: %w", err)
}
