package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// shimsDir has a directory for each pod that has a shim: the working directory of
// that process, with what a later daemon has to know of it.
const shimsDir = "p"

const (
	addressFile = "address" // the shim removes the socket of this file when it ends
	pidFile     = "pid"
	logFile     = "log" // the shim's standard error
)

// envShim tells a shim that it is the pod's, by which path the engine knows its
// program; cmd/crib-shim has the same name.
const envShim = "CRIB_SHIM_PATH"

// shimVersion is the version of the task API that crib-shim speaks.
const shimVersion = 3

func shimDir(state, podID string) string { return filepath.Join(state, shimsDir, podID) }

// shimOf returns the address of a pod's shim, which is started if there is none.
// The pod's lock is held.
func (s *server) shimOf(ctx context.Context, podID string) (string, error) {
	address, err := shim.ReadAddress(filepath.Join(shimDir(s.state, podID), addressFile))
	if err == nil && shim.CanConnect(address) {
		return address, nil
	}
	if err := s.endShim(ctx, podID); err != nil { // what is left of a dead one
		return "", err
	}
	if address, err = s.startShim(podID); err != nil {
		return "", fmt.Errorf("starting the shim of pod %s: %w", podID, errors.Join(err, s.endShim(ctx, podID)))
	}
	return address, nil
}

// startShim starts a shim with its listening socket, so that nobody has to wait for
// it. A crash on the way leaves at most a shim that no bundle names: see endOrphans.
func (s *server) startShim(podID string) (string, error) {
	dir := shimDir(s.state, podID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	address := "unix://" + filepath.Join(socketDir(s.state), podID[:min(len(podID), 32)])
	if err := shim.RemoveSocket(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	l, err := shim.NewSocket(address)
	if err != nil {
		return "", err
	}
	l.SetUnlinkOnClose(false) // the shim has it then
	defer func() { _ = l.Close() }()
	socket, err := l.File()
	if err != nil {
		return "", err
	}
	defer func() { _ = socket.Close() }()
	for name, text := range map[string]string{addressFile: address, logFile: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	pid, err := s.execShim(podID, socket)
	if err != nil {
		return "", err
	}
	return address, os.WriteFile(filepath.Join(dir, pidFile), []byte(strconv.Itoa(pid)), 0o600)
}

// execShim runs the program. It is our child, and its end is awaited by endShim: it
// outlives the engine, so that no goroutine could wait for it.
func (s *server) execShim(podID string, socket *os.File) (int, error) {
	cmd := exec.Command(s.link(), "-namespace", namespace, "-id", podID, "-address", s.address())
	cmd.Dir = shimDir(s.state, podID)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=4",
		"GRPC_ADDRESS="+s.address(), "TTRPC_ADDRESS="+s.address()+".ttrpc", envShim+"="+s.link())
	cmd.ExtraFiles = []*os.File{socket} // descriptor 3, where a shim looks for it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	score, err := sys.GetOOMScoreAdj(os.Getpid())
	if err == nil {
		err = sys.AdjustOOMScore(pid, score+1) // it goes before the daemon, after containers
	}
	if err != nil {
		s.log.WithError(err).WithField("pod", podID).Warn("a shim keeps the daemon's oom_score_adj")
	}
	return pid, cmd.Process.Release()
}

// endShim ends the shim of a pod, unless it has a container still, and removes what
// is left of it. It is idempotent. The pod's lock is held.
func (s *server) endShim(ctx context.Context, podID string) error {
	dir := shimDir(s.state, podID)
	address, err := shim.ReadAddress(filepath.Join(dir, addressFile))
	if err == nil {
		err = s.askAndAwait(ctx, podID, address)
		if errdefs.IsFailedPrecondition(err) {
			return nil
		}
		if err == nil {
			err = shim.RemoveSocket(address)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ending the shim of pod %s: %w", podID, err)
	}
	if said, _ := os.ReadFile(filepath.Join(dir, logFile)); len(said) > 0 {
		s.log.WithField("pod", podID).Warn("its shim said: " + strings.TrimSpace(string(said)))
	}
	return os.RemoveAll(dir)
}

// askAndAwait ends a shim that may have ended, and returns when it has.
// errdefs.ErrFailedPrecondition if it has a container.
func (s *server) askAndAwait(ctx context.Context, podID, address string) error {
	b, _ := os.ReadFile(filepath.Join(shimDir(s.state, podID), pidFile))
	pid, _ := strconv.Atoi(string(b)) // 0 if the daemon was killed before it wrote it
	if shim.CanConnect(address) {
		if err := s.endIdleShim(ctx, address, podID); err != nil {
			return err
		}
		if pid != 0 {
			if err := awaitProcess(ctx, pid, idleTimeout); err != nil {
				return err
			}
		}
	}
	if pid != 0 {
		// If it is a child of ours; else it is another's to reap.
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return nil
}

// sweepShims removes what is left of shims that were ended as orphans.
func sweepShims(state string, known map[string]bool) error {
	dirs, err := os.ReadDir(filepath.Join(state, shimsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range dirs {
		dir := filepath.Join(state, shimsDir, d.Name())
		address, err := shim.ReadAddress(filepath.Join(dir, addressFile))
		socket := strings.TrimPrefix(address, "unix://")
		if err == nil && known[socket] {
			continue
		}
		if socket != "" {
			if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// awaitProcess returns when a process has ended. That there is none is fine.
func awaitProcess(ctx context.Context, pid int, wait time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting for process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return awaitPidfd(ctx, fd, pid, wait)
}

// awaitPidfd waits for the end of a process that has been asked or forced to.
func awaitPidfd(ctx context.Context, fd, pid int, wait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	over := time.Now().Add(wait)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(time.Until(over).Milliseconds(), 0)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for the end of process %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("process %d has not ended after %s: %w", pid, wait, errdefs.ErrUnavailable)
		default:
			return nil
		}
	}
}
