package cgroup

import (
	"path/filepath"
	"strings"
)

// Root is where cgroups are mounted.
const Root = "/sys/fs/cgroup"

// Path is where the cgroup of an OCI spec's cgroupsPath is below the root of a
// hierarchy: a path, or with systemd slice:prefix:name.
func Path(specPath string, systemd bool) string {
	parts := strings.Split(specPath, ":")
	if !systemd || len(parts) != 3 {
		return filepath.Join("/", specPath)
	}
	// systemd puts a-b.slice into a.slice.
	dir, name := "/", ""
	if parts[0] != "-.slice" {
		for part := range strings.SplitSeq(strings.TrimSuffix(parts[0], ".slice"), "-") {
			name += part
			dir = filepath.Join(dir, name+".slice")
			name += "-"
		}
	}
	return filepath.Join(dir, parts[1]+"-"+parts[2]+".scope")
}
