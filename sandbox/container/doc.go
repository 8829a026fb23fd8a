// Package container is the life of a container inside of a pod: its states, its
// record, and the use cases that change them.
//
// # Promises
//
//   - A container is one record, written before the first resource is made and
//     deleted after the last one is gone.
//   - Create is idempotent by (pod, name, attempt), as Run is for pods.
//   - Exit code, times, reason and message are true. A start that fails leaves
//     Exited, 128, StartError and the text. The end of a container is noticed by
//     one goroutine for each that runs, also after a restart of the daemon; what
//     happened while there was no daemon is harvested before the engine opens.
//   - Undo is the ordinary removal, tries everything, and is owed if it fails: kept
//     in the record, retried by [Manager.Serve], visible in [Manager.Debts].
//
// # States
//
//	Create -> Created -> Running -> Exited -> (gone)
//	             |  start fails        ^
//	             +---------------------+
//	Unknown: the record is there, what it describes cannot be found out; removable
//
// Creating comes before Created and is never shown to a client.
//
// # Types
//
// [Spec] is what was asked, in the terms of CRI without its messages. [Container]
// is the record. [Manager] runs the use cases: create.go, start.go, stop.go,
// remove.go, update.go, recover.go, each a straight function; inside.go is what reaches
// into running containers, watch.go how an end is noticed. The outside is small
// interfaces in outside.go.
//
// # Crashes
//
//	after step              on disk            in the engine     at start
//	record                  Creating           nothing           removed
//	root, engine            Creating           root, container   removed
//	record                  Created            all of it         kept
//	record of the attempt   Created, started   maybe a task      Exited, 128, StartError; the task deleted
//	task                    Created, started   a task            the same, or the harvested end
//	record                  Running            a task            followed; if it ended, its end
//	limits change           Running, old ones  new limits        the old ones are echoed until the next update
//	process ends            Running            an ended task     its end, harvested or from the engine
//	record                  Exited             an ended task     the task deleted
//	Remove begins           Removing           some              removed
//	reboot                  Running            root, container   Exited, 255, Unknown
//	record unreadable       ?                  maybe all         removed
//
// # Locks
//
// One lock for each [Key] is held for the whole of Create, Start, Remove and
// Update, and honours the caller's context; Stop only passes through it, to wait
// behind a Start, so that a second Stop can shorten the first. One lock for each id
// orders the writes of its record. Manager.mu guards the maps only and is never held
// across I/O. Records are immutable; a change replaces one.
//
// A stop of the pod and a Create or Start exclude each other without a lock of the
// pod: the pod is not Ready before its containers are stopped, and Create looks at
// the pod again after its record can be found.
//
// # Decisions
//
//  1. The task is deleted as soon as its end is recorded, never before: shim, cgroup and mounts
//     go at once, and what still runs in the cgroup is killed. Rejected: at Remove,
//     which for a crashing container comes minutes later.
//  2. A start that a crash interrupted is undone, even if the process came up:
//     nobody was told so, and a task that is created but not started looks alive for
//     ever. Rejected: adopting it.
//  3. StartedAt is when the start began, so that no process ends before it.
//  4. Create and Start go on when their caller is gone. Stop does not kill then: a
//     grace is only over for a caller who still waits, and clients call again.
//  5. A created container is not looked for in the engine at recovery: one that was
//     lost there fails at Start, with StartError and the engine's text.
//  6. An update sends the limits that it names, with what belongs to them; a memory
//     limit alone moves the one of memory and swap along. Rejected: all limits each
//     time, of which the kernel may refuse one that nobody wanted to change.
package container
