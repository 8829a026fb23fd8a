package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// fakeRuntime puts a program into dir that only tells its version.
func fakeRuntime(t *testing.T, dir, name, version, features string) {
	t.Helper()
	script := "#!/bin/sh\ncase $1 in\n--version) printf '" + version + "';;\nfeatures) "
	if features == "" {
		script += "exit 1"
	} else {
		script += "echo '" + features + "'"
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script+";;\nesac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestFastCrunIsPreferredThenRunc(t *testing.T) {
	const runc, oldCrun, newCrun = `runc version 1.1.5+ds1\nspec: 1.0.2-dev\n`, `crun version 1.8.1\nspec: 1.0.0\n`, `crun version 1.27.1\nspec: 1.0.0\n`
	for name, tc := range map[string]struct{ crun, runc, want string }{
		"both, new crun": {newCrun, runc, "crun"},
		"both, old crun": {oldCrun, runc, "runc"},
		"only runc":      {"", runc, "runc"},
		"only old crun":  {oldCrun, "", "crun"},
		"none":           {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if tc.crun != "" {
				fakeRuntime(t, dir, "crun", tc.crun, "")
			}
			if tc.runc != "" {
				fakeRuntime(t, dir, "runc", tc.runc, "")
			}
			r, err := findRuntime(t.Context(), "")
			if tc.want == "" {
				if !errdefs.IsNotFound(err) {
					t.Errorf("findRuntime() = %v, want not found", err)
				}
				return
			}
			if err != nil || filepath.Base(r.path) != tc.want {
				t.Errorf("findRuntime() = %+v, %v, want %s", r, err, tc.want)
			}
		})
	}
}

func TestSpecHasAVersionThatTheRuntimeAnnounces(t *testing.T) {
	for name, tc := range map[string]struct{ version, features, want string }{
		"by features":       {`runc version 1.1.5\nspec: 1.0.0\n`, `{"ociVersionMin":"1.0.0","ociVersionMax":"1.0.2-dev"}`, "1.0.2-dev"},
		"by version":        {`crun version 1.8.1\nspec: 1.0.0\n`, "", "1.0.0"},
		"newer than we are": {`runc version 9.0.0\nspec: 9.0.0\n`, `{"ociVersionMax":"9.0.0"}`, specs.Version},
		"silent":            {`other 1.0\n`, "", specs.Version},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fakeRuntime(t, dir, "rt", tc.version, tc.features)
			r, err := findRuntime(t.Context(), filepath.Join(dir, "rt"))
			if err != nil || r.specVersion() != tc.want {
				t.Errorf("specVersion() = %q, %v, want %q", r.specVersion(), err, tc.want)
			}
		})
	}
}
