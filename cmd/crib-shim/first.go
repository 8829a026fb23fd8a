package main

import (
	"errors"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// first is the first process of a container, which we are the reaper of. The OCI
// runtime would signal it too, by a program that runs for some milliseconds.
type first struct {
	fd      int  // of the process; -1 if it cannot be had
	ownPIDs bool // the kernel kills all of the container with it
}

func openFirst(pid int, ownPIDs bool) first {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1
	}
	return first{fd: fd, ownPIDs: ownPIDs}
}

// enough says whether signalling the first process is all that is asked for.
func (f first) enough(r *task.KillRequest) bool {
	return f.fd >= 0 && (!r.All || f.ownPIDs && unix.Signal(r.Signal) == unix.SIGKILL)
}

// signal is errdefs.ErrNotFound if the process has ended.
func (f first) signal(signal uint32) error {
	err := unix.PidfdSendSignal(f.fd, unix.Signal(signal), nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	return err
}

func (f first) close() error {
	if f.fd < 0 {
		return nil
	}
	return unix.Close(f.fd)
}
