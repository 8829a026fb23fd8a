// Command bench measures what a kubelet waits for: the calls that make, stop and
// remove pods and containers, and ExecSync, over gRPC, from a process of its own. It
// needs root and, as the image of containers, a static busybox.
//
// Beside crib it measures containerd when there are scripts that build and start
// it (--peers) and what they build is built. Both get the same pods, as a kubelet
// sends them: containers in PID namespaces of their own, no host ports, a log, and
// no seccomp profile unless it is said. Both run the same image by the same OCI
// runtime. Neither has anything in store: crib has no pool, containerd neither.
//
// # What is measured
//
//	one, ten     in turns of 20 pods, first crib, then containerd, and again: run
//	             all, stop all, remove all, by one client or by ten at once. Before
//	             each turn the host rests, since the kernel frees namespaces later
//	containers   in turns of 10 pods with one container: run all, create all, start
//	             all, exec true in all, stop all without grace, remove all; by one
//	             client, again with RuntimeDefault seccomp (the start is told), and by
//	             ten. pod_and_container is run, create and start of a pod together
//	cpu          by 20 containers one after another, in pods that are there: CPU time
//	             of daemon, shims, OCI runtime and container, by cgroups of version 1
//	many         1000 pods one after another, crib only: the rate, and the first 50
//	             against the last 50
//	memory       around the 1000 pods, and around 100 of containerd, and around 50
//	             with a container of each: PSS of the
//	             daemon, its shims and all processes below them, and the kernel's
//	             memory (Slab, PageTables, KernelStack, Percpu), as difference by pod
//
// The output is a table and, with BENCH_JSON=FILE or --json, one flat JSON object.
// Nothing passes or fails. Machines differ and are noisy: quote ratios of one run.
//
// crib runs in the namespaces of integration/lab, containerd in those of its
// scripts, both on /tmp. The end of the program, an interrupt at the terminal
// included, takes both down.
//
// # Decisions
//
//  1. Interleaved turns, not one runtime after the other: what else happens on the
//     machine happens to both.
//  2. A percentile is the nearest rank, a value that was measured. With 100 samples
//     p99 is the second worst: read it as such.
//  3. Ten clients make the same call at once, and wait for each other between two
//     calls. Rejected: ten lives side by side, in which a runtime whose pods come up
//     quickly has ten starts at once and a slow one two or three.
//  4. crib starts a pod's shim with its first container, containerd with the pod: what
//     a kubelet waits for in both is pod_and_container.
//  5. The kernel's memory is counted for the whole machine; the rest of the machine
//     adds noise to it, less with more pods.
package main
