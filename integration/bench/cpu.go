package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuacct counts CPU time by cgroup; hosts with cgroups of version 2 alone lack it.
const cpuacct = "/sys/fs/cgroup/cpuacct"

// cpu returns the CPU time so far of a runtime, its shims and all that they start,
// and of the containers of all runtimes, which take their first steps, programs of
// the OCI runtime, in cgroups of their own. It is false where it is not counted.
func (t *target) cpu(pod string) (time.Duration, bool) {
	total := time.Duration(0)
	for _, group := range []string{t.group, filepath.Join(cpuacct, t.pod(pod).Linux.CgroupParent)} {
		text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage"))
		if err != nil {
			return 0, false
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, false
		}
		total += time.Duration(ns)
	}
	return total, true
}

// countCPU moves a process, whose children follow it, to a cgroup that counts,
// and returns the cgroup. Where there is none that counts, the path is empty.
func countCPU(pid int) (group string, err error) {
	if _, err := os.Stat(filepath.Join(cpuacct, "cpuacct.usage")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	group = filepath.Join(cpuacct, fmt.Sprintf("crib-bench-crib-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return "", err
	}
	err = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if err != nil {
		return "", errors.Join(err, os.Remove(group))
	}
	return group, nil
}

// endCount removes the cgroup of a process that has ended.
func endCount(group string) error {
	if group == "" {
		return nil
	}
	return os.Remove(group)
}
