package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// group reads the files of one cgroup's directory in one hierarchy. Its first error
// sticks; a file that is not there is none, since kernels differ.
type group struct {
	dir int // descriptor, -1 if the hierarchy is not there
	buf *[]byte
	err error
}

// openGroup opens a directory. That it is not there shows in the first error.
func openGroup(path string, buf *[]byte) group {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return group{dir: -1, buf: buf, err: fmt.Errorf("opening cgroup %s: %w", path, err)}
	}
	return group{dir: fd, buf: buf}
}

func (g *group) close() {
	if g.dir >= 0 {
		_ = unix.Close(g.dir) // O_PATH: nothing to lose
	}
}

// read returns the content of a file, nil if the kernel does not have it or does
// not tell. It is valid until the next read.
func (g *group) read(name string) []byte {
	if g.dir < 0 {
		return nil
	}
	fd, err := unix.Openat(g.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		g.fail(name, err)
		return nil
	}
	b, err := readAll(fd, g.buf)
	_ = unix.Close(fd) // only read
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		g.fail(name, err)
	}
	return b
}

func (g *group) fail(name string, err error) {
	if g.err == nil {
		g.err = fmt.Errorf("reading %s: %w", name, err)
	}
}

// readAll reads a file into a buffer that grows and is used again.
func readAll(fd int, buf *[]byte) ([]byte, error) {
	filled := 0
	for {
		if filled == len(*buf) {
			*buf = append(*buf, make([]byte, max(4096, len(*buf)))...)
		}
		n, err := unix.Read(fd, (*buf)[filled:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return (*buf)[:filled], err
		}
		filled += n
	}
}

// number reads a file that is one number; "max" and -1 are unknown.
func (g *group) number(name string) Figure { return parse(bytes.TrimSpace(g.read(name))) }

// limit reads a file that is one number, of which the largest are none.
func (g *group) limit(name string) Figure {
	if f := g.number(name); f.Value < noLimit {
		return f
	}
	return Figure{}
}

// noLimit is what is no limit of memory on cgroup v1: the kernel writes the largest
// number of pages for none.
const noLimit = 1 << 60

// lines yields the words of a file's lines, two or more in each.
func lines(b []byte, yield func(key, value []byte)) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		if key, value, ok := bytes.Cut(line, []byte{' '}); ok {
			yield(key, value)
		}
	}
}

// children returns how many cgroups are right below, by the links of the directory.
func (g *group) children() int {
	var st unix.Stat_t
	if g.dir < 0 || unix.Fstat(g.dir, &st) != nil {
		return 0
	}
	return max(0, int(st.Nlink)-2)
}

// parse reads a number without sign.
func parse(b []byte) Figure {
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' || n > (math.MaxUint64-9)/10 {
			return Figure{}
		}
		n = 10*n + uint64(c-'0')
	}
	return Figure{Value: n, Known: len(b) > 0}
}

// pageSizes returns the sizes of huge pages as cgroups name them: "2MB", "1GB".
func pageSizes() []string {
	dirs, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	var sizes []string
	for _, dir := range dirs {
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err == nil {
			sizes = append(sizes, pageSize(kib))
		}
	}
	return sizes
}

func pageSize(kib uint64) string {
	const mib, gib = 1 << 10, 1 << 20
	switch {
	case kib >= gib:
		return strconv.FormatUint(kib/gib, 10) + "GB"
	case kib >= mib:
		return strconv.FormatUint(kib/mib, 10) + "MB"
	}
	return strconv.FormatUint(kib, 10) + "KB"
}

// processesBelow appends the processes of a cgroup and of those below it.
func processesBelow(pids []int, path string, buf *[]byte) []int {
	g := openGroup(path, buf)
	defer g.close()
	for line := range bytes.FieldsSeq(g.read("cgroup.procs")) {
		pids = append(pids, int(parse(line).Value))
	}
	if g.children() == 0 {
		return pids
	}
	entries, _ := os.ReadDir(path) // it has ended meanwhile: nothing is there
	for _, entry := range entries {
		if entry.IsDir() {
			pids = processesBelow(pids, filepath.Join(path, entry.Name()), buf)
		}
	}
	return pids
}
