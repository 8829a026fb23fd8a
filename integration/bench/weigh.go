package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// weight is memory in KiB.
type weight struct {
	pss    float64 // of the daemon, its shims and everything below them
	kernel float64 // of the whole machine
}

// kernelFields are the lines of /proc/meminfo that count as the kernel's.
var kernelFields = []string{"Slab", "PageTables", "KernelStack", "Percpu"}

// The kernel has settled when its memory changes by less than still, in KiB, from
// one look to the next. On a machine that does other things it never does.
const (
	looks = 20
	still = 512
	look  = time.Second
)

// settled waits for the kernel to settle and returns its memory.
func settled(ctx context.Context) (float64, error) {
	last := math.Inf(1)
	for range looks {
		if err := pause(ctx, look); err != nil {
			return 0, err
		}
		now, err := sum("/proc/meminfo", kernelFields...)
		if err != nil || math.Abs(last-now) < still {
			return now, err
		}
		last = now
	}
	return last, nil
}

// weigh weighs when the kernel has settled.
func (t *target) weigh(ctx context.Context) (w weight, err error) {
	if w.kernel, err = settled(ctx); err != nil {
		return w, err
	}
	pids, err := t.processes()
	if err != nil {
		return w, err
	}
	for _, pid := range pids {
		pss, err := sum(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		if gone(err) {
			continue
		}
		if err != nil {
			return w, err
		}
		w.pss += pss
	}
	return w, nil
}

// processes returns the daemon, the shims in its mount namespace, and everything
// below them. Shims are no children of the daemon's, but of whoever adopts orphans.
func (t *target) processes() ([]int, error) {
	mounts := func(pid int) string {
		ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		return ns
	}
	ours := mounts(t.pid)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || ours == "" {
		return nil, fmt.Errorf("look at process %d of %s: %w", t.pid, t.name, errors.Join(err, os.ErrNotExist))
	}
	family := []int{t.pid}
	children := map[int][]int{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		parent, program := describe(pid)
		children[parent] = append(children[parent], pid)
		if program == t.shim && mounts(pid) == ours {
			family = append(family, pid)
		}
	}
	for i := 0; i < len(family); i++ {
		for _, child := range children[family[i]] {
			if !slices.Contains(family, child) {
				family = append(family, child)
			}
		}
	}
	return family, nil
}

// describe returns a process's parent and the name of its program, of a process
// that is gone nothing.
func describe(pid int) (parent int, program string) {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// pid (name) state parent …; the name may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) > 1 {
		parent, _ = strconv.Atoi(string(fields[1]))
	}
	return parent, filepath.Base(path)
}

// sum adds up lines "Name: 12 kB" of a file.
func sum(path string, names ...string) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if !slices.Contains(names, name) {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		if err != nil {
			return 0, fmt.Errorf("read %s of %s: %w", name, path, err)
		}
		total += kib
	}
	return total, nil
}

// gone tells that a process ended while it was looked at.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }
