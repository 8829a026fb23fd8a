package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// registryAddr is in the lab's own network.
const registryAddr = "127.0.0.1:5000"

// registry is the script that serves the images, and what it started.
type registry struct{ cmd *exec.Cmd }

// startRegistry starts it and waits until it says that it is ready.
func startRegistry(ctx context.Context, o *options) (*registry, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(o.images, "serve.sh"))
	cmd.Env = append(os.Environ(), "OUT="+o.imagesOut(), "CRANE="+filepath.Join(o.tools, "crane"), "REGISTRY="+registryAddr)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &registry{cmd}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			return r, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("the registry of the test images does not come up"), r.stop())
}

// stop ends the script and its children by their process group.
func (r *registry) stop() error {
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	_ = r.cmd.Wait() // "terminated"
	return nil
}
