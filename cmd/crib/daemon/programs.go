package daemon

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/crib-runtime/crib/cmd/crib/config"
)

// Programs returns the paths of what a daemon of this configuration starts besides
// the OCI runtime. Nothing need be there.
func Programs(cfg config.Config) []string {
	var paths []string
	for name, path := range map[string]string{"crib-shim": cfg.Engine.Shim, "crib-init": cfg.Engine.Init} {
		if found, err := helper(path, name); err == nil {
			paths = append(paths, found)
		}
	}
	slices.Sort(paths)
	return paths
}

// helper returns the path of a program that the configuration names, or of the
// one that was installed with this program: in ../libexec/crib, else beside it,
// where a build leaves it.
func helper(path, name string) (string, error) {
	if path != "" {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	installed := filepath.Join(filepath.Dir(dir), "libexec", "crib", name)
	if _, err := os.Stat(installed); err == nil {
		return installed, nil
	}
	return filepath.Join(dir, name), nil
}
