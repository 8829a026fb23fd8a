// Package store keeps the records of pods and containers, and a few small facts that must
// outlive a reboot, as JSON files that are replaced atomically.
//
//	<root>/
//	  VERSION                 the number of this layout; a newer one is refused
//	  LOCK                    held by flock for the life of the process
//	  <name>.json             facts ([Store.SetFact]); synced to disk at once
//	  pods/<id>/pod.json      records; synced within a second
//	  pods/<id>/pod.json.new  what a crash left of a replacement; ignored
//	  pods/<id>/containers/<id>.json  records of the pod's containers, likewise
//
// # Promises
//
//   - A reader sees the old record or the new one, never a part of one: files are
//     written beside and renamed.
//   - The crash of the process loses nothing. A power cut may lose the last second
//     of records, never of facts. An unreadable record is reported by its id, and
//     is never fatal.
//   - One process per root.
//
// # Decisions
//
//  1. Records are synced in the background: a pod does not outlive a reboot, so
//     what a power cut takes described nothing any more. Rejected: a sync before
//     each answer, 1 to 10 ms on real disks.
//  2. Files, not a database: what is on disk can be read with cat at 3 a.m., one
//     broken record harms one pod, and nothing needs repair.
package store
