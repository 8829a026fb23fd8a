package container

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// validate refuses what cannot be made, before anything is made.
func validate(spec *Spec) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("container %q: %s: %w", spec.Name, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	switch {
	case spec.PodID == "":
		return invalid("pod_sandbox_id is empty")
	case spec.Name == "":
		return invalid("config.metadata.name is empty")
	case spec.Image.Image == "":
		return invalid("config.image.image is empty")
	case spec.LogPath != "" && !filepath.IsAbs(spec.LogPath):
		return invalid("config.log_path %q makes no absolute path with the pod's log_directory", spec.LogPath)
	case spec.StopSignal != "" && signalOf(spec.StopSignal) == 0:
		return invalid("config.stop_signal %q is no signal", spec.StopSignal)
	}
	return nil
}

// stopSignal returns the first of the names that is a signal, else SIGTERM.
func stopSignal(names ...string) string {
	for _, name := range names {
		if signalOf(name) != 0 {
			return name
		}
	}
	return "SIGTERM"
}

// The real-time signals as programs get them from their C library, which keeps
// the first two for itself.
const (
	realtimeMin = 34
	realtimeMax = 64
)

// signalOf returns the signal of a name as images and clients write it: "SIGTERM",
// "term", "15", "SIGRTMIN+3". It is 0 for what is none.
func signalOf(name string) syscall.Signal {
	if n, err := strconv.Atoi(name); err == nil {
		return realSignal(n)
	}
	name = "SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if signal := unix.SignalNum(name); signal != 0 {
		return signal
	}
	if rest, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
		return realtime(realtimeMin, rest)
	}
	if rest, ok := strings.CutPrefix(name, "SIGRTMAX"); ok {
		return realtime(realtimeMax, rest)
	}
	return 0
}

// realtime returns the signal at an offset ("", "+3", "-1") from a base.
func realtime(base int, offset string) syscall.Signal {
	if offset == "" {
		return syscall.Signal(base)
	}
	n, err := strconv.Atoi(offset)
	if err != nil || offset[0] != '+' && offset[0] != '-' || base+n < realtimeMin {
		return 0
	}
	return realSignal(base + n)
}

func realSignal(n int) syscall.Signal {
	if n < 1 || n > realtimeMax {
		return 0
	}
	return syscall.Signal(n)
}
