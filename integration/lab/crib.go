package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options say how to start crib. Bin is required.
type Options struct {
	Bin    string // directory of crib, crib-shim and crib-init
	Dir    string // of root, configuration and log; a new one if empty
	Config string // TOML after "version = 1"
	Env    []string
	Socket string // of CRI, as Config has it; [Socket] if empty
}

// Crib is a daemon of the lab. Its methods are for one goroutine.
type Crib struct {
	runtime.RuntimeServiceClient
	Options
	cmd  *exec.Cmd
	log  *os.File
	conn *grpc.ClientConn
}

// State is where crib keeps what does not outlive a reboot; in the lab /run is private.
const State = "/run/crib"

// Socket is that of CRI by default.
const Socket = State + "/crib.sock"

// redial is how often a connection is tried while the daemon starts.
var redial = backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.5, MaxDelay: 20 * time.Millisecond}

// startTime bounds the wait for the daemon to be ready.
const startTime = 30 * time.Second

// Start starts crib and waits until it answers calls.
func Start(ctx context.Context, o Options) (*Crib, error) {
	c := &Crib{Options: o}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	var err error
	c.conn, err = grpc.NewClient("unix://"+cmp.Or(o.Socket, Socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	c.RuntimeServiceClient = runtime.NewRuntimeServiceClient(c.conn)
	return c, c.Restart(ctx)
}

func (c *Crib) prepare() error {
	var err error
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "crib-lab"); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.config(), []byte("version = 1\n"+c.Config), 0o600); err != nil {
		return err
	}
	c.log, err = os.OpenFile(c.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return err
}

func (c *Crib) config() string { return filepath.Join(c.Dir, "config.toml") }

// LogFile is where the daemon's log goes.
func (c *Crib) LogFile() string { return filepath.Join(c.Dir, "log") }

// Command returns a command of crib with this daemon's configuration.
func (c *Crib) Command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(args, "--config", c.config(), "--root", filepath.Join(c.Dir, "root"), "--state", State)
	return exec.CommandContext(ctx, filepath.Join(c.Bin, "crib"), args...)
}

// Restart starts the daemon, which must have ended, and waits until it answers.
func (c *Crib) Restart(ctx context.Context) error {
	c.cmd = c.Command(context.WithoutCancel(ctx), "serve")
	c.cmd.Stderr = c.log
	c.cmd.Env = append(os.Environ(), c.Env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for us, who stop it
	if err := c.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(redial.BaseDelay)
	defer tick.Stop()
	for ; ; <-tick.C {
		_, err := c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(c.LogFile())
			return fmt.Errorf("crib does not answer: %w\n%s", err, text)
		}
	}
}

// PID returns the daemon's process id.
func (c *Crib) PID() int { return c.cmd.Process.Pid }

// Kill ends the daemon as a crash does; its pods stay.
func (c *Crib) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = c.cmd.Wait() // "signal: killed"
	return nil
}

// Terminate ends the daemon in order; its pods stay.
func (c *Crib) Terminate() error {
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return c.cmd.Wait()
}

// Stop removes all pods, ends the daemon and has crib give the host back. The
// lab's directory goes, too.
func (c *Crib) Stop(ctx context.Context) error {
	errs := []error{c.RemoveAll(ctx), c.Terminate()}
	if out, err := c.Command(ctx, "reset").CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("crib reset: %w\n%s", err, out))
	}
	errs = append(errs, c.conn.Close(), c.log.Close(), removeCgroups())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(c.Dir)
}
