// Command demo shows crib at work: it starts a built crib in namespaces of its
// own, runs pods as a kubelet would, pings them, runs a container in one and reaches
// it through a host port, and leaves nothing behind. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crib-runtime/crib/integration/lab"
)

// config gives the demo's network its ranges; a kubelet would hand them over.
const config = `
[log]
level = "warn"
[network]
primary = "builtin"
cidrs = ["10.85.0.0/24", "fd85::/64"]
[network.cni]
conf_dir = "/run/no-conflists"
`

// hostPort leads to port 80 of the pod "web".
const hostPort = 8080

func main() {
	bin := flag.String("bin", "build", "directory of the built programs")
	flag.Parse()
	status, done := lab.Private()
	if !done {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
		if err := demo(ctx, *bin); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			status = 1
		}
		stop()
	}
	os.Exit(status)
}

// demo starts crib, shows it and stops it, whatever happened in between.
func demo(ctx context.Context, bin string) (err error) {
	say("starting crib on %s, in namespaces of its own", lab.Socket)
	start := time.Now()
	crib, err := lab.Start(ctx, lab.Options{Bin: bin, Config: config})
	if err != nil {
		return err
	}
	say("  up after %s, PID %d, with its engine inside", millis(time.Since(start)), crib.PID())
	defer func() {
		say("\nstopping the pods and crib, giving the host back")
		err = errors.Join(err, crib.Stop(context.WithoutCancel(ctx)))
		if err == nil {
			say("done; nothing is left")
		}
	}()
	pods, err := run(ctx, crib)
	if err != nil {
		return err
	}
	if err := ping(pods); err != nil {
		return err
	}
	return serve(ctx, crib, pods[0])
}

// pod is one that runs.
type pod struct {
	cfg  *runtime.PodSandboxConfig
	name string
	id   string
	ips  []netip.Addr
}

// run makes the demo's pods: two as any, and one whose containers would share a
// PID namespace, which takes a process.
func run(ctx context.Context, crib *lab.Crib) ([]pod, error) {
	web := crib.Pod("web")
	web.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: hostPort}}
	shared := crib.Pod("shared-pid")
	shared.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD

	say("\n%-12s %-28s %s", "POD", "IPS", "RunPodSandbox")
	var pods []pod
	for _, cfg := range []*runtime.PodSandboxConfig{web, crib.Pod("db"), shared} {
		start := time.Now()
		id, err := crib.Run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		took := time.Since(start)
		ips, err := crib.IPs(ctx, id)
		if err != nil {
			return nil, err
		}
		note := ""
		if cfg == shared {
			note = "  (starts an init by the OCI runtime)"
		}
		say("%-12s %-28s %s%s", cfg.Metadata.Name, fmt.Sprint(ips), millis(took), note)
		pods = append(pods, pod{cfg, cfg.Metadata.Name, id, ips})
	}
	return pods, nil
}

// ping has the host and the second pod ping the first one, in both families.
func ping(pods []pod) error {
	say("")
	web, db := pods[0], pods[1]
	for _, ip := range web.ips {
		for from, ns := range map[string]string{"the host": lab.Host, "pod " + db.name: lab.Netns(db.id)} {
			took, err := lab.Ping(ns, ip)
			if err != nil {
				return fmt.Errorf("ping from %s to %s: %w", from, ip, err)
			}
			say("ping from %-8s to pod %s, %-11s %s", from, web.name, ip, millis(took))
		}
	}
	return nil
}

// serve runs a web server in a container of an image that is made on the spot, and
// reaches it through the pod's host port.
func serve(ctx context.Context, crib *lab.Crib, web pod) error {
	say("\nmaking an image of this machine's busybox: %s", lab.Image)
	if err := crib.ImportImage(ctx); err != nil {
		return err
	}
	cfg := crib.Container("server", "sh", "-c",
		"mkdir /www; echo hello from a container in pod $HOSTNAME >/www/index.html; echo serving; exec httpd -f -p 80 -h /www")
	start := time.Now()
	id, err := crib.Launch(ctx, web.id, web.cfg, cfg)
	if err != nil {
		return err
	}
	say("container %s created and started in %s", cfg.Metadata.Name, millis(time.Since(start)))

	url := fmt.Sprintf("http://127.0.0.1:%d/", hostPort)
	answer, err := get(ctx, url)
	if err != nil {
		return err
	}
	say("%s answers: %s", url, answer)
	running, err := crib.Exec(ctx, id, "ps", "-o", "pid,args")
	if err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(crib.LogDir(web.cfg), cfg.LogPath))
	if err != nil {
		return err
	}
	say("exec ps: %s\nits log: %s", strings.Join(strings.Fields(running), " "), strings.TrimSpace(string(log)))
	return nil
}

// get asks until the server in the container is up.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			b, err := io.ReadAll(resp.Body)
			return strings.TrimSpace(string(b)), errors.Join(err, resp.Body.Close())
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
