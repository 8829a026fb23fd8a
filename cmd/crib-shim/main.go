// Command crib-shim stands between the engine and the OCI runtime for the
// containers of one pod. It keeps the protocol and the name of
// io.containerd.runc.v2: containerd's own manager and task service, compiled in.
//
// The engine starts it by path. One process serves all containers that carry
// the same io.kubernetes.cri.sandbox-id annotation; it ends with the last one.
// It outlives the daemon: containers go on while there is none.
//
// # Decisions
//
//   - containerd's manager, not one of our own: exec, attach, checkpoint and
//     OOM events work from the first day. A leaner one costs 2 MiB less a pod
//     and comes later. What is added to this binary therefore lives in packages
//     that know nothing of that manager.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin" // the task service registers itself
	"github.com/containerd/containerd/v2/pkg/shim"
)

// runtimeName is what clients find in a container's record. cAdvisor and
// nerdctl know this one, so ours is not another.
const runtimeName = "io.containerd.runc.v2"

func main() {
	shim.RunShim(context.Background(), manager.NewShimManager(runtimeName))
}
