package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// loadTime bounds modprobe, which waits for whoever loads the same module.
const loadTime = 30 * time.Second

// loadModules loads those of the kernel's modules that are not loaded. The error
// says which are neither built in nor to be found. It is a hint for when something
// does not work, and no reason to complain: a kernel that has a part built in need
// not say so anywhere.
func loadModules(ctx context.Context, names []string) error {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := os.Stat(filepath.Join("/sys/module", name))
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	// With --all it goes on after a module that is not there, and names it.
	out, err := exec.CommandContext(ctx, "modprobe", append([]string{"--all"}, missing...)...).CombinedOutput()
	if err == nil {
		return nil
	}
	said := strings.Join(strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), "; ")
	return fmt.Errorf("loading kernel modules %s (install the package that has this kernel's modules, "+
		"or boot a kernel that has them built in): %w: %s", strings.Join(missing, " "), err, said)
}
