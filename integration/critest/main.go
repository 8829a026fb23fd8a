package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/integration/lab"
)

// options are the flags.
type options struct {
	bin    string
	tools  string
	images string
	known  string
	focus  string
	out    string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "build", "directory of the built programs")
	flag.StringVar(&o.tools, "tools", "build/tools", "directory of critest and crane")
	flag.StringVar(&o.images, "images", "../shared/testimages", "directory of build.sh and serve.sh, which make and serve the images")
	flag.StringVar(&o.known, "known", "integration/critest/known.tsv", "list of the specs that do not pass yet")
	flag.StringVar(&o.focus, "focus", "", "run only the specs that match this regular expression")
	flag.StringVar(&o.out, "out", "build/critest", "directory for images, report and logs")
	flag.Parse()
	os.Exit(run(o))
}

func run(o options) int {
	if err := o.prepare(); err != nil {
		return fail(err)
	}
	status, done := lab.Private()
	if done {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	specs, err := o.suite(ctx)
	if err != nil {
		return fail(err)
	}
	if err := judge(os.Stdout, specs, o.known, o.focus != ""); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "critest:", err)
	return 1
}

// prepare makes the paths absolute and builds the images, which needs the
// network that the lab does not have.
func (o *options) prepare() error {
	for _, path := range []*string{&o.bin, &o.tools, &o.images, &o.known, &o.out} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	if err := os.MkdirAll(o.imagesOut(), 0o755); err != nil {
		return err
	}
	done := filepath.Join(o.imagesOut(), "built")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	cmd := exec.Command(filepath.Join(o.images, "build.sh"))
	cmd.Env = append(os.Environ(), "OUT="+o.imagesOut())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the images: %w\n%s", err, out)
	}
	return os.WriteFile(done, nil, 0o600)
}

func (o *options) imagesOut() string { return filepath.Join(o.out, "images") }

// suite starts registry and crib, runs the suite and returns its specs.
func (o *options) suite(ctx context.Context) (specs []spec, err error) {
	registry, err := startRegistry(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, registry.stop()) }()
	certs, err := mirrorAll(o.out)
	if err != nil {
		return nil, err
	}
	crib, err := lab.Start(ctx, lab.Options{Bin: o.bin, Config: fmt.Sprintf(config, certs)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if b, readErr := os.ReadFile(crib.LogFile()); readErr == nil {
			_ = os.WriteFile(filepath.Join(o.out, "crib.log"), b, 0o600)
		}
		err = errors.Join(err, crib.Stop(context.WithoutCancel(ctx)))
	}()
	return o.critest(ctx)
}

// config is crib's for the suite.
const config = `
[log]
level = "debug"
[network]
primary = "builtin"
cidrs = ["10.86.0.0/16"]
[network.cni]
conf_dir = "/run/no-conflists"
[images]
certs_dirs = [%q]
`

// mirrorAll writes a certs.d in which the local registry is every registry.
func mirrorAll(out string) (dir string, err error) {
	dir = filepath.Join(out, "certs.d")
	if err := os.MkdirAll(filepath.Join(dir, "_default"), 0o755); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "_default", "hosts.toml"), []byte(`server = "http://`+registryAddr+`"`+"\n"), 0o600)
}

// critest runs the suite. That specs fail is no error here: the report tells.
func (o *options) critest(ctx context.Context) ([]spec, error) {
	tmp, err := os.MkdirTemp(o.out, "tmp")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	report := filepath.Join(o.out, "report.json")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.out, "critest.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, filepath.Join(o.tools, "critest"),
		"-runtime-endpoint", "unix://"+lab.Socket, "-ginkgo.seed=1", "-ginkgo.no-color",
		"-ginkgo.focus="+o.focus, "-ginkgo.json-report="+report)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "PATH="+o.tools+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	runErr := cmd.Run()
	specs, err := readReport(report)
	if err != nil {
		return nil, errors.Join(err, runErr, fmt.Errorf("see %s", log.Name()))
	}
	return specs, nil
}
