package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// crashEnv makes the test binary a daemon that starts an init and waits to be
// killed: its value is Root, State, Shim, Init, the pod, its cgroup and the OCI
// runtime.
const crashEnv = "CRIB_TEST_ENGINE_CRASH"

// crashChild is that daemon. It prints the init's pid.
func crashChild(args []string) error {
	if len(args) == 4 {
		return pullChild(args)
	}
	e, err := Open(context.Background(), Config{Root: args[0], State: args[1], Shim: args[2], Init: args[3], OCIRuntime: args[6],
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	pid, err := e.StartInit(context.Background(), Init{PodID: args[4], CgroupsPath: args[5]})
	if err != nil {
		return err
	}
	fmt.Println(pid)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// crashCommand is the command that runs crashChild for the lab.
func (l *lab) crashCommand() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashEnv+"="+strings.Join(
		[]string{l.cfg.Root, l.cfg.State, l.cfg.Shim, l.cfg.Init, l.pod, l.cg, l.cfg.OCIRuntime}, "|"))
	cmd.Stderr = l.log
	return cmd
}

func TestInitOutlivesAKilledDaemon(t *testing.T) {
	l := newLab(t)
	cmd := l.crashCommand()
	_, err := cmd.StdinPipe() // open as long as it lives
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("daemon: %v", err)
	}
	l.must(cmd.Process.Kill())
	_ = cmd.Wait() // killed, as it says

	pid, err := strconv.Atoi(strings.TrimSpace(line))
	l.must(err)
	e := l.open()
	if again := l.start(e, Init{}); again != pid {
		t.Errorf("pid %d before, %d after", pid, again)
	}
	l.stop(e)
}
