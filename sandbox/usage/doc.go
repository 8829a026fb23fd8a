// Package usage reads what pods and containers use: processors, memory, swap, block
// devices, processes, huge pages, pressure, links and writable layers.
//
// # Promises
//
//   - No namespace is entered: links are read at the host's end, all by one dump.
//   - What a kernel does not count is absent ([cgroup.Figure]), never 0.
//   - What cannot be read of one container is missing from it and from nobody else.
//   - Nothing is measured without a question: there is no timer.
//
// # Types
//
// A [Meter] begins a [Round], one pass, for which [Round.Container] and [Round.Pod]
// return a [cgroup.Usage] with what belongs to it. The Meter remembers two samples of
// each container's and pod's time, for a rate.
//
// # Crash
//
// Nothing is kept but the samples: after a restart of the daemon a rate is told from
// the second reading on.
//
// # Decisions
//
//  1. The cgroups' files are read by us. Rejected: the engine's statistics, a call to
//     a shim for each container.
//  2. A pod is the parent of its containers' cgroups only if that has the pod's UID
//     in its name: people with crictl put several pods into one. Otherwise it is the
//     sum of its containers, without what cannot be added: pressure, peaks.
//  3. A writable layer is walked again only when its container has used time of
//     processors since: nobody else writes there. Rejected: quotas of projects, which
//     few root filesystems have; a walk every ten seconds.
package usage
