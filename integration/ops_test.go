package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hangingPlugin is a CNI plugin whose DEL waits, while there is a FIFO, until
// somebody opens it. It makes nothing.
const hangingPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD) echo "{\"cniVersion\": \"1.0.0\", \"interfaces\": [{\"name\": \"eth0\", \"sandbox\": \"$CNI_NETNS\"}], \"ips\": [{\"address\": \"10.99.0.2/24\", \"interface\": 0}]}" ;;
DEL) [ ! -p FIFO ] || cat FIFO ;;
esac
`

// hanging writes a network of the plugin in a directory and returns a configuration
// with it, and a function that lets what hangs go on.
func hanging(t *testing.T, dir string) (config string, release func()) {
	t.Helper()
	fifo := filepath.Join(dir, "fifo")
	for name, text := range map[string]string{
		"bin/hang":               strings.ReplaceAll(hangingPlugin, "FIFO", fifo),
		"net.d/10-hang.conflist": `{"cniVersion": "1.0.0", "name": "hang", "plugins": [{"type": "hang"}]}`,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	config = fmt.Sprintf("[network]\nprimary = \"hang\"\n[network.cni]\nconf_dir = %q\nbin_dirs = [%q]\n",
		filepath.Join(dir, "net.d"), filepath.Join(dir, "bin"))
	return config, func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			err = errors.Join(os.Remove(fifo), f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// opsJSON is what `crib ops -o json` shows.
type opsJSON struct {
	InFlight []struct {
		Verb, Pod, ID, WaitsFor string
		At                      []struct{ Name string }
	}
	Owed []struct {
		Object, Name, Error string
		Attempts            int
	}
}

func (c *crib) ops() (all opsJSON) {
	c.t.Helper()
	args := c.Command(c.t.Context(), "ops", "-o", "json").Args
	if err := json.Unmarshal([]byte(c.host(args[0], args[1:]...)), &all); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// TestACallThatHangsSaysAtWhichStageAndWhoWaitsForIt: before their deadlines both
// are told, and the daemon shows it to people.
func TestACallThatHangsSaysAtWhichStageAndWhoWaitsForIt(t *testing.T) {
	config, release := hanging(t, t.TempDir())
	c := start(t, config)
	id, _ := c.pod(c.Pod("a"))

	within := func(d time.Duration, do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return do(ctx)
	}
	stop := func(ctx context.Context) error {
		_, err := c.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: id})
		return err
	}
	err := within(4*time.Second, stop)
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "StopPodSandbox of default/a (") ||
		!strings.Contains(err.Error(), "which is at: detach network") {
		t.Errorf("the call that hangs is answered with %v", err)
	}
	err = within(4*time.Second, func(ctx context.Context) error {
		_, err := c.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "waited ") || !strings.Contains(err.Error(), "for StopPodSandbox of default/a (") ||
		!strings.Contains(err.Error(), "which is at: detach network") {
		t.Errorf("the call that waits is answered with %v", err)
	}
	all := c.ops()
	if len(all.InFlight) != 1 || all.InFlight[0].Verb != "StopPodSandbox" || all.InFlight[0].ID != id || all.InFlight[0].At[0].Name != "detach network" {
		t.Errorf("crib ops shows %+v", all)
	}
	if table, err := c.Command(t.Context(), "ops").CombinedOutput(); err != nil || !strings.Contains(string(table), "detach network (") {
		t.Errorf("%v: %s", err, table)
	}
	release()
	if err := within(20*time.Second, stop); err != nil {
		t.Error(err)
	}
	if all := c.ops(); len(all.InFlight)+len(all.Owed) != 0 {
		t.Errorf("afterwards: %+v", all)
	}
}

// TestWhatTeardownOwesIsShown has a plugin that is gone when it is to take down.
func TestWhatTeardownOwesIsShown(t *testing.T) {
	dir := t.TempDir()
	config, _ := hanging(t, dir)
	c := start(t, config)
	id, _ := c.pod(c.Pod("a"))
	bin := filepath.Join(dir, "bin", "hang")
	if err := os.Rename(bin, bin+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StopPodSandbox(t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	all := c.ops()
	if len(all.Owed) != 1 || all.Owed[0].Object != "pod" || all.Owed[0].Name != "default/a" || all.Owed[0].Attempts < 1 ||
		!strings.Contains(all.Owed[0].Error, "detach network") {
		t.Errorf("crib ops shows %+v", all)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "fifo")), os.Rename(bin+".away", bin)); err != nil {
		t.Fatal(err)
	}
	if !c.eventually(func() bool { return len(c.ops().Owed) == 0 }) {
		t.Errorf("it is still owed: %+v", c.ops())
	}
}
