// Package daemon puts crib together: it is the only place that names the
// implementations of what package sandbox needs.
//
// [Open] makes the parts, in memory, under the locks of root and state. [Daemon.Serve]
// listens, recovers, tells systemd, and serves until its context ends; then it
// drains the calls that run and leaves the pods alone. [Daemon.Reset] gives the
// host back instead.
//
// # Start, in this order
//
//	modules        of the kernel that are not loaded
//	pod CIDRs      of the configuration, else as the kubelet last gave them
//	sockets        Version and Status of CRI, and containerd's API where it is served
//	               there, answer at once; all else is Unavailable
//	recovery       package sandbox
//	ready          sd_notify, all calls answer
//	loops          owed teardowns, sweeps, conflist watch, syncing of records
//
// # Watchdog
//
// Operations whose stages take longer than kernel, plugins or engine ever should are
// named in Status, in the log once, and on /metrics. Calls that may hang in the kernel
// have a bounded number of threads.
//
// # Crashes
//
// Locks go with the process; a socket at which nobody answers is replaced.
//
// # Decisions
//
//  1. The state directory has a lock of its own. Rejected: the root's alone, with
//     which a second daemon or a reset with another --root, and the state of the
//     first by default, took sockets and pods from a daemon that ran.
//
//  2. A stuck kernel does not make the runtime not ready. Context: pods that run are
//     not helped by being evicted, and eviction needs the kernel, too. Consequence:
//     the reason is in Status, with the condition true.
//
//  3. Modules are loaded here, once, at the start, by modprobe. Context: the kernel
//     loads most of them when they are used, where it is allowed to, and
//     br_netfilter never. Rejected: refusing a kernel whose modules are not found,
//     which may have them built in; what does not work then says so and names them.
//
//  3. CRI and containerd's API on one socket are one gRPC server, on which the
//     engine's services are registered once more; the engine's own server has to run
//     before, for our own client. containerd's API answers as soon as it is there,
//     also while CRI waits for recovery: the kubelet's cAdvisor asks once, and its own
//     recovery is done. Its calls end when the daemon is told to, as containerd's do,
//     and CRI's are finished. Rejected: one server for all, on which CRI would have to
//     be before the engine is open; passing calls on, another copy of each byte.
//
//  4. A reset leaves the engine's state while other clients have containers in it:
//     their roots are mounted there. Rejected: ending what others have started.
package daemon
