package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox/cgroup"
	"github.com/crib-runtime/crib/sandbox/container"
)

// Update changes the limits of a running container: by the OCI runtime, and by
// hand what runtimes leave as it is: huge pages and oom_score_adj. Less memory than
// is used is refused, where the kernel would kill for it.
func (e *Engine) Update(ctx context.Context, id string, change container.Change) error {
	if err := e.update(ctx, id, change); err != nil {
		return fmt.Errorf("changing the limits of container %s: %w", id, err)
	}
	return nil
}

func (e *Engine) update(ctx context.Context, id string, change container.Change) error {
	limits := checked(change.Limits)
	r, err := typeurl.MarshalAnyToProto(limits)
	if err != nil {
		return fmt.Errorf("encoding them: %w", err)
	}
	if _, err := e.client.TaskService().Update(ctx, &tasks.UpdateTaskRequest{ContainerID: id, Resources: r}); err != nil {
		return errgrpc.ToNative(err)
	}
	if len(limits.HugepageLimits) == 0 && change.OOMScoreAdj == 0 {
		return nil
	}
	spec, err := e.Spec(ctx, id)
	if err != nil || spec.Linux == nil {
		return err
	}
	path := cgroup.Path(spec.Linux.CgroupsPath, e.cfg.SystemdCgroup)
	return errors.Join(limitHugepages(path, limits.HugepageLimits), e.rescore(ctx, id, path, change.OOMScoreAdj))
}

// checked returns limits of which that of memory is compared with what is used.
func checked(limits *specs.LinuxResources) *specs.LinuxResources {
	if limits == nil {
		return &specs.LinuxResources{}
	}
	if limits.Memory == nil {
		return limits
	}
	all, memory, yes := *limits, *limits.Memory, true
	memory.CheckBeforeUpdate = &yes
	all.Memory = &memory
	return &all
}

// limitHugepages writes limits of huge pages, and of their reservations where the
// kernel has such limits.
func limitHugepages(path string, limits []specs.LinuxHugepageLimit) error {
	var errs []error
	for _, limit := range limits {
		dir, name := filepath.Join(cgroup.Root, path), "max"
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err != nil {
			dir, name = filepath.Join(cgroup.Root, "hugetlb", path), "limit_in_bytes"
		}
		file := filepath.Join(dir, "hugetlb."+limit.Pagesize+".")
		value := []byte(strconv.FormatUint(limit.Limit, 10))
		errs = append(errs, os.WriteFile(file+name, value, 0))
		if err := os.WriteFile(file+"rsvd."+name, value, 0); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// rescoreRounds is how often processes are looked for that a process of the old
// score made meanwhile.
const rescoreRounds = 5

// rescore changes the oom_score_adj of a container's processes that have the one of
// its first process. Others chose one for themselves. What is executed in it later
// gets the score that it was made with, from the OCI runtime's own record.
func (e *Engine) rescore(ctx context.Context, id, path string, wish int64) error {
	if wish == 0 {
		return nil
	}
	granted, err := e.grantedOOMScore(int(wish))
	if err != nil {
		return err
	}
	first, err := e.runningPid(ctx, id)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(oomScoreFile(int(first)))
	if err != nil {
		return fmt.Errorf("reading its oom_score_adj: %w", err)
	}
	score := []byte(strconv.Itoa(granted) + "\n")
	for range rescoreRounds {
		changed, err := rescoreOnce(path, old, score)
		if err != nil || changed == 0 {
			return err
		}
	}
	return nil
}

func rescoreOnce(path string, old, score []byte) (changed int, err error) {
	if bytes.Equal(old, score) {
		return 0, nil
	}
	var errs []error
	for _, pid := range cgroup.NewHost(cgroup.Root).Processes(path) {
		file := oomScoreFile(pid)
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, old) {
			continue // it has ended, or is not ours to change
		}
		err := os.WriteFile(file, score, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

func oomScoreFile(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj") }
