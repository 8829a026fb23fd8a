package usage

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/sandbox"
	"github.com/crib-runtime/crib/sandbox/cgroup"
)

// Detail is what only metrics tell: it is found process by process.
type Detail struct {
	Descriptors cgroup.Figure // that are open
	Sockets     cgroup.Figure // of these
	OpenFiles   cgroup.Figure // the soft limit of the first process; unknown if there is none
}

// Detail looks at the processes of a container. What ends meanwhile is not counted.
func (r *Round) Detail(pod *sandbox.Pod, id string, pid uint32) Detail {
	var d Detail
	for _, pid := range r.m.host.Processes(r.m.cfg.Path(pod, id)) {
		descriptors, sockets := descriptorsOf(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
		d.Descriptors, d.Sockets = d.Descriptors.Plus(descriptors), d.Sockets.Plus(sockets)
	}
	d.OpenFiles = openFilesOf(pid)
	return d
}

func descriptorsOf(dir string) (all, sockets cgroup.Figure) {
	f, err := os.Open(dir)
	if err != nil {
		return all, sockets
	}
	names, _ := f.Readdirnames(-1) // ends with the process
	_ = f.Close()
	target := make([]byte, len("socket:"))
	for _, name := range names {
		n, err := unix.Readlink(filepath.Join(dir, name), target)
		if err == nil && string(target[:n]) == "socket:" {
			sockets.Value++
		}
	}
	return cgroup.Figure{Value: uint64(len(names)), Known: true}, cgroup.Figure{Value: sockets.Value, Known: true}
}

// openFilesOf reads the line "Max open files  1024  4096  files" of a process.
func openFilesOf(pid uint32) cgroup.Figure {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "limits"))
	if err != nil {
		return cgroup.Figure{}
	}
	_, rest, _ := bytes.Cut(b, []byte("Max open files"))
	word, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte{' '})
	n, err := strconv.ParseUint(string(word), 10, 64)
	return cgroup.Figure{Value: n, Known: err == nil} // not a number: unlimited
}

// Filesystem is where writable layers are.
type Filesystem struct {
	Dir                string // a directory on it
	Device             string // as "/dev/vda"; "" if it has none
	Bytes              uint64
	Inodes, InodesFree uint64
}

// Filesystem looks at the filesystem of writable layers.
func (m *Meter) Filesystem() Filesystem {
	f := Filesystem{Dir: m.cfg.Layers.LayersDir()}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(f.Dir, &fs) != nil || unix.Stat(f.Dir, &st) != nil {
		return f
	}
	f.Bytes, f.Inodes, f.InodesFree = fs.Blocks*uint64(fs.Bsize), fs.Files, fs.Ffree
	f.Device = DeviceName(uint64(unix.Major(st.Dev)), uint64(unix.Minor(st.Dev)))
	return f
}

// DeviceName returns the name of a block device, as "/dev/vda", "" if it has none:
// some filesystems have devices of their own.
func DeviceName(major, minor uint64) string {
	link, err := os.Readlink("/sys/dev/block/" + strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10))
	if err != nil {
		return ""
	}
	return "/dev/" + filepath.Base(link)
}
