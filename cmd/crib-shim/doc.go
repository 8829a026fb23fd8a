// Command crib-shim stands between the engine and the OCI runtime for the
// containers of one pod. It keeps the protocol and the name of
// io.containerd.runc.v2: containerd's own manager and task service, compiled in.
//
// The engine starts it by path, one process for all containers of a pod, and ends
// it with the pod. An external containerd starts it for the first container that
// carries an io.kubernetes.cri.sandbox-id annotation, and it ends with the last one.
// It outlives the daemon: containers go on while there is none.
//
// A container whose spec has the annotation io.crib.dir has its output read here,
// by sandbox/logpump, and its end written down: into that directory, which the
// daemon made. Who waits for such a container is answered when its output is in
// the log, or a second after its end.
//
// # Decisions
//
//   - containerd's manager, not one of our own: exec, attach, checkpoint and
//     OOM events work from the first day. A leaner one costs 2 MiB less a pod
//     and comes later. What is added to this binary therefore lives in packages
//     that know nothing of that manager.
//   - The first process is signalled here, by a pidfd, where that is all that was
//     asked for; and after a container that was deleted in good order nothing is
//     cleaned up. Each saves programs of 4 ms.
//   - The task service is wrapped, not changed: the wrapper gives it FIFOs of the
//     pump in place of the ones of a client. What to do with a container is in its
//     spec, so that the engine's API stays containerd's.
package main
