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
//   - Undo is the ordinary removal, tries everything, and is owed if it fails.
//
// # States
//
//	Create -> Created -> Running -> Exited -> (gone)
//	             |  start fails        ^
//	             +---------------------+
//	Unknown: the record is there, what it describes cannot be found out; removable
//
// # Types
//
// [Spec] is what was asked, in the terms of CRI without its messages. [Container]
// is the record. The outside is small interfaces in outside.go.
package container
