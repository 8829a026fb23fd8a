package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

const (
	// drain is how long output is read after the plugin itself has ended, since
	// a process that it left behind may hold its pipes for ever.
	drain = 2 * time.Second
	// busyPause is between attempts to run a binary that is just being installed.
	busyPause = 200 * time.Millisecond
)

// runner runs plugins for libcni, which calls it from several goroutines.
type runner struct {
	version.PluginDecoder
	log     *slog.Logger
	inherit []*os.File // by each plugin; not closed here
}

// FindInPath returns the path of a plugin's binary. One that is missing is of
// class ErrUnavailable, not ErrNotFound: what it has to undo is still there.
func (r *runner) FindInPath(plugin string, dirs []string) (string, error) {
	path, err := invoke.FindInPath(plugin, dirs)
	if err != nil {
		return "", fmt.Errorf("find plugin %s: %w (install it in %s): %w",
			plugin, err, strings.Join(dirs, " or "), errdefs.ErrUnavailable)
	}
	return path, nil
}

// ExecPlugin runs a plugin in a process group of its own and returns what it
// wrote. When ctx ends the whole group is killed. It waits and retries while the
// binary is open for writing.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for {
		out, err := r.run(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
}

func (r *runner) run(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = environ
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.ExtraFiles = r.inherit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = drain
	err := cmd.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s was killed with its children before it had ended "+
			"(see its own log; network.cni.timeout is the limit): %w", filepath.Base(path), ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		r.log.Warn("CNI plugin left a process that holds its output", "plugin", path)
	case err != nil:
		return nil, pluginError(err, stdout.Bytes(), stderr.String())
	}
	if stderr.Len() > 0 {
		r.log.Debug("CNI plugin wrote to standard error", "plugin", path, "text", stderr.String())
	}
	return stdout.Bytes(), nil
}

// pluginError returns what a plugin says of its failure: the error object of the
// CNI specification on standard output, else standard error, else the exit status.
func pluginError(err error, stdout []byte, stderr string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	var said types.Error
	if json.Unmarshal(stdout, &said) == nil && said.Msg != "" {
		return &said
	}
	text := strings.TrimSpace(stderr)
	if text == "" {
		text = strings.TrimSpace(string(stdout))
	}
	if text == "" {
		text = "no message"
	}
	return fmt.Errorf("%s: %w", text, err)
}
