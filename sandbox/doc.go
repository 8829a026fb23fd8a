// Package sandbox is the life of a pod: its states, the order of the steps that
// make it, the one teardown that unmakes it, and recovery after a crash.
//
// # Promises
//
//   - A pod is one record. Everything in the kernel and in the engine is a
//     consequence of it, named after the pod's id.
//   - The record is written before the first resource is made and deleted after
//     the last one is gone. So a crash at any line leaves either nothing or a
//     record that says what to undo.
//   - [Manager.Run] is idempotent by (namespace, name, uid, attempt): a retry
//     waits for the first call and gets its id. There is no name reservation.
//   - Undo is the ordinary teardown, the same for a failed Run, Stop, Remove and
//     recovery. It needs nothing of the caller's context, tries every step, and
//     what it could not do is owed: kept in the record, retried with back-off by
//     [Manager.Serve], visible in [Manager.Debts].
//
// # Types
//
// [Spec] is what was asked. [Pod] is the record. [Manager] runs the use cases:
// run.go, stop.go, recover.go, each a straight function. What it needs of the
// outside are the small interfaces in outside.go.
//
// # States
//
//	                 Run fails, teardown owes
//	         +------------------------------------+
//	         |                                    v
//	Run -> Creating ----> Ready ----> NotReady -> (gone)
//	         |                 Stop,      Remove    ^
//	         |                 death                |
//	         +--------------------------------------+
//	          Run fails, teardown done
//
// Creating is never shown to a client: the pod does not exist for it yet.
//
// # Crashes
//
//	after step             on disk    in kernel and engine   at start
//	plan                   -          -                      nothing to do
//	record                 Creating   nothing                unwind
//	namespaces, networks   Creating   some                   unwind
//	init                   Creating   all                    unwind
//	record                 Ready      all                    alive: attach again; dead: NotReady, addresses held until Stop
//	reboot                 any        nothing                NotReady, addresses freed at once, the rest owed
//	record deleted         -          what was missed        swept
//
// # Containers
//
// Package sandbox/container has their life; a pod's teardown begins with killing
// them (Config.StopContainers), and its record is deleted after theirs
// (Config.RemoveContainers). They are recovered before the pods are.
//
// # Locks
//
// One [KeyLock] per pod (its [Key]) is held for the whole of a use case and
// honours the caller's context. Manager.mu guards the map of records only and is
// never held across I/O. Records in the map are immutable; a change replaces one.
//
// Each use case is an operation of package ops from before it waits for the lock;
// the stages of the teardown belong to the operation that holds it.
//
// # Decisions
//
//  1. After the record exists, Run goes on when its caller is gone (time-out,
//     closed connection): the retry then finds a Ready pod. Rejected: stopping
//     half way, which turns a slow pod into a failed one on each retry.
//  2. Stop answers OK when only releases are owed. Rejected: an error until they
//     succeed, which keeps a pod Terminating for a host rule. Processes that
//     would not die are an error all the same, and Remove waits for everything.
//  3. Records are not synced to disk before the answer but within a second: no
//     pod outlives a reboot, so a record lost by a power cut describes nothing.
package sandbox
