package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stopRounds bounds the search for processes that a tree makes while it is being
// stopped; each round stops those that could.
const stopRounds = 20

// killTree kills a process and what it has started: its descendants, its session,
// and those of its cgroup that hold its output, as a daemon does that left both.
// They are stopped first, so that none makes another meanwhile. What has ended
// already is fine.
func killTree(root int) error {
	t := tree{root: root, cgroup: processCgroup(root), outputs: outputs(root), found: map[int]bool{}}
	var errs []error
	for range stopRounds {
		fresh, err := t.grow()
		errs = append(errs, err)
		if len(fresh) == 0 {
			break
		}
		for _, pid := range fresh {
			_ = unix.Kill(pid, unix.SIGSTOP) // the kill below reports
		}
	}
	for pid := range t.found {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("killing process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// tree is what is known of a process and those that it has started.
type tree struct {
	root    int
	cgroup  string
	outputs []string
	found   map[int]bool
}

// grow returns members that were not known before.
func (t *tree) grow() (fresh []int, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for more := true; more; {
		more = false
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || t.found[pid] || !t.has(pid) {
				continue
			}
			t.found[pid], more = true, true
			fresh = append(fresh, pid)
		}
	}
	return fresh, nil
}

// has says whether a process belongs to the tree.
func (t *tree) has(pid int) bool {
	if pid == t.root {
		return true
	}
	parent, session := relations(pid)
	if parent == 0 {
		return false // it has ended
	}
	if t.found[parent] {
		return true
	}
	if t.cgroup == "" || session != t.root && len(t.outputs) == 0 || processCgroup(pid) != t.cgroup {
		return false
	}
	if session == t.root {
		return true
	}
	for _, held := range outputs(pid) {
		for _, ours := range t.outputs {
			if held == ours {
				return true
			}
		}
	}
	return false
}

// relations reads the parent and the session of a process; 0 if it has ended.
func relations(pid int) (parent, session int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The name may hold anything, parentheses too.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 4 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	session, _ = strconv.Atoi(fields[3])
	return parent, session
}

// processCgroup is where a process is, as /proc says it; "" if it has ended.
func processCgroup(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return string(b)
}

// outputs are the pipes that a process has as its outputs, which an exec shares
// with nobody but what it has started.
func outputs(pid int) (pipes []string) {
	for _, fd := range []int{1, 2} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err == nil && strings.HasPrefix(link, "pipe:") {
			pipes = append(pipes, link)
		}
	}
	return pipes
}
