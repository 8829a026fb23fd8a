package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// orphanRounds bounds the search for processes that other ones of them make.
const orphanRounds = 5

// idleTimeout is how long a shim may take to say that it ends.
const idleTimeout = 2 * time.Second

// endOrphans ends the shims that no bundle knows. An engine that is killed between
// the start of a shim and the writing of bootstrap.json leaves one: it has no
// container, and nobody would ever ask it to end. It is called when no engine
// runs, so whoever still starts a shim does it for a dead one.
func endOrphans(ctx context.Context, state, address string) error {
	known, err := knownShims(state)
	if err != nil {
		return err
	}
	var errs []error
	for range orphanRounds {
		all := sockets{}
		orphans := slices.DeleteFunc(shimsOf(state, address), func(p shimProcess) bool { return p.inUse(known, all) })
		if len(orphans) == 0 {
			break
		}
		for _, p := range orphans {
			errs = append(errs, endProcess(ctx, p.pid))
		}
	}
	return errors.Join(append(errs, sweepShims(state, known))...)
}

// knownShims are the paths of the sockets that the bundles of an engine name.
func knownShims(state string) (map[string]bool, error) {
	paths, err := filepath.Glob(filepath.Join(state, plugins.RuntimePluginV2.String()+".task", "*", "*", "bootstrap.json"))
	if err != nil {
		return nil, fmt.Errorf("looking for the shims of bundles: %w", err)
	}
	known := make(map[string]bool, len(paths))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the shim of a bundle: %w", err)
		}
		var bootstrap struct {
			Address string `json:"address"`
		}
		if json.Unmarshal(b, &bootstrap) == nil { // else the engine cannot load it either
			known[strings.TrimPrefix(bootstrap.Address, "unix://")] = true
		}
	}
	return known, nil
}

// shimProcess is a process of the shim's program.
type shimProcess struct {
	pid    int
	action string // "" for the shim itself, "start" for the one that starts it
}

// shimsOf returns the processes of shims of the engine with a state directory and an
// address. Nodes in containers of this machine may have an engine with the very same
// names: theirs see another directory there.
func shimsOf(state, address string) (found []shimProcess) {
	own, err := os.Stat(state)
	if err != nil {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is a good one
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if !hasFlag(args, "-address", address) || !hasFlag(args, "-namespace", namespace) {
			continue
		}
		if seen, err := os.Stat(filepath.Join(dir, "root", state)); err != nil || !os.SameFile(own, seen) {
			continue
		}
		p := shimProcess{}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		if last := args[len(args)-1]; last == "start" || last == "delete" {
			p.action = last
		}
		found = append(found, p)
	}
	return found
}

func hasFlag(args []string, name, value string) bool {
	i := slices.Index(args, name)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// inUse says whether a process has work to do: it deletes, or a bundle has the
// path of one of its sockets.
func (p shimProcess) inUse(known map[string]bool, all sockets) bool {
	if p.action != "" {
		return p.action == "delete"
	}
	return slices.ContainsFunc(all.of(p.pid), func(path string) bool { return known[path] })
}

// sockets are the paths of Unix sockets by their inodes, by the network namespace:
// as a rule all shims are in one, and the table is long where there are many.
type sockets map[string]map[string]string

// of returns the paths of the sockets that a process has open.
func (s sockets) of(pid int) (paths []string) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	ns, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return nil // it has ended
	}
	if s[ns] == nil {
		s[ns] = socketTable(dir)
	}
	links, _ := filepath.Glob(filepath.Join(dir, "fd/*")) // the pattern is a good one
	for _, link := range links {
		target, err := os.Readlink(link)
		inode, ok := strings.CutPrefix(target, "socket:[")
		if path := s[ns][strings.TrimSuffix(inode, "]")]; err == nil && ok && path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// socketTable reads the table of the namespace that a process is in.
func socketTable(dir string) map[string]string {
	table := map[string]string{}
	b, err := os.ReadFile(filepath.Join(dir, "net/unix"))
	if err != nil {
		return table
	}
	for line := range bytes.Lines(b) {
		if fields := strings.Fields(string(line)); len(fields) == 8 {
			table[fields[6]] = fields[7]
		}
	}
	return table
}

// endProcess kills a process and waits for its end. That it has ended is fine.
func endProcess(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	if err := awaitPidfd(ctx, fd, pid, killTimeout); err != nil {
		return err
	}
	_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // if it is a child of ours
	return nil
}

// askToEnd asks the shim at a socket to end. errdefs.ErrFailedPrecondition if it has
// a container.
func askToEnd(ctx context.Context, socket, podID string) error {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil // it has ended meanwhile
	}
	c := ttrpc.NewClient(conn)
	defer func() { _ = c.Close() }()
	_, err = task.NewTTRPCTaskClient(c).Shutdown(ctx, &task.ShutdownRequest{ID: podID, Now: true})
	if errors.Is(err, ttrpc.ErrClosed) {
		return nil // it ended before it answered
	}
	return errgrpc.ToNative(err)
}

// endIdleShim ends the shim at an address if it has no container. One that does not
// answer is killed, unless a bundle has its address.
func (s *server) endIdleShim(ctx context.Context, address, podID string) error {
	socket := strings.TrimPrefix(address, "unix://")
	err := askToEnd(ctx, socket, podID)
	if err == nil || errdefs.IsFailedPrecondition(err) {
		return err
	}
	known, knownErr := knownShims(s.state)
	if knownErr != nil || known[socket] {
		return errors.Join(err, knownErr)
	}
	errs, all := []error{}, sockets{}
	for _, p := range shimsOf(s.state, s.address()) {
		if p.action == "" && slices.Contains(all.of(p.pid), socket) {
			errs = append(errs, endProcess(ctx, p.pid))
		}
	}
	return errors.Join(errs...)
}
