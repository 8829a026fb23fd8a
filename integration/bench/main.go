package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/crib-runtime/crib/integration/lab"
)

// config gives crib's network a range for 1000 pods, of the size that containerd's has.
const config = `
[log]
level = "warn"
[network]
primary = "builtin"
cidrs = ["10.85.0.0/16"]
[network.cni]
conf_dir = "/run/no-conflists"
`

// options are the program's flags.
type options struct {
	bin   string
	peers string
	json  string
	turns int
	many  int

	containers int
	weighed    int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "build", "directory of the built programs")
	flag.StringVar(&o.peers, "peers", "../shared/peers", "directory of scripts that build and start containerd")
	flag.StringVar(&o.json, "json", os.Getenv("BENCH_JSON"), "file for one flat JSON object, by default that of BENCH_JSON")
	flag.IntVar(&o.turns, "turns", 5, "turns of 20 pods for each runtime, one and ten at a time; 0 leaves them out")
	flag.IntVar(&o.containers, "containers", 5, "turns of 10 pods with a container, in each of three ways; 0 leaves all of containers out")
	flag.IntVar(&o.weighed, "weighed", 50, "pods with a container that are weighed; 0 leaves that out")
	flag.IntVar(&o.many, "many", 1000, "pods of crib that exist at once in the end; 1018 is what a bridge takes; 0 leaves them out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	status, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		status = 1
	}
	os.Exit(status)
}

// run is called twice: first it starts containerd and the program again in
// namespaces of their own, then, inside, it measures.
func run(ctx context.Context, o options) (status int, err error) {
	peer, told := toldPeer()
	if !told {
		if peer, err = startPeer(ctx, o.peers); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, peer.stop()) }()
		if err := peer.tell(); err != nil {
			return 1, err
		}
	}
	if status, done := lab.Private(); done {
		return status, nil
	}
	return 0, bench(ctx, o, peer)
}

// bench starts crib, measures, reports, and stops crib whatever happened.
func bench(ctx context.Context, o options, peer peer) (err error) {
	runc, err := peer.runc(ctx)
	if err != nil {
		return err
	}
	crib, err := lab.Start(ctx, lab.Options{Bin: o.bin, Config: config + fmt.Sprintf("[engine]\noci_runtime = %q\n", runc)})
	if err != nil {
		return err
	}
	ours := &target{
		daemon: daemon{pid: crib.PID(), shim: "crib-shim"},
		name:   "crib", client: crib.RuntimeServiceClient, pod: crib.Pod, container: crib.Container, many: o.many,
	}
	defer func() {
		err = errors.Join(err, crib.Stop(context.WithoutCancel(ctx)), endCount(ours.group))
	}()
	if ours.group, err = countCPU(ours.pid); err != nil {
		return err
	}
	if err := crib.ImportImage(ctx); err != nil {
		return err
	}
	targets := []*target{ours}
	if peer.Endpoint != "" {
		conn, err := dial(peer.Endpoint)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		if err := peer.importImage(ctx, conn, crib); err != nil {
			return err
		}
		targets = append(targets, peer.target(conn, crib))
	}
	r := report{}
	if err := measure(ctx, r, o, targets); err != nil {
		return errors.Join(err, removeAll(ctx, targets))
	}
	r.ratios()
	r.print(os.Stdout, targets)
	return r.save(o.json)
}

// measure measures all that the options ask for.
func measure(ctx context.Context, r report, o options, targets []*target) error {
	if o.turns > 0 {
		if err := turns(ctx, r, targets, o.turns); err != nil {
			return err
		}
	}
	if o.containers > 0 {
		if err := containers(ctx, r, o, targets); err != nil {
			return err
		}
	}
	if o.many > 0 {
		return crowds(ctx, r, targets)
	}
	return nil
}
