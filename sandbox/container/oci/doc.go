// Package oci writes the OCI runtime specification of a container from its
// record, its pod's and its image's configuration.
//
// # Promises
//
//   - The same input gives the same specification. Nothing is remembered between
//     calls, and calls may run at the same time.
//   - What is asked and cannot be given is an error, never left out in silence.
//     Errors of class InvalidArgument are about the request, FailedPrecondition
//     about this host; the text names the field.
//   - What an image holds is not trusted: its files are opened so that no link
//     leads out of the root, and only if they are regular and small.
//   - A request that is wrong in itself is refused before anything is made.
//
// # What it touches
//
// It reads passwd and group below [Input.Root], device nodes, CDI specifications
// and the table of mounts. It makes three things, all idempotent: a directory for
// a mount source of the host that is missing (people rely on it), the content of
// volumes that the image declares, below [Input.Volumes], and the default profile
// of AppArmor in the kernel, where AppArmor is enabled.
//
// # Types
//
// [Input] is all that [Build] is told. [Features] is what host and OCI runtime
// can do. [Resources] also serves updates, [ExecProcess] further processes.
//
// # Invariants
//
//   - The paths of the pod's namespaces are its pins: a container never gets
//     another network, IPC or UTS namespace than its pod.
//   - The first group of a process is also one of its supplementary groups, so
//     that a program cannot shed it by setgroups alone.
//   - Mounts are in the order of their depth: none hides another.
//   - No inheritable capabilities but those that are ambient.
//
// # Crash
//
// A volume's copy is made beside and renamed: after a crash it is there as a
// whole or made anew. Directories for missing sources stay.
//
// # Decisions
//
//  1. Container-side paths are made absolute and cleaned, and otherwise left to
//     the OCI runtime, which resolves them below the root while it mounts.
//     Rejected: resolving them here, where the mounts are not yet made.
//  2. Privileged containers on cgroup v2 get a bind of the host's /sys/fs/cgroup.
//     Rejected: a new mount of cgroup2, which changes the options of the one that
//     the host uses and waits for a grace period of the kernel.
//  3. A private mount of a host directory that contains our own roots becomes
//     rslave: else each such container pins the roots of all others, and they
//     cannot be removed. Not so with recursive read-only, since what is mounted
//     later would be writable.
//  4. Unknown names of capabilities are refused. Rejected: ignoring them, since a
//     misspelt "drop" would leave what the user meant to take away.
//  5. No limits of resources per process (ulimits) by default: a container
//     inherits those of its shim, which inherits the daemon's. [Input.Ulimits] is
//     the place for a configured default.
//  6. Files are not relabelled for SELinux, and labels are written only with
//     [Features.SELinux].
//  7. Ambient capabilities are also put into the sets that the kernel wants them
//     in; who asks for one wants to have it. A dropped one is not ambient.
package oci
