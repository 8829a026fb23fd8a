// Package cgroup reads what a cgroup uses: processors, memory, swap, block devices,
// processes, huge pages and pressure, of cgroup v1 and v2 in the same terms.
//
// # Promises
//
//   - A file is read once for a [Usage], and nothing is written.
//   - What a kernel does not count is absent ([Figure]), never 0; a limit that there
//     is not is absent, too.
//   - A cgroup that is gone is errdefs.ErrNotFound.
//
// # Types
//
// A [Host] is the cgroups of one machine, by their paths below the root of a
// hierarchy; [Path] says which path a specification means.
//
// # Crash
//
// Nothing is kept.
//
// # Decisions
//
//  1. The working set is usage without inactive files: the kubelet's measure, by
//     which it ranks whom it evicts.
//  2. Of the hierarchies of cgroup v1 only the memory's must be there, and the
//     processes are counted there. Rejected: all or nothing, since kernels are built
//     without some.
//  3. Files are read, relative to the directory, into buffers that are used again.
//     Rejected: containerd's cgroups, which makes messages of many parts for each
//     reading.
package cgroup
