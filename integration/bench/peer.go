package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// told is the variable by which the program tells itself about containerd.
const told = "CRIB_BENCH_PEER"

// containerdMany is how many pods of containerd exist at once in the end.
const containerdMany = 100

// peer is a containerd that scripts started; without an endpoint there is none.
type peer struct {
	Endpoint string
	PID      int
	Scripts  string
	State    string // directory that all of its files are in
	Group    string // cgroup that counts CPU time, one of its own
}

// toldPeer returns what tell told, in the process that was started again.
func toldPeer() (p peer, ok bool) {
	text, ok := os.LookupEnv(told)
	return p, ok && json.Unmarshal([]byte(text), &p) == nil
}

// tell tells the processes that are started from here on.
func (p peer) tell() error {
	text, err := json.Marshal(p)
	return errors.Join(err, os.Setenv(told, string(text)))
}

// startPeer starts containerd if it can be, else says why it is left out.
func startPeer(ctx context.Context, scripts string) (peer, error) {
	missing, err := missingOf(ctx, scripts)
	if err != nil {
		return peer{}, err
	}
	if missing != "" {
		fmt.Println("containerd is not measured:", missing)
		return peer{}, nil
	}
	state, err := os.MkdirTemp("", "crib-bench")
	if err != nil {
		return peer{}, err
	}
	p := peer{
		Endpoint: "unix://" + filepath.Join(state, "containerd.sock"),
		Scripts:  scripts,
		State:    state,
		Group:    fmt.Sprintf("/sys/fs/cgroup/cpuacct/crib-bench-%d", os.Getpid()),
	}
	if out, err := p.script(ctx, "start.sh").CombinedOutput(); err != nil {
		return peer{}, errors.Join(fmt.Errorf("start containerd: %w\n%s", err, out), p.stop())
	}
	text, err := os.ReadFile(filepath.Join(state, "containerd.pid"))
	if err == nil {
		p.PID, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return peer{}, errors.Join(err, p.stop())
	}
	return p, nil
}

// missingOf says what is missing for containerd to run, as the scripts see it.
func missingOf(ctx context.Context, scripts string) (string, error) {
	if _, err := os.Stat(filepath.Join(scripts, "start.sh")); err != nil {
		return "there are no scripts in " + scripts, nil
	}
	const look = `. "$0/env.sh"
for p in containerd containerd-shim-runc-v2 crictl crane "$RUNC" "$CNIBIN"/{bridge,host-local,portmap,loopback}; do
	command -v "$p" >/dev/null || echo "$p"
done`
	out, err := exec.CommandContext(ctx, "bash", "-c", look, scripts).Output()
	if err != nil {
		return "", fmt.Errorf("look for containerd: %w", err)
	}
	if missing := strings.Fields(string(out)); len(missing) > 0 {
		return fmt.Sprintf("%s missing (%s/binaries.sh critools containerd cni runc crane builds them)", missing, scripts), nil
	}
	return "", nil
}

// runc returns the OCI runtime that containerd has; no path if there is no peer.
func (p peer) runc(ctx context.Context) (string, error) {
	if p.Endpoint == "" {
		return "", nil
	}
	out, err := exec.CommandContext(ctx, "bash", "-c", `. "$0/env.sh"; command -v "$RUNC"`, p.Scripts).Output()
	if err != nil {
		return "", fmt.Errorf("look for containerd's OCI runtime: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// script returns a script as a command, apart from the terminal's interrupts.
func (p peer) script(ctx context.Context, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.Scripts, name))
	cmd.Env = append(os.Environ(), "STATE="+p.State, "CPUACCT="+p.Group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// stop takes down what was started; a peer without an endpoint is none.
func (p peer) stop() error {
	if p.State == "" {
		return nil
	}
	var err error
	if out, failed := p.script(context.Background(), "stop.sh").CombinedOutput(); failed != nil {
		// Its last command complains of cgroups that are not its own.
		if _, left := os.Stat(filepath.Join(p.State, "containerd.pid")); left == nil {
			err = fmt.Errorf("stop containerd: %w\n%s", failed, out)
		}
	}
	return errors.Join(err, os.RemoveAll(p.State))
}

// target returns the peer as something to measure.
func (p peer) target(conn *grpc.ClientConn, crib *lab.Crib) *target {
	return &target{
		daemon:    daemon{pid: p.PID, shim: "containerd-shim-runc-v2", group: p.Group},
		name:      "containerd",
		client:    runtime.NewRuntimeServiceClient(conn),
		pod:       crib.Pod,
		container: crib.Container,
		many:      containerdMany,
	}
}

// importImage gives containerd the image that crib has, and waits until its CRI
// plugin has heard of it.
func (p peer) importImage(ctx context.Context, conn *grpc.ClientConn, crib *lab.Crib) error {
	archive := filepath.Join(p.State, "image.tar")
	if out, err := crib.Command(ctx, "images", "export", "--output", archive, lab.Image).CombinedOutput(); err != nil {
		return fmt.Errorf("crib images export: %w\n%s", err, out)
	}
	const load = `. "$0/env.sh"
in_lab ctr --address "$STATE/containerd.sock" --namespace k8s.io images import "$STATE/image.tar"`
	cmd := exec.CommandContext(ctx, "bash", "-c", load, p.Scripts)
	cmd.Env = append(os.Environ(), "STATE="+p.State)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr images import: %w\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for images := runtime.NewImageServiceClient(conn); ; {
		resp, err := images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: lab.Image}})
		if err != nil || resp.Image != nil {
			return err
		}
		if err := pause(ctx, look/10); err != nil {
			return err
		}
	}
}

func dial(endpoint string) (*grpc.ClientConn, error) {
	return grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
