package cni_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/network"
	"github.com/crib-runtime/crib/network/cni"
)

// killedEnv has what a daemon that will be killed is to attach, as JSON.
const killedEnv = "CRIB_TEST_CNI_KILLED"

// killed is that daemon's task.
type killed struct {
	Config  cni.Config
	Pod     network.Pod
	Planned []network.Attachment
}

// attachUntilKilled is the other process of TestDetachWaitsForAnOrphanedAdd.
func attachUntilKilled(t *testing.T, task string) {
	var k killed
	if err := json.Unmarshal([]byte(task), &k); err != nil {
		t.Fatal(err)
	}
	networks, err := cni.Open(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = networks.Attach(t.Context(), k.Pod, k.Planned, keep)
	panic(err) // not killed
}

// fifo makes a pipe with a name, on which nothing waits for ever.
func (n *node) fifo(name string) *os.File {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), name)
	n.must(unix.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	n.must(err)
	n.must(f.SetDeadline(time.Now().Add(time.Minute)))
	n.t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestDetachWaitsForAnOrphanedAdd(t *testing.T) {
	if task := os.Getenv(killedEnv); task != "" {
		attachUntilKilled(t, task)
	}
	n := newNode(t)
	began, end := n.fifo("began"), n.fifo("end")
	n.script("slow", "[ $CNI_COMMAND != ADD ] || { echo >"+began.Name()+"; read line <"+end.Name()+"; echo ended >>$LOG; }")
	n.write("10-x.conflist", spy("x", "slow"))
	var cfg cni.Config
	networks := n.open(func(c *cni.Config) { cfg = *c })
	cfg.Log = nil
	pod := n.pod("a")
	planned, err := networks.Plan(pod, 0)
	n.must(err)
	task, err := json.Marshal(killed{Config: cfg, Pod: pod, Planned: planned})
	n.must(err)
	daemon := exec.Command("/proc/self/exe", "-test.run=^TestDetachWaitsForAnOrphanedAdd$")
	daemon.Env = append(os.Environ(), killedEnv+"="+string(task))
	daemon.Stderr = os.Stderr
	n.must(daemon.Start())
	_, err = began.Read(make([]byte, 1))
	n.must(err)
	n.must(daemon.Process.Kill())
	_ = daemon.Wait() // says that it was killed
	detached := make(chan error)
	go func() { detached <- networks.Detach(t.Context(), pod, planned) }()
	_, err = end.WriteString("\n")
	n.must(err)
	n.must(<-detached)
	if got := n.calls(); !slices.Equal(got, []string{"slow ADD eth0", "ended", "slow DEL eth0"}) {
		t.Errorf("calls: %v", got)
	}
}
