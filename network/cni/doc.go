// Package cni attaches pods to networks that an operator describes in CNI
// conflists, by running the plugin binaries that they name.
//
// # Promise
//
// [Networks] is a driver as package network describes it. [Networks.Plan] copies
// the conflists as they are at that moment, with the capability arguments of the
// pod, into the attachments; ADD and DEL use that copy for the pod's whole life.
// A conflist that is changed or deleted meanwhile, an empty plugin cache or a
// namespace that is gone cannot keep a pod from being detached.
//
// A plugin that does not answer within [Config].Timeout is killed together with
// the processes it started. A failed ADD is followed by DEL of every network of
// the pod. DEL tries every network, last one first, and joins the errors. What
// DEL returns is never final: a plugin binary that is missing today may be back
// when the caller tries again.
//
// [Networks.Serve] follows the directory. While a file there does not parse, or
// while the directory is gone, the last set that did parse stays in use and
// [Networks.Status] says so.
//
// # Types
//
//   - [Config]: directories and the deadline
//   - [Networks]: the loaded conflists and the driver's verbs
//
// # Invariants
//
//   - No plugin is run before the caller's record says so: Attach marks the
//     attachments as started through network.Save first.
//   - An attachment that has a result is not added again.
//   - Verbs for one pod are not called side by side; the caller holds its lock.
//
// # After a crash
//
// An attachment that is marked as started and has no result was interrupted:
// Attach runs DEL before ADD, and Detach runs DEL as always. Both first wait for
// the ADD of a daemon that was killed, whose plugin goes on without it, no longer
// than a plugin may take. [Networks.Restore]
// removes attachments that are in the plugin cache and in no record. The plugin
// cache is below /run: it is gone after a reboot, as what it describes is.
//
// # Decisions
//
//  1. go-cni reads and judges the files, libcni runs the verbs. go-cni has no way
//     to hand in an Exec, a cache directory or the configuration of another day,
//     and its child processes outlive a deadline. Rejected: go-cni's Setup and
//     Remove. Consequence: the result is mapped here, with prefix lengths, which
//     go-cni's does not keep. Names and shapes of the capabilities are go-cni's.
//  2. One file that does not parse holds back the whole directory, where nothing
//     was loaded before as well. Rejected: going on with the others; a pod would
//     get eth0 from the wrong network while an add-on is being installed. With
//     Config.Only the other files do not matter.
//  3. DEL runs plugin by plugin with the result from the record. Rejected: libcni's
//     verb for lists, which knows the result from the plugin cache only and loses
//     it when that file is empty.
//  4. The verb GC is not run. Rejected: running it at start, as others do: it frees
//     what another runtime on the node made in a network of the same name.
//  5. A pod's networks are added in parallel, as containerd does, and deleted one
//     after the other.
package cni
