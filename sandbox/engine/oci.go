package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// version is the numbers of a version; what follows them does not count.
type version [3]int

// String implements fmt.Stringer, for the log.
func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// before says whether v is older than w.
func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// fastCrun is the first crun that starts containers several times faster than
// runc; older ones also refuse some hosts that runc works on.
var fastCrun = version{1, 27, 0}

var (
	versionPattern = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`)
	// specLine is in the output of `runtime --version`.
	specLine = regexp.MustCompile(`(?m)^spec:\s*(\S+)`)
)

// parseVersion finds the first version in text; zero if there is none.
func parseVersion(text string) (v version) {
	m := versionPattern.FindStringSubmatch(text)
	for i := range v {
		if len(m) > i+1 {
			v[i], _ = strconv.Atoi(m[i+1]) // digits or empty: the pattern sees to it
		}
	}
	return v
}

// ociRuntime is an OCI runtime that was found.
type ociRuntime struct {
	path    string
	version version
	spec    string // the newest spec that it announces; "" if it announces none
	rro     bool   // it announces recursive read-only mounts
	idMap   bool   // it announces mounts with mapped ids
}

// specVersion is the ociVersion to write: the newest that both sides know, in
// the runtime's own spelling. Some runtimes refuse a spec newer than they are.
func (r ociRuntime) specVersion() string {
	if r.spec == "" || parseVersion(specs.Version).before(parseVersion(r.spec)) {
		return specs.Version
	}
	return r.spec
}

// findRuntime returns the runtime that was asked for by name or path or, if
// want is empty, a crun that is fast, else runc, else any crun.
func findRuntime(ctx context.Context, want string) (ociRuntime, error) {
	if want != "" {
		r, err := probeRuntime(ctx, want)
		if err != nil {
			return r, fmt.Errorf("looking for engine.oci_runtime %q: %w", want, err)
		}
		return r, nil
	}
	crun, crunErr := probeRuntime(ctx, "crun")
	if crunErr == nil && !crun.version.before(fastCrun) {
		return crun, nil
	}
	if runc, err := probeRuntime(ctx, "runc"); err == nil {
		return runc, nil
	}
	if crunErr == nil {
		return crun, nil
	}
	return ociRuntime{}, fmt.Errorf("looking for an OCI runtime: neither crun nor runc can be run from PATH, "+
		"install one or set engine.oci_runtime: %w", errdefs.ErrNotFound)
}

// probeRuntime asks a runtime what it is.
func probeRuntime(ctx context.Context, name string) (ociRuntime, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return ociRuntime{}, fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return ociRuntime{}, err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return ociRuntime{}, fmt.Errorf("running %s --version: %w", path, err)
	}
	r := ociRuntime{path: path, version: parseVersion(string(out))}
	if m := specLine.FindSubmatch(out); m != nil {
		r.spec = string(m[1])
	}
	// Not every runtime has the command; the line above is what those say.
	if out, err := exec.CommandContext(ctx, path, "features").Output(); err == nil {
		var f struct {
			OCIVersionMax string   `json:"ociVersionMax"`
			MountOptions  []string `json:"mountOptions"`
			Linux         struct {
				MountExtensions struct {
					IDMap struct {
						Enabled bool `json:"enabled"`
					} `json:"idmap"`
				} `json:"mountExtensions"`
			} `json:"linux"`
		}
		if json.Unmarshal(out, &f) == nil && f.OCIVersionMax != "" {
			r.spec, r.rro = f.OCIVersionMax, slices.Contains(f.MountOptions, "rro")
			r.idMap = f.Linux.MountExtensions.IDMap.Enabled
		}
	}
	return r, nil
}

// Runtime is an OCI runtime of the host.
type Runtime struct {
	Path    string
	Version string
	Old     bool // a runc before 1.1, which lacks what we ask of it
}

// FindRuntime looks for the OCI runtime that [Open] would use with want as its
// Config.OCIRuntime. errdefs.ErrNotFound: there is none.
func FindRuntime(ctx context.Context, want string) (Runtime, error) {
	r, err := findRuntime(ctx, want)
	old := filepath.Base(r.path) == "runc" && r.version.before(version{1, 1, 0})
	return Runtime{Path: r.path, Version: r.version.String(), Old: old}, err
}
