package engine

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

// binEnv names the directory of the programs that TestMain has built.
const binEnv = "CRIB_TEST_ENGINE_BIN"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs before the tests enter their namespaces, where there
// is no network.
func run(m *testing.M) int {
	if args := os.Getenv(crashEnv); args != "" {
		if err := crashChild(strings.Split(args, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	flag.Parse()
	if testing.Short() || os.Geteuid() != 0 || os.Getenv(binEnv) != "" {
		return nstest.Main(m)
	}
	dir, err := os.MkdirTemp("", "crib-engine")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := buildPrograms(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = os.Setenv(binEnv, dir)
	return nstest.Main(m)
}

// buildPrograms builds the shim, the init, what containers run and the containerd
// of go.mod. The latter needs modules that we do not, so it gets a copy of go.mod.
func buildPrograms(dir string) error {
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	mod := "-modfile=" + filepath.Join(dir, "go.mod")
	for name, args := range map[string][]string{
		"crib-shim": {"../../cmd/crib-shim"},
		"crib-init": {"-ldflags=-s -w", "../../cmd/crib-init"},
		"payload":   {"-ldflags=-s -w", "./testdata/payload"},
		"containerd": {"-tags=no_btrfs,no_devmapper,no_zfs,no_tracing",
			"github.com/containerd/containerd/v2/cmd/containerd"},
	} {
		args = append([]string{"build", "-mod=mod", mod, "-o", filepath.Join(dir, name)}, args...)
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return nil
}
