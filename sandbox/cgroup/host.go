package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Host reads the cgroups of this machine, of either version. It is safe for
// concurrent use.
type Host struct {
	root    string
	unified bool
	sizes   []string // of huge pages
	buffers sync.Pool
}

// NewHost finds out which version of cgroups is mounted at a root.
func NewHost(root string) *Host {
	var st unix.Statfs_t
	err := unix.Statfs(root, &st)
	return newHost(root, err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC, pageSizes())
}

func newHost(root string, unified bool, sizes []string) *Host {
	buffer := func() any {
		buf := make([]byte, bufferSize)
		return &buf
	}
	return &Host{root: root, unified: unified, sizes: sizes, buffers: sync.Pool{New: buffer}}
}

// Read returns what a cgroup uses, given its path below the root of a hierarchy.
// errdefs.ErrNotFound if there is no such cgroup.
func (h *Host) Read(path string) (c Usage, err error) {
	buf := h.buffers.Get().(*[]byte)
	defer h.buffers.Put(buf)
	if h.unified {
		err = readV2(&c, filepath.Join(h.root, path), h.sizes, buf)
	} else {
		err = h.readV1(&c, path, buf)
	}
	c.At = time.Now()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return c, fmt.Errorf("it has no cgroup: %w: %w", err, errdefs.ErrNotFound)
	}
	return c, err
}

// Processes returns the ids of the processes of a cgroup, and of those below it.
func (h *Host) Processes(path string) []int {
	buf := h.buffers.Get().(*[]byte)
	defer h.buffers.Put(buf)
	if h.unified {
		return processesBelow(nil, filepath.Join(h.root, path), buf)
	}
	return processesBelow(nil, filepath.Join(h.root, "memory", path), buf)
}

// bufferSize is more than any file of a cgroup has, as a rule.
const bufferSize = 8192

// workingSet is usage without the files that were not used for long.
func workingSet(usage, inactive Figure) Figure {
	if !usage.Known {
		return Figure{}
	}
	return known(usage.Value - min(usage.Value, inactive.Value))
}
