// Package events tells listeners what happens to pods, containers and networks
// while it happens. Its source is the daemon's log: a record with the attribute
// "event" is one, and so is one of level info or above that has a "network".
//
// # Promises
//
//   - The log never waits for a listener. One that is slow loses events, and the
//     next that it gets says how many.
//   - The last few hundred events are kept, for who comes later.
//   - Events are told whatever the log's level is.
//
// # Types
//
// [Hub] is where all events pass, [Event] is one.
//
// # Crashes
//
// Nothing is kept on disk; the log is what remains.
//
// # Decisions
//
//  1. The log is the source. Context: what people want to follow is what is worth a
//     line in the log, and has its attributes. Rejected: calls of every manager to a
//     second receiver, which would say the same in other words.
package events
