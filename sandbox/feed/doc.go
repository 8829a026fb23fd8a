// Package feed tells what happens to pods and containers, to whoever listens.
//
// # Promises
//
//   - Everything that happens is a record that is written, so a [Feed] stands between
//     the managers and their store and tells what changes. It never blocks them.
//   - An [Event] has the pod and its containers as they were at that moment.
//   - The feed keeps a bounded number of events. A listener who is too slow loses the
//     oldest, which the log says; one who comes back goes on where the last one to
//     leave stopped, if that was less than five minutes ago.
//
// # Types
//
// A [Feed] wraps stores ([Feed.Pods], [Feed.Containers]) and serves listeners
// ([Feed.Stream]).
//
// # Crash
//
// Nothing is kept. What ended while there was no daemon is told when the next one
// records it.
//
// # Decisions
//
//  1. The feed hears of changes as a store. Rejected: calls from each use case, of
//     which the next one would be forgotten; a second watcher of the engine, which
//     tells things before the records are true; the log, which is what people follow
//     (cmd/crib/events), but has no statuses.
//  2. An event is told even if its record could not be written: it is true all the
//     same, and the manager goes by it.
//  3. A listener has no place of its own when it comes back, as requests have no name:
//     two that come back at once may both hear what one has heard.
package feed
