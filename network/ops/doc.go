// Package ops knows what is in flight: operations on pods and containers, which
// stage each is at, for which lock it waits, and who holds that. It is pure memory
// and knows neither pods nor containers, only their names.
//
// # Promises
//
//   - An [Op] is in [Table.List] from Begin to End, with all of its stages.
//   - Who waits for a lock is told what its holder is doing ([Op.Lock]), also in the
//     error when the wait ends, shortly before the caller's deadline: a client that
//     has stopped to wait gets no text.
//   - A stage costs two looks at the clock and an entry of a list.
//   - The methods of a nil *Op do nothing, for work that is nobody's operation.
//
// # Types
//
// [Table] has the operations, [Op] is one of them, [Operation] what one is like at a
// moment. A [Call] is what a request of a client led to.
//
// # Crashes
//
// Nothing is kept. What an operation had done is in the records of its object.
//
// # Decisions
//
//  1. Stages that run deep inside are found by the lock that their operation holds
//     ([Table.Holder]). Context: the teardown is shared by many callers and has no
//     context of theirs. Rejected: a parameter of every function on the way.
//  2. It is below package sandbox, which marks its stages, and knows nothing of
//     networks: its place is that of the lowest layer that may need it.
package ops
