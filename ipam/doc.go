// Package ipam hands out addresses of pods, and never one twice. It is pure
// memory: it reads and writes nothing, so what is in use after a restart is
// told to it by the pods' records ([Allocator.Claim]).
//
// # Types
//
// An [Allocator] holds at most one range of each family and knows which owner
// (a pod's id, or whatever string the caller keeps its records by) holds which
// addresses. [Usage] is the filling of one range in numbers.
//
// # Invariants
//
//   - No address is held by two owners.
//   - The network, broadcast and gateway address of a present range is never
//     handed out, and a refused address is not either.
//   - A usable address of a range that nobody holds is in exactly one of three
//     places: ahead of the walk, in the queue of freed ones, or refused.
//   - What is held stays held until it is released, also when the range that it
//     came from is gone.
//
// # Order
//
// A range is walked once, from its first address (or, after a restart, from the
// one behind the highest that is held) around to where the walk began; from
// then on the addresses come from the queue of freed ones, the longest free
// first. So an address freed last is taken last, and taking costs the same in a
// /24 and in a /64.
//
// # Crash
//
// Everything is lost, and everything is rebuilt: New, SetRanges, then Claim for
// each record, before the first Take. SetRanges and Claim may come in any order.
//
// # Decisions
//
// 1. No cool-down by the clock. Context: an address that is used again at once
// gets packets meant for its former holder. Choice: the freed-last-taken-last
// queue, which lets every other free address pass first. Rejected: a time to
// wait, which needs a clock, and must be given up anyway when the range runs
// full. Consequence: in a nearly full range an address returns quickly; the
// bridge's stable link addresses, and that it has the flows of freed addresses
// forgotten, cover that.
//
// 2. A new range's gateway must not be held by a pod. Context: a changed range
// can make an old pod's address the gateway. Choice: SetRanges refuses the
// range and names the pod. Rejected: two owners of one address for a while.
// Consequence: such a pod has to end first; only ranges that overlap the old
// one with another first address can meet this.
package ipam
